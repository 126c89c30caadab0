"""Reads settings inside guests for a snapshot."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeVar

from pinner.host.settings.inside.agent import SECONDS, Agents, Allowance, GuestAgent, NoSuchFile, printable
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, PinnerError
from pinner.model.guest.guest import Guest
from pinner.model.settings.inside import GuestSettings

MAX_CARDS = 16
MAX_QUEUES = 256
ALL_SECONDS = 15.0
"""After that a snapshot asks no further guest."""
SLOW = 0.25
"""Seconds of a conversation. Guests that need more have one allowance together."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds for which a guest is not asked after its agent was too slow; doubled."""
NET = "/sys/class/net"
NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,15}")
_SLOW_ONES, _NAMED = "slow guests", 3
_LONG_WAIT = 1.0
"""Seconds. libvirt knows at once that no agent runs: that delays no snapshot."""
BOOT = "/proc/sys/kernel/random/boot_id"
_ONLINE = "/sys/devices/system/cpu/online"
_VIRTIO_NET = "virtio:d00000001v"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class Card:
    """A virtio card, as the guest names it."""

    interface: str
    index: int
    """ifindex."""


@dataclass(frozen=True)
class Inside:
    """One guest during a snapshot. What several settings need is read once."""

    guest: Guest
    agent: GuestAgent
    boot: str

    @cached_property
    def online(self) -> CpuSet:
        """At most as many vCPUs as libvirt gave to the guest."""
        online = self.agent.cpus(_ONLINE)
        if len(online) > len(self.guest.vcpus):
            raise self.agent.strange(_ONLINE, str(online))
        return online

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """Each card has a tap on the host: a guest that shows more cards could have any number of queues."""
        return tuple(
            Card(name, self.agent.number(f"{NET}/{name}/ifindex"))
            for name in islice(self._virtio_cards(), len(self.guest.taps))
        )

    @cached_property
    def crowded_cards(self) -> tuple[Card, ...]:
        """Those with fewer receive queues than the guest has vCPUs."""
        last = len(self.online) - 1
        return tuple(
            card for card in self.cards if not self.agent.has(f"{queue_folder(card.interface, last)}/rps_cpus")
        )

    def _virtio_cards(self) -> Iterator[str]:
        macs = {tap.mac.lower() for tap in self.guest.taps}
        for name in sorted({name for name, mac in interfaces_of(self.agent) if mac in macs})[:MAX_CARDS]:
            try:
                kind = self.agent.read(f"{NET}/{name}/device/modalias")
            except NoSuchFile:
                continue  # it has no device: a bridge, bond or VLAN with the MAC address of the card
            if kind.startswith(_VIRTIO_NET):
                yield name


def interfaces_of(agent: GuestAgent) -> Iterator[tuple[str, str]]:
    """Names, and MAC addresses."""
    interfaces = agent.call("guest-network-get-interfaces")
    for each in interfaces if isinstance(interfaces, list) else ():
        if isinstance(each, dict) and isinstance(name := each.get("name"), str) and NAME.fullmatch(name):
            yield name, str(each.get("hardware-address")).lower()


def queues_of(inside: Inside, read: Callable[[Card, int], Q]) -> tuple[Q, ...]:
    """Receive queues of cards that have fewer than the guest has vCPUs."""
    most = min(len(inside.online) - 1, MAX_QUEUES)
    return tuple(queue for card in inside.crowded_cards for queue in _queues(card, most, read))


def queue_folder(interface: str, queue: int) -> str:
    return f"{NET}/{interface}/queues/rx-{queue}"


def _queues(card: Card, most: int, read: Callable[[Card, int], Q]) -> Iterator[Q]:
    """The agent cannot list a folder, so the first absent one ends the queues."""
    for number in range(most):
        try:
            queue = read(card, number)
        except NoSuchFile:
            if number == 0:
                raise
            return
        yield queue


@dataclass(frozen=True, slots=True)
class Question:
    """What a kind of setting asks a guest."""

    value: type[GuestSettings]
    read: Callable[[Inside], GuestSettings]
    fewest_vcpus: int = 2


@dataclass(slots=True)
class _Pause:
    until: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Asked:
    """A guest's last conversation; both times in seconds."""

    name: str
    at: float
    seconds: float


class InsideReader:
    """A guest that does not answer in time, or slowly again and again, is not asked for a while. The guest whose last
    conversation is the oldest comes first. Threads may share it."""

    def __init__(self, agents: Agents, clock: Callable[[], float] = time.monotonic) -> None:
        self._agents = agents
        self._clock = clock
        self._allowance = Allowance(clock)
        self._pauses: dict[str, _Pause] = {}
        self._asked: dict[str, _Asked] = {}

    def read(
        self, guests: Iterable[Guest], questions: Mapping[str, Question], among: Collection[str] | None = None
    ) -> dict[str, tuple[GuestSettings, ...]]:
        """Asks guests with a card; of all ``guests`` only those ``among`` these UUIDs (None: all)."""
        end = self._clock() + ALL_SECONDS
        chosen = [guest for guest in guests if guest.state == "running" and not guest.unread and guest.taps]
        paused = {guest.uuid: self._pauses.get(guest.uuid) for guest in chosen}
        self._pauses = {uuid: pause for uuid, pause in paused.items() if pause}
        asked = {guest.uuid: self._asked.get(guest.uuid, _Asked(guest.name, -math.inf, 0)) for guest in chosen}
        self._asked = asked
        chosen = [guest for guest in chosen if among is None or guest.uuid in among]
        in_turn = sorted(chosen, key=lambda guest: asked[guest.uuid].at)
        told = {guest.uuid: self._ask(guest, _for(guest, questions), end) for guest in in_turn}
        answers = [told[guest.uuid] for guest in chosen]
        return {kind: tuple(answer[kind] for answer in answers if kind in answer) for kind in questions}

    def _ask(self, guest: Guest, questions: Mapping[str, Question], end: float) -> dict[str, GuestSettings]:
        now = self._clock()
        if not questions:
            return {}
        if why := self._why_not(guest, end):
            return {kind: _unread(question, guest, why) for kind, question in questions.items()}
        most = SLOW if self._allowance.is_spent(_SLOW_ONES) else SECONDS
        agent = agent_of(self._agents, guest.uuid, f"guest {guest.name}", self._clock, most)
        answers, is_busy = _answers(guest, agent, questions)
        seconds = self._clock() - now
        late = is_busy and seconds >= _LONG_WAIT
        self._asked[guest.uuid] = _Asked(guest.name, now, seconds)
        # Every snapshot of the host waits for the answers of a guest, in time or not.
        self._allowance.spend(guest.uuid, seconds)
        if seconds > SLOW:
            self._allowance.spend(_SLOW_ONES, seconds)
        if late or self._allowance.is_spent(guest.uuid):
            pause = self._pauses.get(guest.uuid)
            wait = min(2 * pause.seconds, LONGEST_PAUSE) if pause else FIRST_PAUSE
            self._pauses[guest.uuid] = _Pause(self._clock() + wait, wait)
        elif not any(answer.unread for answer in answers.values()):
            self._pauses.pop(guest.uuid, None)
        return answers

    def _why_not(self, guest: Guest, end: float) -> str:
        pause, now = self._pauses.get(guest.uuid), self._clock()
        if now >= end:
            return f"the agents of {self._slow_ones() or 'other guests'} took too long"
        if pause and now < pause.until:
            return f"its agent did not answer in time, or slowly; it is asked again in {pause.until - now:.0f} s"
        asked = self._asked.get(guest.uuid)
        if asked and asked.seconds > SLOW and self._allowance.is_spent(_SLOW_ONES):
            return f"the agents of {self._slow_ones()} answer slowly, and are not asked now"
        return ""

    def _slow_ones(self) -> str:
        names = sorted(asked.name for asked in tuple(self._asked.values()) if asked.seconds > SLOW)
        return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _for(guest: Guest, questions: Mapping[str, Question]) -> dict[str, Question]:
    return {kind: each for kind, each in questions.items() if len(guest.vcpus) >= each.fewest_vcpus}


def _answers(
    guest: Guest, agent: GuestAgent, questions: Mapping[str, Question]
) -> tuple[dict[str, GuestSettings], bool]:
    """With whether the agent did not answer in time: then it is asked no further question."""
    try:
        inside = Inside(guest, agent, _boot(agent))
    except PinnerError as error:
        return {kind: _unread(each, guest, str(error)) for kind, each in questions.items()}, isinstance(error, Busy)
    answers: dict[str, GuestSettings] = {}
    why = ""
    for kind, question in questions.items():
        try:
            answers[kind] = _unread(question, guest, why) if why else question.read(inside)
        except PinnerError as error:
            answers[kind] = _unread(question, guest, str(error))
            why = str(error) if isinstance(error, Busy) else ""
    return answers, bool(why)


def _boot(agent: GuestAgent) -> str:
    try:
        return agent.matching(UUID, BOOT)
    except ApplyFailed:
        if not (name := _windows(agent)):
            raise
    raise ApplyFailed(agent.what, f"it runs {name}, whose kernel has no such settings")


def _windows(agent: GuestAgent) -> str:
    """Its name; empty: the guest runs another system."""
    try:
        system = agent.call("guest-get-osinfo")
    except ApplyFailed:
        return ""
    is_windows = isinstance(system, dict) and system.get("id") == "mswindows"
    return printable(str(system.get("pretty-name") or "Windows")) if is_windows else ""


def _unread(question: Question, guest: Guest, why: str) -> GuestSettings:
    return question.value(guest.uuid, guest.name, unread=why)


def agent_of(
    agents: Agents | None,
    guest: str,
    what: str,
    clock: Callable[[], float] = time.monotonic,
    seconds: float = SECONDS,
) -> GuestAgent:
    if agents is None:
        raise ApplyFailed(what, "the agents of guests cannot be reached without libvirt")
    return GuestAgent(what, lambda command: agents.ask_guest_agent(guest, command), clock, seconds)
