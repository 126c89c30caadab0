"""The files of a guest, through its QEMU guest agent.

The guest is not trusted: it may answer with anything, or not at all. Each answer is limited in size, and all answers of
one conversation in time. Source: QEMU Guest Agent Protocol Reference (guest-file-open and its neighbours).
"""

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pinner.model.errors import ApplyFailed, Busy, PinnerError

Ask = Callable[[str], str]
"""Gives the agent's answer to one command, both as JSON. Raises Gone, Busy, ApplyFailed."""

SECONDS = 5.0
"""A conversation takes milliseconds. No command but CLOSE begins after so many seconds."""
MAX_ANSWER = 1 << 20
"""Characters of an answer."""
MAX_FILE = 4096
"""Bytes of a file: those of sysfs have a page at most."""
ALLOWED, REFILL, AGAIN = 10.0, 0.05, 2.0
"""See Allowance."""
CLOSE = "guest-file-close"
"""The command that is always allowed: the agent writes what a file that stays open was given when the agent ends, maybe
after the undo."""
_MAX_HANDLE = 1 << 63
_MAX_ERROR = 200
"""Characters of a guest's words in an error."""


class Allowance:
    """The time that the agents of guests may take for their answers: ALLOWED seconds at once, and REFILL of the time in
    the long run. Others wait for it: a guest could answer each command at the last moment. Several threads may use it.

    A guest that has spent its time gets no more before it has AGAIN seconds, enough for whole changes: a rollback that
    is repeated at once could otherwise spend each moment of it on the beginning of a change.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, tuple[float, float]] = {}
        """The seconds that a guest has spent, and the time of that sum. Old sums have become 0, and are left out."""
        self._waiting: set[str] = set()
        """The guests that have spent their time, and must wait for AGAIN seconds."""
        self._lock = threading.Lock()

    def spend(self, guest: str, seconds: float) -> None:
        """Count an answer of the guest."""
        with self._lock:
            now = self._clock()
            self._spent = {each: (left, now) for each in (*self._spent, guest) if (left := self._left(each, now)) > 0}
            self._end_waits(now)
            self._spent[guest] = self._left(guest, now) + seconds, now
            if self._left(guest, now) > ALLOWED:
                self._waiting.add(guest)

    def is_spent(self, guest: str) -> bool:
        """Whether the guest has no time left now."""
        with self._lock:
            self._end_waits(self._clock())
            return guest in self._waiting

    def _end_waits(self, now: float) -> None:
        self._waiting = {each for each in self._waiting if self._left(each, now) > ALLOWED - AGAIN}

    def _left(self, guest: str, now: float) -> float:
        seconds, at = self._spent.get(guest, (0.0, now))
        return max(seconds - (now - at) * REFILL, 0.0)


class GuestAgent:
    """One conversation with the agent of a guest. Every method raises Gone, Busy and ApplyFailed."""

    def __init__(self, what: str, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        """``what`` names the subject in errors."""
        self._what = what
        self._ask = ask
        self._clock = clock
        self._end = clock() + SECONDS

    def call(self, command: str, **arguments: object) -> Any:
        """What the agent returns for the command: anything that JSON can say."""
        if self._clock() >= self._end and command != CLOSE:
            raise Busy(self._what, f"the guest's agent needs more than {SECONDS:g} s", overdue=False)
        asked = {"execute": command} | ({"arguments": arguments} if arguments else {})
        try:
            answer = self._ask(json.dumps(asked))
        except ApplyFailed as error:
            # The guest chooses most of this text.
            raise ApplyFailed(self._what, _printable(error.details["why"])) from None
        if len(answer) > MAX_ANSWER:
            raise self._wrong(command, f"{len(answer)} characters, and at most {MAX_ANSWER} are read")
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._wrong(command, f"{_printable(answer)}, which is no JSON that can be read") from None
        if not isinstance(found, dict) or "return" not in found:
            raise self._wrong(command, f"{_printable(answer)}, which returns nothing")
        return found["return"]

    def read(self, path: str) -> str:
        """The content of a file of the guest, without white space at its ends."""
        with self._file(path, "r") as handle:
            found = self.call("guest-file-read", handle=handle, count=MAX_FILE)
        encoded = found.get("buf-b64") if isinstance(found, dict) else None
        if not isinstance(encoded, str) or len(encoded) > 2 * MAX_FILE:
            raise self._wrong("guest-file-read", f"no content of at most {MAX_FILE} bytes for {path}")
        try:
            return base64.b64decode(encoded, validate=True).decode("ascii").strip()
        except (binascii.Error, ValueError):
            raise self._wrong("guest-file-read", f"no text for {path}") from None

    def write(self, path: str, content: str) -> None:
        """Write into a file that exists. The agent keeps the content until the flush, which has the kernel's error."""
        with self._file(path, "r+") as handle:
            encoded = base64.b64encode(content.encode("ascii")).decode("ascii")
            self.call("guest-file-write", handle=handle, **{"buf-b64": encoded})
            self.call("guest-file-flush", handle=handle)

    @contextmanager
    def _file(self, path: str, mode: str) -> Iterator[int]:
        handle = self.call("guest-file-open", path=path, mode=mode)
        if not isinstance(handle, int) or isinstance(handle, bool) or not 0 <= handle < _MAX_HANDLE:
            raise self._wrong("guest-file-open", f"{_printable(repr(handle))} in place of a handle")
        try:
            yield handle
        finally:
            with suppress(PinnerError):  # the error of the work counts, or the file was read
                self.call(CLOSE, handle=handle)

    def _wrong(self, command: str, answer: str) -> ApplyFailed:
        return ApplyFailed(self._what, f"the guest's agent answers {command} with {answer}")


def _printable(text: str) -> str:
    """The beginning of a text that a guest has chosen, without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text[:_MAX_ERROR])
