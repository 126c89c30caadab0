"""`pinner-nova-listener`: hears Nova's versioned notifications and tells pinner, over REST, what happened to guests.

It may run anywhere; one is enough for a cloud. What it hears is a hint that makes pinner look at once and says who
asked for it: the hosts place their guests without it too.
"""

import argparse
import logging
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from oslo_config import cfg
from oslo_log import log
from oslo_service import backend  # type: ignore[import-untyped]

backend.init_backend(backend.BackendType.THREADING)  # before what follows is imported, which looks at it

import oslo_messaging  # type: ignore[import-untyped] # noqa: E402

from pinner import __version__, wiring  # noqa: E402
from pinner.model.audit import Caller  # noqa: E402
from pinner.model.errors import Invalid, PinnerError  # noqa: E402
from pinner.model.event import GuestEventOutcome  # noqa: E402
from pinner.nova.delivery import Deliveries  # noqa: E402
from pinner.nova.notification import Message, Notified, read  # noqa: E402
from pinner.nova.quarantine import Quarantine  # noqa: E402
from pinner.server.signals import asked_to_end  # noqa: E402
from pinner.service.remote import RemoteService  # noqa: E402

LOG = logging.getLogger(__name__)

NOBODY = Caller("", "", "")
"""The server knows its caller by the token."""
ANSWER_TIMEOUT = 30.0
"""Seconds; a release of a large guest takes one or two."""
BROKER_LOG = "oslo.messaging._drivers.impl_rabbit"


class Endpoint:
    """What oslo.messaging calls, with every notification of Nova's of priority info. It never raises for a message:
    each is acknowledged, and what is of no use is put away."""

    def __init__(self, deliveries: Deliveries, quarantine: Quarantine) -> None:
        self._deliveries = deliveries
        self._quarantine = quarantine

    def info(
        self, ctxt: object, publisher_id: object, event_type: object, payload: object, metadata: Mapping[str, object]
    ) -> None:
        """One notification."""
        message = Message(publisher_id, event_type, payload, ctxt, metadata.get("timestamp"))
        try:
            notified = read(message)
        except Invalid as error:
            self._quarantine.put(message, str(error))
            return
        if notified:
            self._deliveries.add(notified)


class Sender:
    """Tells a host's pinner server."""

    def __init__(self, server: str, token: str | None) -> None:
        """``server`` is a URL; ``{host}`` in it stands for the host's name."""
        self._server = server
        self._pinner = lru_cache(256)(lambda url: RemoteService(url, token, ANSWER_TIMEOUT))

    def send(self, notified: Notified) -> GuestEventOutcome:
        """Raises PinnerError."""
        event = notified.event
        if notified.destination:
            # What it lacks cannot be carried there; where it does not tell, all is given back.
            with suppress(PinnerError):
                there = self._of(notified.destination).observe(notified.destination, 0.0)
                event = replace(event, cpus=there.topology.online)
        return self._of(notified.host).guest_event(notified.host, event, NOBODY)

    def _of(self, host: str) -> RemoteService:
        return self._pinner(self._server.replace("{host}", host))


class OncePerChange(logging.Filter):
    """Of the broker's connection only what changes is logged: gone, and back."""

    def __init__(self) -> None:
        super().__init__()
        self._down = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is one to be logged."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            first, self._down = not self._down, True
            return first
        if "econnected" in text:
            self._down = False
        return True

    def connected(self) -> None:
        """The broker answers for the first time."""
        self._down = False


def main(argv: Sequence[str] | None = None) -> int:
    """Listen until SIGINT or SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="pinner-nova-listener", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pinner {__version__}")
    parser.add_argument(
        "--config-file", metavar="FILE", type=Path, action="append", help="configuration; see [nova_listener] in it"
    )
    arguments = parser.parse_args(argv)
    try:
        listen(wiring.configuration(arguments.config_file, cfg.CONF))
    except PinnerError as error:
        sys.stderr.write(f"pinner-nova-listener: error: {error}\n")
        return 2 if isinstance(error, Invalid) else 1
    return 0


def listen(config: cfg.ConfigOpts) -> None:
    """Until SIGINT or SIGTERM. Raises Invalid where the configuration is not enough."""
    log.setup(config, "pinner")
    options = config.nova_listener
    if not options.transport_url:
        raise Invalid("[nova_listener] transport_url", "", "the broker's URL, as Nova's [DEFAULT] transport_url")
    sender = Sender(options.server, _token(options.token_file))
    quarantine = _quarantine(wiring.state_dir(config) / "nova-listener" / "quarantine.jsonl")
    deliveries = Deliveries(sender.send, quarantine.put)
    asked = asked_to_end()
    deliveries.start()
    server = _server(config, Endpoint(deliveries, quarantine))
    listening = threading.Event()
    # Without a broker this waits for one, and cannot be told to end.
    threading.Thread(target=_start, args=(server, listening), name="listen", daemon=True).start()
    select.select([asked], [], [])
    if listening.is_set():
        server.stop()
        server.wait()
    deliveries.close()
    quarantine.close()
    LOG.info("ended; %s messages were quarantined", quarantine.count)


def _quarantine(file: Path) -> Quarantine:
    try:
        return Quarantine(file)
    except OSError as error:
        raise Invalid("[agent] state_dir", str(file), f"a place that can be written ({error})") from None


def _token(file: str | None) -> str | None:
    if not file:
        return None
    try:
        return Path(file).read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid("[nova_listener] token_file", file, f"a file that can be read ({error})") from None


def _server(config: cfg.ConfigOpts, endpoint: Endpoint) -> oslo_messaging.notify.listener.NotificationServer:
    options = config.nova_listener
    try:
        transport = oslo_messaging.get_notification_transport(config, url=options.transport_url)
    except (oslo_messaging.exceptions.MessagingException, ValueError) as error:
        raise Invalid(
            "[nova_listener] transport_url", "(not shown)", f"a URL that oslo.messaging takes ({type(error).__name__})"
        ) from None
    targets = [oslo_messaging.Target(topic=topic, exchange=options.exchange) for topic in options.topics]
    return oslo_messaging.get_notification_listener(transport, targets, [endpoint], pool=options.pool or None)


def _start(server: oslo_messaging.notify.listener.NotificationServer, listening: threading.Event) -> None:
    once = OncePerChange()
    logging.getLogger(BROKER_LOG).addFilter(once)
    server.start()
    once.connected()
    LOG.info("listening")
    listening.set()
