import json
import logging
import threading
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pydantic_core

from pinner.render import visible

LOG = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""Bytes of the file, and of one older file that is kept."""
MAX_LINE = 64 * 1024
"""Characters of one message."""
MAX_REASON = 1000
"""Characters of a reason, which may quote the message."""


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()


class Quarantine:
    """JSON lines, each with the time, the reason and the message. Several threads may use it."""

    def __init__(self, file: Path) -> None:
        """Only the owner can read the files: messages may contain secrets. Raises OSError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self._lock = threading.Lock()
        self._lines = _PrivateFile(file, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8")
        self.count = 0

    def put(self, message: object, reason: str) -> None:
        """A part of the message that JSON cannot express is written as text."""
        reason = reason[:MAX_REASON]
        line = _json({"at": datetime.now(UTC), "why": reason, "message": message})
        if len(line) > MAX_LINE:
            line = _json({"at": datetime.now(UTC), "why": reason, "message": line[:MAX_LINE]})
        with self._lock:
            self.count += 1
            count = self.count
        self._lines.handle(logging.makeLogRecord({"msg": line}))
        LOG.warning("message quarantined, %s since the start, see %s: %s", count, self._file, visible(reason))

    def close(self) -> None:
        self._lines.close()


def _json(value: dict[str, object]) -> str:
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="strings", serialize_unknown=True, bytes_mode="base64")
    except ValueError:  # JSON may contain half of a surrogate pair (RFC 8259, section 8.2), which UTF-8 cannot express
        return json.dumps({name: _ascii(part) for name, part in value.items()})
    return text.decode()


def _ascii(value: object) -> str:
    try:
        return ascii(value)
    except (RecursionError, ValueError):
        return f"nested too deeply, or a number is too long to be written, as {type(value).__name__}"
