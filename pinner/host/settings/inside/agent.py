"""Conversations with the agents of guests, through files that they read and write (QEMU Guest Agent Protocol Reference,
guest-file-open). A guest is not trusted: its answers are limited in size and time, and checked."""

import base64
import binascii
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from pinner.host.kernel import files
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Invalid, PinnerError

Ask = Callable[[str], str]


class Agents(Protocol):
    def ask_guest_agent(self, guest: str, command: str) -> str:
        """Command and answer are JSON. Raises Gone, Busy, ApplyFailed."""


SECONDS = 5.0
"""A conversation takes milliseconds. No command but CLOSE begins later."""
MAX_ANSWER = 1 << 20
"""Characters."""
MAX_FILE = 4096
"""Bytes: a file of sysfs has a page at most."""
ALLOWED, REFILL, AGAIN = 20.0, 0.1, 2.0
"""See Allowance."""
CLOSE = "guest-file-close"
"""It is always allowed: when the agent ends, it writes the buffer of each open file, maybe after the undo."""
NUMBER = re.compile(r"[0-9]{1,10}")
_MASK = re.compile(r"[0-9a-f,]{1,2400}")
_MAX_HANDLE = 1 << 63
_MAX_ERROR = 256
"""Characters: a refusal ends with the kernel's word, after the longest path."""
_ABSENT = "No such file or directory"
"""The agent sets no locale."""


class Allowance:
    """The time for the answers of a guest's agent: ALLOWED seconds at once, and REFILL of the time in the long run. A
    guest that has spent its time waits until it has AGAIN seconds, enough for whole changes: else a repeated rollback
    could spend each moment on the beginning of one. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: dict[str, tuple[float, float]] = {}
        """Seconds spent, and the time of that sum. A sum of 0 is left out."""
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def spend(self, guest: str, seconds: float) -> None:
        with self._lock:
            now = self._clock()
            self._spent = {name: (spent, now) for name in (*self._spent, guest) if (spent := self._left(name, now)) > 0}
            self._end_waits(now)
            self._spent[guest] = self._left(guest, now) + seconds, now
            if self._left(guest, now) > ALLOWED:
                self._waiting.add(guest)

    def is_spent(self, guest: str) -> bool:
        with self._lock:
            self._end_waits(self._clock())
            return guest in self._waiting

    def _end_waits(self, now: float) -> None:
        self._waiting = {name for name in self._waiting if self._left(name, now) > ALLOWED - AGAIN}

    def _left(self, guest: str, now: float) -> float:
        seconds, at = self._spent.get(guest, (0.0, now))
        return max(seconds - (now - at) * REFILL, 0.0)


class LimitedAgents:
    """Asks guests whose time is not spent: a run ends only when its last guest has answered. Threads may share it."""

    def __init__(self, agents: Agents, clock: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._clock = clock
        self._allowance = Allowance(clock)

    def ask_guest_agent(self, guest: str, command: str) -> str:
        """Raises Busy also where the guest has spent its time."""
        if self._allowance.is_spent(guest) and CLOSE not in command:
            raise Busy(f"guest {guest}", "its agent answers too slowly, and is not asked now", overdue=False)
        began = self._clock()
        try:
            return self._agents.ask_guest_agent(guest, command)
        finally:
            self._allowance.spend(guest, self._clock() - began)


class NoSuchFile(ApplyFailed):
    """The guest has no such file."""


class GuestAgent:
    """One conversation. Every method raises Gone, Busy and ApplyFailed."""

    def __init__(
        self, what: str, ask: Ask, clock: Callable[[], float] = time.monotonic, seconds: float = SECONDS
    ) -> None:
        self.what = what
        self._ask = ask
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    def call(self, command: str, **arguments: object) -> Any:
        if self._clock() >= self._end and command != CLOSE:
            raise Busy(self.what, f"the guest's agent needs more than {self._seconds:g} s", overdue=False)
        request = {"execute": command} | ({"arguments": arguments} if arguments else {})
        try:
            answer = self._ask(json.dumps(request))
        except ApplyFailed as error:
            why = printable(error.details["why"])  # the guest chooses most of this text
            raise (NoSuchFile if why.endswith(_ABSENT) else ApplyFailed)(self.what, why) from None
        if len(answer) > MAX_ANSWER:
            raise self._wrong(command, f"{len(answer)} characters, and at most {MAX_ANSWER} are read")
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._wrong(command, f"{printable(answer)}, which is no JSON that can be read") from None
        if not isinstance(reply, dict) or "return" not in reply:
            raise self._wrong(command, f"{printable(answer)}, which returns nothing")
        return reply["return"]

    def read(self, path: str, most: int = MAX_FILE) -> str:
        with self._file(path, "r") as handle:
            content = self.call("guest-file-read", handle=handle, count=most)
        encoded = content.get("buf-b64") if isinstance(content, dict) else None
        if not isinstance(encoded, str) or len(encoded) > 2 * most:
            raise self._wrong("guest-file-read", f"no content of at most {most} bytes for {path}")
        if content.get("eof") is False:
            raise self._wrong("guest-file-read", f"more than {most} bytes for {path}")
        try:
            return base64.b64decode(encoded, validate=True).decode("ascii").strip()
        except (binascii.Error, ValueError):
            raise self._wrong("guest-file-read", f"no text for {path}") from None

    def write(self, path: str, content: str) -> None:
        """The agent keeps the content until the flush, which has the kernel's error."""
        with self._file(path, "r+") as handle:
            encoded = base64.b64encode(content.encode("ascii")).decode("ascii")
            self.call("guest-file-write", handle=handle, **{"buf-b64": encoded})
            self.call("guest-file-flush", handle=handle)

    def has(self, path: str) -> bool:
        with suppress(NoSuchFile), self._file(path, "r"):
            return True
        return False

    def matching(self, rule: re.Pattern[str], path: str) -> str:
        text = self.read(path)
        if not rule.fullmatch(text):
            raise self.strange(path, text)
        return text

    def number(self, path: str) -> int:
        return int(self.matching(NUMBER, path))

    def cpus(self, path: str) -> CpuSet:
        """Of a list, such as 0-3, that is never empty."""
        text, cpus = self.read(path), CpuSet()
        with suppress(Invalid):
            cpus = CpuSet.parse(text)
        if not cpus:
            raise self.strange(path, text)
        return cpus

    def mask(self, path: str) -> CpuSet:
        """Of a mask, such as 0000000f."""
        text = self.read(path)
        cpus = files.parse_mask(text) if _MASK.fullmatch(text) else None
        if cpus is None:
            raise self.strange(path, text)
        return cpus

    @contextmanager
    def _file(self, path: str, mode: str) -> Iterator[int]:
        handle = self.call("guest-file-open", path=path, mode=mode)
        if not isinstance(handle, int) or isinstance(handle, bool) or not 0 <= handle < _MAX_HANDLE:
            raise self._wrong("guest-file-open", f"{printable(repr(handle))} in place of a handle")
        try:
            yield handle
        finally:
            with suppress(PinnerError):  # the error of the work counts, or the file was read
                self.call(CLOSE, handle=handle)

    def strange(self, path: str, text: str) -> ApplyFailed:
        return ApplyFailed(self.what, f"the guest's agent says that {path} has {text[:80]!r}")

    def _wrong(self, command: str, answer: str) -> ApplyFailed:
        return ApplyFailed(self.what, f"the guest's agent answers {command} with {answer}")


def printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text[:_MAX_ERROR])
