"""The listener's side of the message broker. oslo.messaging ends or repeats for ever a refused attempt. Here it is
logged with its remedy, repeated with delays; then the process ends: it must not look as if it worked."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg
from oslo_messaging import Target, exceptions, get_notification_transport  # type: ignore[import-untyped]
from oslo_messaging.notify import dispatcher  # type: ignore[import-untyped]
from oslo_messaging.notify.listener import NotificationServer  # type: ignore[import-untyped]

from pinner.model.doubling import doubled
from pinner.model.errors import Invalid
from pinner.nova.broker import bounds
from pinner.nova.broker.broker_log import BROKER_LOG, MESSAGE_LOGS, ConnectionLogFilter, MessageLogFilter

LOG = logging.getLogger(__name__)

FIRST_DELAY = 1.0
"""Seconds before the first repetition; doubled after each refusal."""
MAX_REFUSALS, MAX_OUTAGES = 5, 10
"""Refusals, and losses of the connection, within WINDOW_SECONDS after which the process ends."""
WINDOW_SECONDS = 300.0
POLL_SECONDS = 5.0
HANGS_SECONDS = 120.0
"""A thread that has waited so long hangs: oslo.messaging's calls have no time limit."""
DECLARE_SECONDS = 30.0
"""So often the queue is declared again: no broker tells a consumer that the exchange or the binding was deleted."""
STOP_SECONDS = 10.0

_REMEDIES = (
    (
        "inequivalent arg",
        "set amqp_durable_queues, rabbit_quorum_queue and amqp_auto_delete in [oslo_messaging_rabbit] of pinner's "
        "configuration as in nova.conf; if pinner's own queue is named, delete it (rabbitmqctl delete_queue)",
    ),
    (
        "(403)",
        "the user of [nova_listener] transport_url needs the permissions configure, write and read on pinner's queue "
        "and on the exchange (rabbitmqctl set_permissions)",
    ),
    ("(404)", "the exchange or the queue was deleted"),
)


class BrokerFaults:
    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self._refusals: deque[float] = deque()
        self._outages: deque[float] = deque()
        self.stopped = threading.Event()

    def refused(self, error: Exception) -> None:
        """Waits until the time of the next attempt."""
        count = self._count(self._refusals)
        why = explained(error)
        if count > MAX_REFUSALS:
            self._end(f"the broker refused {count} times within {WINDOW_SECONDS:.0f} s: {why}")
        delay = doubled(FIRST_DELAY, min(count, MAX_REFUSALS) - 1, WINDOW_SECONDS)
        LOG.error("the broker refuses (%s of %s): %s; next attempt in %g s", count, MAX_REFUSALS, why, delay)
        self.stopped.wait(delay)

    def lost(self, text: str) -> None:
        count = self._count(self._outages)
        if count > MAX_OUTAGES:
            self._end(f"the connection to the broker was lost {count} times within {WINDOW_SECONDS:.0f} s: {text}")

    def silent(self, seconds: float) -> None:
        self._end(f"the broker has not answered for {seconds:.0f} s")

    def _count(self, moments: deque[float]) -> int:
        now = time.monotonic()
        moments.append(now)
        while moments[0] < now - WINDOW_SECONDS:
            moments.popleft()
        return len(moments)


def explained(error: Exception) -> str:
    text = str(error).rpartition(" tries: ")[2]
    remedy = next((hint for words, hint in _REMEDIES if words in text), "")
    return f"{text} ({remedy})" if remedy else text


class _Server(NotificationServer):  # type: ignore[misc]
    """oslo.messaging's server, which only logs errors and repeats what failed. This one reports each error of its
    thread, and when the thread last waited for a message."""

    def __init__(self, transport: object, targets: Sequence[Target], endpoint: object, pool: str | None) -> None:
        super().__init__(transport, targets, dispatcher.NotificationDispatcher([endpoint], None), None, False, pool)
        self.failed: Callable[[Exception], None] = lambda _: None
        self.polled = self._declared = time.monotonic()

    def _create_listener(self) -> object:
        listener = super()._create_listener()
        source = listener._poll_style_listener
        poll = source.poll

        def reporting(*, batch_size: int, batch_timeout: None) -> object:
            try:
                self._declare_again(source)
                return poll(timeout=POLL_SECONDS, batch_size=batch_size, batch_timeout=batch_timeout)
            except Exception as error:  # of whatever kind: the thread must go on, or the process must end
                self.failed(error)
                return []
            finally:
                self.polled = time.monotonic()

        source.poll = reporting
        return listener

    def _declare_again(self, source: Any) -> None:
        connection: Any = getattr(getattr(source, "conn", None), "connection", None)
        # Brokers other than RabbitMQ have no such queues.
        if time.monotonic() - self._declared < DECLARE_SECONDS or not hasattr(connection, "declare_consumer"):
            return
        channel = connection.channel
        try:
            for consumer in tuple(connection._consumers):
                connection.declare_consumer(consumer)
        finally:
            if connection.channel is not channel:  # it has connected again, and must subscribe to its queues again
                connection._new_tags = set(connection._consumers.values())
        self._declared = time.monotonic()


class Receiver:
    def __init__(self, config: cfg.ConfigOpts, endpoint: object, faults: BrokerFaults) -> None:
        """Raises Invalid for a wrong URL."""
        bounds.bound_compression()
        bounds.bound_properties()
        self._config = config
        self._endpoint = endpoint
        self._faults = faults
        self._server = self._new_server()
        self._listening = threading.Event()
        # A separate thread, because start() blocks until there is a broker and cannot be interrupted. Later it watches
        # the thread that waits for messages.
        self._thread = threading.Thread(target=self._start, name="listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Received messages are handled before, unless the broker does not answer."""
        self._faults.stopped.set()
        if self._listening.is_set():
            ending = threading.Thread(target=self._end_server, name="end-listening", daemon=True)
            ending.start()
            ending.join(STOP_SECONDS)
            if ending.is_alive():
                LOG.error("the connection to the broker has not ended within %g s", STOP_SECONDS)

    def _end_server(self) -> None:
        self._server.stop()
        self._server.wait()

    def _start(self) -> None:
        connection_filter = ConnectionLogFilter(self._faults.lost)
        logging.getLogger(BROKER_LOG).addFilter(connection_filter)
        for name in MESSAGE_LOGS:
            logging.getLogger(name).addFilter(MessageLogFilter())
        while not self._faults.stopped.is_set():
            try:
                self._server.start()
            except exceptions.MessagingException as error:
                connection_filter.connected()
                self._faults.refused(error)
                self._server = self._new_server()
                continue
            connection_filter.connected()
            LOG.info("listening")
            self._listening.set()
            self._watch(connection_filter)

    def _watch(self, connection_filter: ConnectionLogFilter) -> None:
        while not self._faults.stopped.wait(POLL_SECONDS):
            silent = time.monotonic() - max(self._server.polled, connection_filter.latest)
            if silent > HANGS_SECONDS:
                self._faults.silent(silent)
                return

    def _new_server(self) -> _Server:
        options = self._config.nova_listener
        try:
            transport = get_notification_transport(self._config, url=options.transport_url)
        except (exceptions.MessagingException, ValueError) as error:
            raise Invalid(
                "[nova_listener] transport_url",
                "(not shown)",
                f"a URL that oslo.messaging accepts ({type(error).__name__})",
            ) from None
        # Without a queue of its own, pinner would take the unversioned messages from their consumers.
        topics = [*options.topics, *(options.unversioned_topics if options.pool else ())]
        targets = [Target(topic=topic, exchange=options.exchange) for topic in dict.fromkeys(topics)]
        server = _Server(transport, targets, self._endpoint, options.pool or None)
        server.failed = self._faults.refused
        return server
