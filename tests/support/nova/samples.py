"""Samples of Nova's versioned notifications about one instance.

pinner's own samples are in tests/data. The folder that PINNER_NOVA_SAMPLES names has Nova's own samples.
"""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pinner.model.guest.guest import NovaIdentity
from pinner.nova.broker.notification import Message

TIMESTAMP = "2026-11-21 10:00:00.123456"
KINDS = {
    "create-end": "started",
    "reboot-end": "started",
    "power_on-end": "started",
    "resize_finish-end": "started",
    "resize_revert-end": "started",
    "rebuild-end": "started",
    "rescue-end": "started",
    "unrescue-end": "started",
    "unshelve-end": "started",
    "restore-end": "started",
    "resume-end": "started",
    "unpause-end": "started",
    "live_migration_post_dest-end": "started",
    "live_migration_rollback-end": "started",
    "live_migration_pre-start": "leaving",
    "live_migration_post-end": "gone",
    "delete-end": "gone",
}
"""Sample name to event kind. The parser returns None for all other samples."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a folder, and the values in them."""

    name: str
    folder: Path
    guest: str
    host: str
    destination: str
    """The host that the live migrations lead to."""
    request: str
    """The request id of the create notifications."""
    nova: NovaIdentity

    def __str__(self) -> str:
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """Names such as ``create-end``."""
        files = sorted(self.folder.glob("instance-*.json"))
        return tuple(file.stem.removeprefix("instance-") for file in files)

    @property
    def events(self) -> tuple[str, ...]:
        """The names of the samples that the parser makes an event of."""
        return tuple(name for name in self.names if name in KINDS)

    def load(self, name: str) -> dict[str, Any]:
        """The sample of a name such as ``create-end``."""
        return dict(json.loads((self.folder / f"instance-{name}.json").read_text()))


OWN = Samples(
    "own",
    Path(__file__).parents[2] / "data/nova-notifications",
    guest="5d0a4c1e-93b7-4f26-8a1d-0c7be2f64913",
    host="rack1-node3",
    destination="rack2-node7",
    request="req-0b69431c-3583-5fa4-a917-07b9feb00091",
    nova=NovaIdentity(
        "edge-router-1",
        "8c1f0e6b2d5a49f7b3a4d1e07c96f258",
        "b72e95d140fc4a6e8f3b6d2a17c05e94",
        "nfv.medium",
        {"hw:numa_nodes": "1", "hw_rng:allowed": "true"},
        "8e4b1f60-2c9d-4a75-b3e8-d6f01a7c5923",
        has_specs=True,
    ),
)
NOVA = Samples(
    "nova",
    Path(os.environ.get("PINNER_NOVA_SAMPLES", "")).resolve(),
    guest="178b0921-8f85-4257-88b6-2e743b5a975c",
    host="compute",
    destination="host2",
    request="req-5b6c791d-5709-4f36-8fbe-c3e02869e35d",
    nova=NovaIdentity(
        "some-server",
        "6f70656e737461636b20342065766572",
        "fake",
        "test_flavor",
        {"hw:watchdog_action": "disabled"},
        "a22d5517-147c-4147-a0d1-e698df5cd4e3",
        has_specs=True,
    ),
)
SETS = (OWN, NOVA) if os.environ.get("PINNER_NOVA_SAMPLES") else (OWN,)
"""The samples that the tests use."""


def now() -> str:
    """The current time as oslo.messaging writes it."""
    return str(datetime.now(UTC).replace(tzinfo=None))


def message(sample: dict[str, Any]) -> Message:
    """The sample as a message from the transport."""
    return Message(
        sample.get("publisher_id"), sample.get("event_type"), sample.get("payload"), {"request_id": "req-c"}, TIMESTAMP
    )
