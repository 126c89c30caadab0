"""`pinner-nova-listener` with a real RabbitMQ and pinner's REST API, and the faults of each of them."""

import time

import private_rabbit
import pytest
from support.fakes.in_memory_service import InMemoryService
from support.nova.nova_listener import LISTENER, another_queue, listening, publish, until, waiting
from support.nova.samples import OWN, SETS
from support.server import warm
from support.server.access import InMemoryTokens
from support.server.real_service import answering

pytestmark = pytest.mark.skipif(bool(private_rabbit.missing()), reason=private_rabbit.missing())

AWAY = pytest.mark.slow("a broker that is away")
TOKENS = InMemoryTokens()
LISTENER_TOKEN = TOKENS.add("hook", "nova-listener")


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory):
    with private_rabbit.private_rabbit(tmp_path_factory.mktemp("rabbit") / "r") as rabbit:
        yield rabbit


class Pinner(InMemoryService):
    """A service with the hosts of the samples."""

    def hosts(self):
        return (*(host for each in SETS for host in (each.host, each.destination)), "h1")


@pytest.fixture
def pinner():
    return Pinner()


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{LISTENER_TOKEN}\n")
    return f"token_file = {file}"


@pytest.fixture
def listener(tmp_path, rabbit, pinner, token):
    with answering(pinner, TOKENS) as url, listening(tmp_path / "l", rabbit.url, url, token) as listener:
        listener.wait_for("listening")
        yield listener
        assert waiting(rabbit.url) == 0


def create_end(**data):
    sample = OWN.load("create-end")
    sample["payload"]["nova_object.data"] |= data
    return sample


@pytest.mark.parametrize("samples", SETS, ids=str)
def test_every_sample_arrives_and_another_queue_gets_all_of_them_too(rabbit, pinner, listener, samples):
    with another_queue(rabbit.url) as messages:
        for name in samples.names:
            publish(rabbit.url, samples.load(name))
        until(lambda: len(pinner.events) == len(samples.events), 10, lambda: listener.log)
        until(lambda: messages() == len(samples.names), 5)
    events = {event.event: event for event in pinner.events}
    assert len(events) == len(samples.events) >= 14
    assert events["instance.live_migration_pre.start"].kind == "leaving"
    assert str(events["instance.live_migration_pre.start"].cpus) == "0-3", "the CPUs of the destination"
    assert events["instance.delete.end"].kind == "gone"
    create = events["instance.create.end"]
    source = f"nova {samples.request}, user {samples.nova.user}"
    assert (create.guest, create.source) == (samples.guest, source)
    assert create.nova.extra_specs == samples.nova.extra_specs
    assert {record.actor for record in pinner.records} == {"nova-listener"}


@pytest.mark.fault(35)
def test_poison_is_quarantined_once_and_the_next_message_is_delivered(rabbit, pinner, listener):
    poison = [
        create_end(uuid="$(reboot)"),
        create_end(host="elsewhere"),
        create_end(host=None),
        create_end(uuid=7),
        {**create_end(), "payload": None},
        {**create_end(), "event_type": None},
        {**create_end(), "event_type": "instance.create.end", "payload": {"nova_object.version": "2.0"}},
        {"publisher_id": f"nova-compute:{OWN.host}", "event_type": "instance.create.end", "priority": "INFO"},
    ]
    for each in poison:
        publish(rabbit.url, each)
    for garbage in (b"\xff\xfe", b"{", b"[]", b'{"oslo.version": "2.0", "oslo.message": "{}"}', b"null"):
        publish(rabbit.url, garbage)
    publish(rabbit.url, create_end())
    until(lambda: pinner.events, 10, lambda: listener.log)
    until(lambda: len(listener.quarantined()) >= len(poison), 10, lambda: listener.log)
    time.sleep(1)
    assert len(pinner.events) == 1
    why = [line["why"] for line in listener.quarantined()]
    assert sum("'elsewhere'" in each for each in why) == 1
    assert f"quarantined, {len(why)} since the start" in listener.log
    # The sample's guest does not run on this host: pinner receives the event, and the listener quarantines it.
    assert sum("is no guest of host" in each for each in why) == 1
    assert len(why) <= len(poison) + 1 + 5
    assert listener.process.poll() is None


@pytest.mark.fault(35)
def test_duplicates_are_delivered_in_any_order(rabbit, pinner, listener):
    names = ["live_migration_post_dest-end", "delete-end", "create-end"] * 3
    for name in names:
        publish(rabbit.url, OWN.load(name))
    until(lambda: len(pinner.events) == len(names), 10, lambda: listener.log)


@pytest.mark.fault(34)
@AWAY
def test_the_listener_reconnects_after_the_broker_was_killed(rabbit, pinner, listener):
    publish(rabbit.url, create_end())
    until(lambda: len(pinner.events) == 1, 10, lambda: listener.log)
    rabbit.kill()
    listener.wait_for("unreachable|closed the connection|Connection failed|onnection reset|broken")
    before = listener.cpu_seconds()
    time.sleep(5)
    assert listener.cpu_seconds() - before < 0.5
    warnings = [line for line in listener.log.splitlines() if "impl_rabbit" in line and " INFO " not in line]
    assert len(warnings) <= 2, warnings
    rabbit.start()
    # The listener creates the queue again when it reconnects.
    listener.wait_for("Reconnected", 60)
    time.sleep(1)
    publish(rabbit.url, create_end())
    until(lambda: len(pinner.events) == 2, 20, lambda: listener.log)


@pytest.mark.fault(34)
@AWAY
def test_the_listener_waits_for_a_broker_that_is_down_at_its_start(tmp_path, rabbit, pinner, token):
    rabbit.stop()
    try:
        with answering(pinner, TOKENS) as url, listening(tmp_path / "l", rabbit.url, url, token) as listener:
            listener.wait_for("Connection failed|unreachable")
            before = listener.cpu_seconds()
            time.sleep(3)
            assert listener.cpu_seconds() - before < 0.5
            rabbit.start()
            listener.wait_for("listening", 60)
            publish(rabbit.url, create_end())
            until(lambda: pinner.events, 10, lambda: listener.log)
            rabbit.stop()
            time.sleep(1)
            listener.process.terminate()
            listener.process.wait(60)
    finally:
        if not rabbit.running:
            rabbit.start()


def test_sigterm_ends_a_listener_that_waits_for_a_broker(tmp_path):
    with listening(tmp_path / "l", "rabbit://guest:guest@127.0.0.1:1/", "http://127.0.0.1:1") as listener:
        listener.wait_for("Connection failed|unreachable")
        listener.process.terminate()
        assert listener.process.wait(20) == 0


def test_events_wait_until_pinner_runs_again(tmp_path, rabbit, pinner, token):
    with answering(pinner, TOKENS) as url:
        port = int(url.rpartition(":")[2])
    with listening(tmp_path / "l", rabbit.url, url, token) as listener:
        listener.wait_for("listening")
        for _ in range(3):
            publish(rabbit.url, create_end())
        listener.wait_for(f"events of host {OWN.host} wait")
        with answering(pinner, TOKENS, port):
            until(lambda: len(pinner.events) == 3, 20, lambda: listener.log)
            listener.wait_for(f"events of host {OWN.host} are delivered again")
        assert listener.log.count(f"events of host {OWN.host} wait") == 1


def test_events_are_sent_to_the_server_of_their_host(tmp_path, rabbit):
    (tmp_path / "token of 127.0.0.1").write_text(LISTENER_TOKEN)
    tokens = f"token_file = {tmp_path}/token of {{host}}"

    class OfOneHost(InMemoryService):
        def hosts(self):
            return ("127.0.0.1",)

    pinner = OfOneHost()
    with answering(pinner, TOKENS) as url:
        server = url.replace("127.0.0.1", "{host}")
        with listening(tmp_path / "l", rabbit.url, server, tokens) as listener:
            listener.wait_for("listening")
            publish(rabbit.url, create_end(host="127.0.0.1"))
            until(lambda: pinner.events, 10, lambda: listener.log)


def test_events_wait_while_the_token_is_wrong(tmp_path, rabbit, pinner):
    (tmp_path / "wrong").write_text("wrong")
    with (
        answering(pinner, TOKENS) as url,
        listening(tmp_path / "l", rabbit.url, url, f"token_file = {tmp_path}/wrong") as listener,
    ):
        listener.wait_for("listening")
        publish(rabbit.url, create_end())
        listener.wait_for(f"events of host {OWN.host} wait.*bearer token")
        assert pinner.events == []
    assert [line["why"] for line in listener.quarantined()] == ["the listener ended before it was delivered"]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("", "[nova_listener] transport_url"),
        ("[nova_listener]\ntransport_url = nonsense://u:hunter2@h/\n", "[nova_listener] transport_url"),
        ("[nova_listener]\ntransport_url = rabbit://h/\ntoken_file = /no/such/file\n", "token_file"),
        ("[nova_listener]\ntransport_url = rabbit://h/\nserver = foo\n", "[nova_listener] server: 'foo'"),
        ("[nova_listener]\ntransport_url = rabbit://h/\ntopics =\n", "[nova_listener] topics"),
        ("[nova_listener]\ntransport_url = rabbit://h/\n[agent]\nstate_dir = /dev/null\n", "[agent] state_dir"),
    ],
)
def test_an_error_in_the_configuration_is_one_line(tmp_path, config, complaint):
    file = tmp_path / "listener.conf"
    file.write_text(config + ("" if "[agent]" in config else f"[agent]\nstate_dir = {tmp_path}/state\n"))
    done = warm.run("--config-file", file, code=LISTENER)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr.splitlines()[-1]
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
