"""Nova's own samples of its versioned notifications, in the folder that PINNER_NOVA_SAMPLES names."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pinner.nova.notification import Message

FOLDER = os.environ.get("PINNER_NOVA_SAMPLES", "")
WHY_NOT = "PINNER_NOVA_SAMPLES does not name the folder of Nova's notification samples"
FILES = sorted(Path(FOLDER).glob("instance-*.json")) if FOLDER else []
needed = pytest.mark.skipif(not FILES, reason=WHY_NOT)
TIMESTAMP = "2026-11-21 10:00:00.123456"


def load(name: str) -> dict[str, Any]:
    """The sample of a name such as ``instance-create-end``."""
    return dict(json.loads((Path(FOLDER) / f"{name}.json").read_text()))


def now() -> str:
    """The current time as oslo.messaging writes it."""
    return str(datetime.now(UTC).replace(tzinfo=None))


def message(sample: dict[str, Any]) -> Message:
    """The sample as a message from the transport."""
    return Message(
        sample.get("publisher_id"), sample.get("event_type"), sample.get("payload"), {"request_id": "req-c"}, TIMESTAMP
    )
