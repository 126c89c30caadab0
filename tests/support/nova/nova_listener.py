"""`pinner-nova-listener` as a process, and notifications that are sent to it through a real broker."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kombu
from support.nova.samples import TIMESTAMP
from support.server import warm

LISTENER = "import sys; from pinner.nova.listener import main; sys.exit(main())"
TOPIC = "versioned_notifications.info"
QUEUE = "pinner"
EXCHANGE = kombu.Exchange("nova", type="topic", durable=False)


class Listener:
    """The listener's process and its files, which are below ``folder``."""

    def __init__(self, process: warm.Program, folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def log(self) -> str:
        return (self._folder / "listener.log").read_text()

    def wait_for(self, pattern: str, seconds: float = 60.0) -> None:
        """Wait until the log matches a regular expression."""
        until(lambda: re.search(pattern, self.log), seconds, lambda: self.log)

    def quarantined(self) -> list[dict[str, Any]]:
        file = self._folder / "state/nova-listener/quarantine.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def listening(folder: Path, url: str, server: str, extra: str = "", program: str = LISTENER) -> Iterator[Listener]:
    """A listener that receives from the broker at ``url`` and sends to the pinner at ``server``."""
    folder.mkdir(exist_ok=True)
    config = folder / "listener.conf"
    config.write_text(
        f"[agent]\nstate_dir = {folder}/state\n[nova_listener]\ntransport_url = {url}\nserver = {server}\n{extra}\n"
    )
    process = warm.start("--config-file", config, output=folder / "listener.log", code=program)
    try:
        yield Listener(process, folder)
    finally:
        process.terminate()
        process.wait(60)


def publish(
    url: str, sample: dict[str, Any] | bytes, *, topic: str = TOPIC, exchange: kombu.Exchange = EXCHANGE
) -> None:
    """Send a notification as oslo.messaging's messagingv2 driver does; bytes are sent as they are."""
    body = sample
    if isinstance(sample, dict):
        message = {"message_id": "m", "timestamp": TIMESTAMP, "_unique_id": str(time.time_ns()), **sample}
        body = json.dumps({"oslo.version": "2.0", "oslo.message": json.dumps(message)}).encode()
    with _connection(url) as connection:
        producer = connection.Producer(exchange=exchange, routing_key=topic)
        producer.publish(body, content_type="application/json", content_encoding="utf-8")


@contextmanager
def another_queue(url: str) -> Iterator[Callable[[], int]]:
    """A queue of another consumer of the same topic; the function returns the number of its messages."""
    with _connection(url) as connection:
        queue = kombu.Queue(TOPIC, EXCHANGE, TOPIC, durable=False)(connection)
        queue.declare()
        yield lambda: queue.queue_declare(passive=True).message_count
        queue.delete()


def waiting(url: str) -> int:
    """The number of messages in the listener's queue."""
    with _connection(url) as connection:
        return int(kombu.Queue(QUEUE)(connection).queue_declare(passive=True).message_count)


def until(condition: Callable[[], object], seconds: float = 5.0, why: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def _connection(url: str) -> kombu.Connection:
    return kombu.Connection(url.replace("rabbit://", "amqp://").rstrip("/") + "//")


@contextmanager
def connection(rabbit):
    """A channel of the broker's owner."""
    with kombu.Connection(rabbit.url.replace("rabbit://", "amqp://") + "/") as made:
        yield made.default_channel
