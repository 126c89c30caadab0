"""`pinner-nova-listener` and a real RabbitMQ that refuses: it reports why, tries again for a while, and ends."""

import re
import signal
import time
from contextlib import closing, contextmanager
from pathlib import Path

import kombu
import private_rabbit
import pytest
from support.fakes.in_memory_service import InMemoryService
from support.nova.closing_proxy import ClosingProxy
from support.nova.frozen_proxy import FrozenProxy
from support.nova.hostile_notifications import HOSTILE, sample
from support.nova.nova_listener import EXCHANGE, LISTENER, QUEUE, TOPIC, connection, listening, publish, until
from support.nova.samples import OWN
from support.server.access import InMemoryTokens
from support.server.real_service import answering

pytestmark = [
    pytest.mark.skipif(bool(private_rabbit.missing()), reason=private_rabbit.missing()),
    pytest.mark.slow("a broker that refuses"),
]

TOKENS = InMemoryTokens()
LISTENER_TOKEN = TOKENS.add("hook", "nova-listener")
NOBODY = "powerless"
ENDS_SECONDS = 120
DURABLE = "[oslo_messaging_rabbit]\namqp_durable_queues = true"
QUORUM = "[oslo_messaging_rabbit]\nrabbit_quorum_queue = true"


def with_values(values):
    """A listener with these values of its module for the broker."""
    return f"import pinner.nova.listener; from pinner.nova.broker import broker; {values}; {LISTENER}"


BACK_OFF = "broker.FIRST_DELAY = 0.05"
QUICK = with_values(BACK_OFF)
"""A listener that repeats at once what the broker has refused, and not after up to 16 s."""


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory):
    with private_rabbit.private_rabbit(tmp_path_factory.mktemp("rabbit") / "r", NOBODY) as rabbit:
        yield rabbit


@pytest.fixture
def durable(rabbit):
    """The exchange and its queues as nova.conf with amqp_durable_queues has them."""
    exchange = kombu.Exchange("nova", type="topic", durable=True)
    with connection(rabbit) as channel:
        exchange(channel).declare()
    yield exchange
    with connection(rabbit) as channel:
        kombu.Queue(QUEUE)(channel).delete()
        exchange(channel).delete()


@pytest.fixture
def listener(tmp_path, rabbit):
    """Starts a listener with more settings; its pinner is in memory. No earlier message waits in its queue."""
    with connection(rabbit) as channel:
        kombu.Queue(QUEUE)(channel).delete()

    class Pinner(InMemoryService):
        def hosts(self):
            return (OWN.host, OWN.destination)

    pinner = Pinner()
    token = tmp_path / "token"
    token.write_text(LISTENER_TOKEN)

    @contextmanager
    def listener(extra="", url=rabbit.url, program=QUICK):
        with (
            answering(pinner, TOKENS) as server,
            listening(tmp_path / "l", url, server, f"token_file = {token}\n{extra}", program) as listener,
        ):
            yield listener, pinner

    return listener


def ends_by_itself(listener, reason):
    """Wait for the end of the process; the log has each attempt once, and the reason."""
    began = time.monotonic()
    assert listener.process.wait(ENDS_SECONDS) == 1, listener.log
    assert time.monotonic() - began < ENDS_SECONDS
    refusals = re.findall(r"the broker refuses \((\d) of 5\)", listener.log)
    assert refusals[:5] == list("12345"), listener.log
    assert re.search(reason, listener.log), listener.log
    assert "pinner-nova-listener: error: the broker refused 6 times within 300 s: " in listener.log
    assert listener.log.count("Traceback") <= 1, listener.log


@pytest.mark.usefixtures("durable")
@pytest.mark.parametrize("program", [LISTENER, QUICK], ids=["with the real back-off", "with a quick back-off"])
def test_a_durable_exchange_ends_a_listener_that_declares_another_one(listener, program):
    with listener(program=program) as (process, _):
        ends_by_itself(process, r"inequivalent arg 'durable' for exchange 'nova'.*set amqp_durable_queues")


@pytest.mark.parametrize("extra", [DURABLE, QUORUM], ids=["durable", "quorum"])
def test_durable_and_quorum_queues_are_configured_as_in_nova_conf(rabbit, durable, listener, extra):
    with listener(extra) as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        publish(rabbit.url, OWN.load("create-end"), exchange=durable)
        until(lambda: pinner.events, 30, lambda: process.log)


def test_a_queue_of_another_type_ends_the_listener(rabbit, durable, listener):
    with connection(rabbit) as channel:
        kombu.Queue(QUEUE, durable=True, queue_arguments={"x-queue-type": "quorum"})(channel).declare()
    with listener(DURABLE) as (process, _):
        ends_by_itself(process, r"inequivalent arg 'x-queue-type' for queue 'pinner'.*rabbitmqctl delete_queue")


def test_a_user_without_permissions_ends_the_listener(rabbit, listener):
    url = rabbit.url.replace("guest:guest", f"{NOBODY}:{NOBODY}")
    with listener(url=url) as (process, _):
        ends_by_itself(process, r"\(403\) ACCESS_REFUSED.*needs the permissions configure, write and read")
        assert f":{NOBODY}@" not in process.log


def test_a_listener_that_the_broker_refuses_later_ends(rabbit, listener):
    """The queue and the exchange are replaced by durable ones while the listener is stopped."""
    durable = kombu.Exchange("nova", type="topic", durable=True)
    with listener() as (process, _):
        process.wait_for("listening", ENDS_SECONDS)
        process.process.send_signal(signal.SIGSTOP)
        with connection(rabbit) as channel:
            kombu.Queue(QUEUE)(channel).delete()
            EXCHANGE(channel).delete()
            durable(channel).declare()
        process.process.send_signal(signal.SIGCONT)
        ends_by_itself(process, "inequivalent arg 'durable' for exchange 'nova'")
    with connection(rabbit) as channel:
        durable(channel).delete()


def test_a_broker_that_closes_the_channel_at_each_message_ends_the_listener(rabbit, listener):
    with closing(ClosingProxy(rabbit.port)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        with listener(url=url) as (process, pinner):
            process.wait_for("listening", ENDS_SECONDS)
            for _ in range(120):
                if process.process.poll() is not None:
                    break
                publish(rabbit.url, OWN.load("create-end"))
                time.sleep(0.5)
            assert process.process.wait(ENDS_SECONDS) == 1, process.log
            # The broker's words depend on whether the client's own close comes before or after the proxy's.
            ended = r"listener: error: (the broker refused|the connection to the broker was lost) \d+ times within"
            assert re.search(ended, process.log), process.log
            assert len(process.log.splitlines()) < 2000
            assert pinner.events


DECLARES = with_values(f"{BACK_OFF}; broker.DECLARE_SECONDS = 1.0; broker.POLL_SECONDS = 0.5")


def deleted_queue(channel):
    kombu.Queue(QUEUE)(channel).delete()


def deleted_exchange(channel):
    EXCHANGE(channel).delete()


def unbound_queue(channel):
    kombu.Queue(QUEUE)(channel).unbind_from(EXCHANGE, routing_key=TOPIC)


@pytest.mark.parametrize("lose", [deleted_queue, deleted_exchange, unbound_queue])
def test_a_listener_hears_again_after_its_way_to_the_messages_was_deleted(rabbit, listener, lose):
    """The broker tells the listener only that the queue was deleted. Thirty seconds are one here."""
    with listener(program=DECLARES) as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        with connection(rabbit) as channel:
            lose(channel)

        def arrives():
            # Nova declares the exchange before each notification, as this does.
            publish(rabbit.url, OWN.load("create-end"))
            time.sleep(0.5)
            return pinner.events

        until(arrives, ENDS_SECONDS, lambda: process.log)
        assert process.process.poll() is None


@pytest.mark.parametrize("declare", [0.0, 60.0], ids=["while it declares", "while it waits"])
def test_a_listener_hears_again_after_its_connection_went_silent(rabbit, listener, declare):
    """The first call that gets no answer differs. Heartbeats of five seconds are a minute by default."""
    program = with_values(f"{BACK_OFF}; broker.DECLARE_SECONDS = {declare}; broker.POLL_SECONDS = 1.0")
    with closing(FrozenProxy(rabbit.port)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        heartbeat = "[oslo_messaging_rabbit]\nheartbeat_timeout_threshold = 5"
        with listener(heartbeat, url=url, program=program) as (process, pinner):
            process.wait_for("listening", ENDS_SECONDS)
            proxy.freeze()
            publish(rabbit.url, OWN.load("create-end"))
            until(lambda: pinner.events, ENDS_SECONDS, lambda: process.log)
            assert process.process.poll() is None


def test_an_exchange_that_was_replaced_by_a_durable_one_ends_the_listener(rabbit, listener):
    durable = kombu.Exchange("nova", type="topic", durable=True)
    with listener(program=DECLARES) as (process, _):
        process.wait_for("listening", ENDS_SECONDS)
        with connection(rabbit) as channel:
            EXCHANGE(channel).delete()
            durable(channel).declare()
        ends_by_itself(process, "inequivalent arg 'durable' for exchange 'nova'")
    with connection(rabbit) as channel:
        durable(channel).delete()


def test_hostile_messages_are_dropped_or_quarantined_and_the_next_one_is_delivered(rabbit, listener):
    with listener() as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        for name, send in HOSTILE.items():
            before = len(pinner.events)
            send(rabbit)
            publish(rabbit.url, OWN.load("create-end"))
            until(lambda before=before: len(pinner.events) > before, 60, lambda name=name: f"{name}\n{process.log}")
        assert process.process.poll() is None
        assert "is unreachable" not in process.log
        assert "wait for a retry" not in process.log, "no event is repeated that no server accepts"
        assert process.log.count("a message that cannot be decoded was dropped") == 1, process.log
        assert process.log.count("Traceback") <= 1, process.log
        why = [line["why"] for line in process.quarantined() if "is no guest" not in line["why"]]
        assert any("names and extra specs of at most" in each for each in why), why
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.process.pid}/status").read_text())
        assert int(peak[1]) < 512 << 10, "KiB"


def test_times_of_other_centuries_are_left_to_the_server(rabbit, listener):
    with listener() as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        times = ("1970-01-01 00:00:00", "2100-01-01 00:00:00.0", "0001-01-01 00:00:00", "9999-12-31 23:59:59")
        for at in times:
            publish(rabbit.url, sample() | {"timestamp": at})
        until(lambda: len(pinner.events) == len(times), 30, lambda: process.log)
        for at in (1e300, None, "", [], {}):
            publish(rabbit.url, sample() | {"timestamp": at})
        until(lambda: sum("timestamp" in each["why"] for each in process.quarantined()) == 5, 30, lambda: process.log)


def test_a_memory_alarm_of_the_broker_does_not_hold_the_listener(rabbit, listener):
    """The broker then blocks connections that publish. The listener publishes nothing."""
    with listener() as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        rabbit.control("set_vm_memory_high_watermark", "0.0000001")
        try:
            time.sleep(5)
            assert process.process.poll() is None
        finally:
            rabbit.control("set_vm_memory_high_watermark", "0.4")
        publish(rabbit.url, OWN.load("create-end"))
        until(lambda: pinner.events, 60, lambda: process.log)
        assert "unreachable" not in process.log


def test_a_broker_that_leaves_a_call_without_an_answer_ends_the_listener(rabbit, listener):
    """The broker stays connected. Two minutes of its silence are 3 seconds here."""
    program = with_values(f"{BACK_OFF}; broker.HANGS_SECONDS = 3.0; broker.POLL_SECONDS = 0.5")
    with closing(ClosingProxy(rabbit.port, silent=True)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        with listener(url=url, program=program) as (process, _):
            process.wait_for("listening", ENDS_SECONDS)
            publish(rabbit.url, OWN.load("create-end"))
            assert process.process.wait(ENDS_SECONDS) == 1, process.log
            assert "pinner-nova-listener: error: the broker has not answered for" in process.log


def test_a_listener_whose_broker_is_silent_ends_when_it_is_asked_to(rabbit, listener):
    with closing(ClosingProxy(rabbit.port, silent=True)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        with listener(url=url, program=with_values(f"{BACK_OFF}; broker.STOP_SECONDS = 1.0")) as (process, _):
            process.wait_for("listening", ENDS_SECONDS)
            publish(rabbit.url, OWN.load("create-end"))
            until(lambda: proxy.withheld, 60, lambda: process.log)
            process.process.terminate()
            assert process.process.wait(60) == 0
            assert "the connection to the broker has not ended" in process.log


def test_unversioned_notifications_are_reported(rabbit, listener):
    unversioned = {
        "publisher_id": f"compute.{OWN.host}",
        "event_type": "compute.instance.create.end",
        "priority": "INFO",
    }
    with listener() as (process, pinner):
        process.wait_for("listening", ENDS_SECONDS)
        for _ in range(20):
            publish(rabbit.url, unversioned | {"payload": {"instance_id": OWN.guest}}, topic="notifications.info")
        process.wait_for("sends unversioned notifications only.*notification_format = both")
        publish(rabbit.url, OWN.load("create-end"), topic=TOPIC)
        until(lambda: pinner.events, 30, lambda: process.log)
        assert process.log.count("sends unversioned") == 1
        assert not process.quarantined() or "is no guest" in process.quarantined()[0]["why"]
