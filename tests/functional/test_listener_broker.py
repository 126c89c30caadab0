"""`pinner-nova-listener` and a real RabbitMQ that refuses: it reports why, tries again for a while, and ends."""

import re
import signal
import time
from contextlib import closing, contextmanager

import kombu
import private_rabbit
import pytest
from support.access import InMemoryTokens
from support.closing_proxy import ClosingProxy
from support.in_memory_service import InMemoryService
from support.nova_listener import EXCHANGE, LISTENER, QUEUE, TOPIC, listening, publish, until
from support.real_service import answering
from support.samples import OWN

pytestmark = pytest.mark.skipif(bool(private_rabbit.missing()), reason=private_rabbit.missing())

TOKENS = InMemoryTokens()
LISTENER_TOKEN = TOKENS.add("hook", "nova-listener")
NOBODY = "powerless"
ENDS_SECONDS = 120
DURABLE = "[oslo_messaging_rabbit]\namqp_durable_queues = true"
QUORUM = "[oslo_messaging_rabbit]\nrabbit_quorum_queue = true"


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


@contextmanager
def connection(rabbit):
    """A channel of the broker's owner."""
    with kombu.Connection(rabbit.url.replace("rabbit://", "amqp://") + "/") as made:
        yield made.default_channel


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
    def listener(extra="", url=rabbit.url, program=LISTENER):
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
def test_a_durable_exchange_ends_a_listener_that_declares_another_one(listener):
    with listener() as (process, _):
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
            for _ in range(30):
                if process.process.poll() is not None:
                    break
                publish(rabbit.url, OWN.load("create-end"))
                time.sleep(2)
            assert process.process.wait(ENDS_SECONDS) == 1, process.log
            # The broker's words depend on whether the client's own close comes before or after the proxy's.
            ended = r"listener: error: (the broker refused|the connection to the broker was lost) \d+ times within"
            assert re.search(ended, process.log), process.log
            assert len(process.log.splitlines()) < 2000
            assert pinner.events


def test_a_broker_that_leaves_a_call_without_an_answer_ends_the_listener(rabbit, listener):
    """The broker stays connected. Two minutes of its silence are 10 seconds here."""
    program = f"import pinner.nova.listener; from pinner.nova import broker; broker.HANGS_SECONDS = 10.0; {LISTENER}"
    with closing(ClosingProxy(rabbit.port, silent=True)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        with listener(url=url, program=program) as (process, _):
            process.wait_for("listening", ENDS_SECONDS)
            publish(rabbit.url, OWN.load("create-end"))
            assert process.process.wait(ENDS_SECONDS) == 1, process.log
            assert "pinner-nova-listener: error: the broker has not answered for 1" in process.log


def test_a_listener_whose_broker_is_silent_ends_when_it_is_asked_to(rabbit, listener):
    with closing(ClosingProxy(rabbit.port, silent=True)) as proxy:
        url = rabbit.url.replace(str(rabbit.port), str(proxy.port))
        with listener(url=url) as (process, _):
            process.wait_for("listening", ENDS_SECONDS)
            publish(rabbit.url, OWN.load("create-end"))
            until(lambda: proxy.closed, 30, lambda: process.log)
            time.sleep(12)  # the listener repeats its call after one second, and then waits for the broker
            process.process.terminate()
            assert process.process.wait(30) == 0
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
