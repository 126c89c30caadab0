"""`pinner-nova-listener`: receives Nova's versioned notifications and sends the events of guests to pinner, over REST.

It may run on any machine, and one is enough for a cloud. An event makes pinner check the host at once and names the
user who caused it. The hosts also place their guests without the listener."""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log
from oslo_service import backend  # type: ignore[import-untyped]

backend.init_backend(backend.BackendType.THREADING)  # must precede the import of oslo_messaging, which uses the backend

from pinner import __version__, wiring  # noqa: E402
from pinner.model.errors import Invalid, PinnerError  # noqa: E402
from pinner.nova.broker import bounds  # noqa: E402
from pinner.nova.broker.broker import BrokerFaults, Receiver  # noqa: E402
from pinner.nova.broker.notification import Formats, Message, parse  # noqa: E402
from pinner.nova.broker.quarantine import Quarantine  # noqa: E402
from pinner.nova.delivery.delivery import DeliveryQueue  # noqa: E402
from pinner.nova.delivery.sender import Sender  # noqa: E402
from pinner.server.supervisor import Supervisor  # noqa: E402

LOG = logging.getLogger(__name__)


class Endpoint:
    """oslo.messaging calls it with each notification of priority info. Raises nothing: invalid ones are quarantined."""

    def __init__(self, queue: DeliveryQueue, quarantine: Quarantine) -> None:
        self._queue = queue
        self._quarantine = quarantine
        self._formats = Formats()

    def info(
        self, ctxt: object, publisher_id: object, event_type: object, payload: object, metadata: Mapping[str, object]
    ) -> None:
        message = Message(publisher_id, event_type, payload, ctxt, metadata.get("timestamp"))
        try:
            event = None if self._formats.is_unversioned(publisher_id, event_type, payload) else parse(message)
        except Invalid as error:
            self._quarantine.put(message, str(error))
            return
        except (RecursionError, ValueError) as error:  # a value that is nested too deeply, or too long a number
            self._quarantine.put(message, f"a value cannot be shown: {error}")
            return
        if event:
            self._queue.add(event)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pinner-nova-listener", description=__doc__)
    parser.add_argument("--version", action="version", version=f"pinner {__version__}")
    parser.add_argument(
        "--config-file",
        metavar="FILE",
        type=Path,
        action="append",
        help="configuration file with the section [nova_listener]",
    )
    arguments = parser.parse_args(argv)
    try:
        listen(wiring.configuration(arguments.config_file, cfg.CONF))
    except PinnerError as error:
        sys.stderr.write(f"pinner-nova-listener: error: {error}\n")
        return 2 if isinstance(error, Invalid) else 1
    return 0


def listen(config: cfg.ConfigOpts) -> None:
    """Returns after SIGINT or SIGTERM. Raises Invalid for a wrong configuration."""
    log.setup(config, "pinner")
    options = config.nova_listener
    if not options.transport_url:
        raise Invalid(
            "[nova_listener] transport_url", "", "the message broker's URL, as in Nova's [DEFAULT] transport_url"
        )
    if not any(options.topics):
        raise Invalid("[nova_listener] topics", "", "one of Nova's versioned_notifications_topics, or more")
    sender = Sender(options.server, options.token_file)
    quarantine = _quarantine(wiring.state_dir(config) / "nova-listener" / "quarantine.jsonl")
    bounds.bound_values(quarantine.put)
    queue = DeliveryQueue(sender.send, quarantine.put)
    supervisor = Supervisor()
    receiver = Receiver(config, Endpoint(queue, quarantine), BrokerFaults(supervisor.fail))
    queue.start()
    receiver.start()
    try:
        supervisor.wait(queue.heartbeats)
        receiver.stop()
    finally:
        queue.close()
        quarantine.close()
    LOG.info("ended; %s messages were quarantined", quarantine.count)


def _quarantine(file: Path) -> Quarantine:
    try:
        return Quarantine(file)
    except OSError as error:
        raise Invalid("[agent] state_dir", str(file), f"a writable folder ({error})") from None
