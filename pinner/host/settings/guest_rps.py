"""Receive packet steering (networking/scaling.rst) inside guests, through files that their agents read and write (QEMU
Guest Agent Protocol Reference, guest-file-open). The guest is not trusted: answers are limited in size and time, and
checked."""

import base64
import binascii
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pinner.host.kernel import files
from pinner.host.settings.row import Access, Agents, HostRow
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid, PinnerError
from pinner.model.guest.guest import Guest
from pinner.model.kinds import GuestCpus
from pinner.model.settings.cards import GuestQueue, GuestRps

Ask = Callable[[str], str]

SECONDS = 5.0
"""A conversation takes milliseconds. No command but CLOSE begins later."""
MAX_ANSWER = 1 << 20
"""Characters."""
MAX_FILE = 4096
"""Bytes: a file of sysfs has a page at most."""
ALLOWED, REFILL, AGAIN = 10.0, 0.05, 2.0
"""See Allowance."""
CLOSE = "guest-file-close"
"""It is always allowed: when the agent ends, it writes the buffer of each open file, maybe after the undo."""
_MAX_HANDLE = 1 << 63
_MAX_ERROR = 200


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


class GuestAgent:
    """One conversation. Every method raises Gone, Busy and ApplyFailed."""

    def __init__(self, what: str, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._ask = ask
        self._clock = clock
        self._end = clock() + SECONDS

    def call(self, command: str, **arguments: object) -> Any:
        if self._clock() >= self._end and command != CLOSE:
            raise Busy(self._what, f"the guest's agent needs more than {SECONDS:g} s", overdue=False)
        request = {"execute": command} | ({"arguments": arguments} if arguments else {})
        try:
            answer = self._ask(json.dumps(request))
        except ApplyFailed as error:
            # The guest chooses most of this text.
            raise ApplyFailed(self._what, _printable(error.details["why"])) from None
        if len(answer) > MAX_ANSWER:
            raise self._wrong(command, f"{len(answer)} characters, and at most {MAX_ANSWER} are read")
        try:
            reply = json.loads(answer)
        except (ValueError, RecursionError):
            raise self._wrong(command, f"{_printable(answer)}, which is no JSON that can be read") from None
        if not isinstance(reply, dict) or "return" not in reply:
            raise self._wrong(command, f"{_printable(answer)}, which returns nothing")
        return reply["return"]

    def read(self, path: str) -> str:
        with self._file(path, "r") as handle:
            content = self.call("guest-file-read", handle=handle, count=MAX_FILE)
        encoded = content.get("buf-b64") if isinstance(content, dict) else None
        if not isinstance(encoded, str) or len(encoded) > 2 * MAX_FILE:
            raise self._wrong("guest-file-read", f"no content of at most {MAX_FILE} bytes for {path}")
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
    return "".join(character if character.isprintable() else "?" for character in text[:_MAX_ERROR])


MAX_CARDS = 16
MAX_QUEUES = 256
ALL_SECONDS = 15.0
"""After that a snapshot asks no further guest."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds for which a guest is not asked after its agent was too slow; doubled."""
_LONG_WAIT = 1.0
"""Seconds. libvirt knows at once that no agent runs: that delays no snapshot."""
_NET = "/sys/class/net"
_BOOT = "/proc/sys/kernel/random/boot_id"
_ONLINE = "/sys/devices/system/cpu/online"
_VIRTIO_NET = "virtio:d00000001v"
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MASK = re.compile(r"[0-9a-f,]{1,2400}")
_EXPECTED = "the UUID and the boot of a guest, the name and index of an interface, and the number of a queue"


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


@dataclass(slots=True)
class _Pause:
    until: float
    seconds: float


class GuestRpsReader:
    """A guest that does not answer in time, or slowly again and again, is not asked for a while."""

    def __init__(self, agents: Agents, clock: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._clock = clock
        self._allowance = Allowance(clock)
        self._pauses: dict[str, _Pause] = {}

    def read(self, guests: Iterable[Guest]) -> tuple[GuestRps, ...]:
        """Asks guests with several vCPUs and a card."""
        end = self._clock() + ALL_SECONDS
        chosen = [
            candidate
            for candidate in guests
            if candidate.state == "running" and not candidate.unread and len(candidate.vcpus) > 1 and candidate.taps
        ]
        paused = {candidate.uuid: self._pauses.get(candidate.uuid) for candidate in chosen}
        self._pauses = {uuid: pause for uuid, pause in paused.items() if pause}
        return tuple(self._one(guest, end) for guest in chosen)

    def _one(self, guest: Guest, end: float) -> GuestRps:
        pause, now = self._pauses.get(guest.uuid), self._clock()
        if now >= end:
            return GuestRps(guest.uuid, guest.name, unread="other guests' agents took too long")
        if pause and now < pause.until:
            why = f"its agent did not answer in time, or slowly; it is asked again in {pause.until - now:.0f} s"
            return GuestRps(guest.uuid, guest.name, unread=why)
        try:
            answer = _read(guest, _agent(self._agents, guest.uuid, f"guest {guest.name}"))
            late = False
        except PinnerError as error:
            late = isinstance(error, Busy) and self._clock() - now >= _LONG_WAIT
            answer = GuestRps(guest.uuid, guest.name, unread=str(error))
        # Every snapshot of the host waits for the answers of a guest, in time or not.
        self._allowance.spend(guest.uuid, self._clock() - now)
        if late or self._allowance.is_spent(guest.uuid):
            seconds = min(2 * pause.seconds, LONGEST_PAUSE) if pause else FIRST_PAUSE
            self._pauses[guest.uuid] = _Pause(self._clock() + seconds, seconds)
        elif not answer.unread:
            self._pauses.pop(guest.uuid, None)
        return answer


def vcpus_of(agents: Agents, target: Target) -> GuestCpus:
    """Raises Gone also where the guest has restarted."""
    agent, path = _queue(agents, target)
    return GuestCpus(_mask(agent, path, str(target)))


def set_vcpus(agents: Agents, target: Target, wanted: GuestCpus) -> None:
    """An empty set turns it off."""
    agent, path = _queue(agents, target)
    agent.write(path, f"{wanted.vcpus.mask()}\n")
    if (now := _mask(agent, path, str(target))) != wanted.vcpus:
        requested, says = (str(each) or "none" for each in (wanted.vcpus, now))
        raise ApplyFailed(str(target), f"asked for vCPUs {requested}, the guest says {says}", granted=says)


def _agent(agents: Agents, guest: str, what: str) -> GuestAgent:
    return GuestAgent(what, lambda command: agents.ask_guest_agent(guest, command))


def _read(guest: Guest, agent: GuestAgent) -> GuestRps:
    what = f"guest {guest.name}"
    boot = _matching(_UUID, agent.read(_BOOT), _BOOT, what)
    online = _online(agent, what, len(guest.vcpus))
    queues: list[GuestQueue] = []
    # Each card has a tap on the host: a guest that shows more cards could have any number of queues.
    for name in islice(_cards(guest, agent), len(guest.taps)):
        index = int(_matching(_NUMBER, agent.read(f"{_NET}/{name}/ifindex"), "ifindex", what))
        card_queues = tuple(_queues(agent, name, index, min(len(online), MAX_QUEUES), what))
        queues += card_queues if len(card_queues) < len(online) else ()
    return GuestRps(guest.uuid, guest.name, boot, online, tuple(queues))


def _online(agent: GuestAgent, what: str, most: int) -> CpuSet:
    text = agent.read(_ONLINE)
    try:
        online = CpuSet.parse(text)
    except Invalid:
        raise _strange(what, _ONLINE, text) from None
    if len(online) > most:
        raise _strange(what, _ONLINE, text)
    return online


def _cards(guest: Guest, agent: GuestAgent) -> Iterator[str]:
    macs = {tap.mac.lower() for tap in guest.taps}
    told = agent.call("guest-network-get-interfaces")
    named = [
        interface["name"]
        for interface in (told if isinstance(told, list) else ())
        if isinstance(interface, dict)
        and isinstance(interface.get("name"), str)
        and _NAME.fullmatch(interface["name"])
        and str(interface.get("hardware-address")).lower() in macs
    ]
    for name in sorted({*named})[:MAX_CARDS]:
        try:
            kind = agent.read(f"{_NET}/{name}/device/modalias")
        except ApplyFailed:
            continue  # it has no device: a bridge, bond or VLAN with the MAC address of the card
        if kind.startswith(_VIRTIO_NET):
            yield name


def _queues(agent: GuestAgent, name: str, index: int, most: int, what: str) -> Iterator[GuestQueue]:
    """The agent cannot list a folder, so the first error ends the queues."""
    for number in range(most):
        path = _path(name, number)
        try:
            vcpus = _mask(agent, path, what)
        except ApplyFailed:
            if number == 0:
                raise
            return
        yield GuestQueue(name, index, number, vcpus)


def _queue(agents: Agents, target: Target) -> tuple[GuestAgent, str]:
    guest, boot, interface, index = (*target.owner.split(" "), "", "", "", "")[:4]
    known = (_UUID, guest), (_UUID, boot), (_NAME, interface), (_NUMBER, index)
    if target.part is None or target.part < 0 or not all(rule.fullmatch(text) for rule, text in known):
        raise Invalid("guest_rps", str(target)[:80], _EXPECTED)
    agent = _agent(agents, guest, str(target))
    if agent.read(_BOOT) != boot or agent.read(f"{_NET}/{interface}/ifindex") != index:
        raise Gone(str(target))
    return agent, _path(interface, target.part)


def _path(interface: str, queue: int) -> str:
    return f"{_NET}/{interface}/queues/rx-{queue}/rps_cpus"


def _mask(agent: GuestAgent, path: str, what: str) -> CpuSet:
    text = agent.read(path)
    cpus = files.parse_mask(text) if _MASK.fullmatch(text) else None
    if cpus is None:
        raise _strange(what, path, text)
    return cpus


def _matching(rule: re.Pattern[str], text: str, path: str, what: str) -> str:
    if not rule.fullmatch(text):
        raise _strange(what, path, text)
    return text


def _strange(what: str, path: str, text: str) -> ApplyFailed:
    return ApplyFailed(what, f"the guest's agent says that {path} has {text[:80]!r}")


def _reached(access: Access, target: Target) -> Agents:
    if access.agents is None:
        raise ApplyFailed(str(target), "the agents of guests cannot be reached without libvirt")
    return access.agents


ROW: HostRow[GuestCpus] = HostRow(
    lambda access, target: vcpus_of(_reached(access, target), target),
    lambda access, target, state: set_vcpus(_reached(access, target), target, state),
    lambda facts: facts.ask_guests(facts.guests) if facts.ask_guests else None,
)
