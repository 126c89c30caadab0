"""What could not be understood or delivered is put away, counted, and never tried again."""

import logging
import threading
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pydantic_core

LOG = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""Of the file; there is one more of them, the one before."""
MAX_LINE = 64 * 1024
"""Of one message."""


class Quarantine:
    """A file of JSON lines: when, why, and what came. May be used by several threads."""

    def __init__(self, file: Path) -> None:
        """Messages may hold secrets, so that only the owner can read the file. Raises OSError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        self._file = file
        self._lock = threading.Lock()
        self._lines = RotatingFileHandler(file, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8")
        self.count = 0
        """How many since the start."""

    def put(self, what: object, why: str) -> None:
        """Put something away. Never raises for what it is: it is shown as far as it can be."""
        shown = asdict(what) if is_dataclass(what) and not isinstance(what, type) else what
        line = _json({"at": datetime.now(UTC), "why": why, "what": shown})
        if len(line) > MAX_LINE:
            line = _json({"at": datetime.now(UTC), "why": why, "what": line[:MAX_LINE]})
        with self._lock:
            self.count += 1
            count = self.count
        self._lines.handle(logging.makeLogRecord({"msg": line}))
        LOG.warning("quarantined, %s since the start, see %s: %s", count, self._file, why)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def _json(value: object) -> str:
    text = pydantic_core.to_json(value, inf_nan_mode="strings", serialize_unknown=True, bytes_mode="base64")
    return text.decode()
