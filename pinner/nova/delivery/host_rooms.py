"""The room of hosts as their pinner servers tell it, for Nova's scheduler: it needs only the standard library and
Python 3.8, and trusts no answer. A scheduling waits only for hosts never asked, at most ``timeout``."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import logging
import queue
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pinner.nova.delivery.plain_http import get as fetch
from pinner.nova.weigher_conf import Settings, SettingsError

LOG = logging.getLogger(__name__)

THREADS = (8, 4)
"""Hosts asked at once: those that do not answer, and those that do. More would slow the scheduler's threads."""
ANSWER_SECONDS = 5.0
"""How long a thread waits for one answer; no scheduling does."""
MOST_VCPUS = 8192
"""A larger number of free vCPUs is wrong."""
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_NODES = 1024
_DIGITS = 20


@dataclasses.dataclass(frozen=True)
class StrategyRoom:
    within_node: bool
    free: int
    nodes: tuple[tuple[int, int | None], ...]
    """Each node's free vCPUs and memory in KiB (None: not known)."""


@dataclasses.dataclass(frozen=True)
class Room:
    strategy: str
    """The strategy for flavors that ask for none, or for an unknown one."""
    strategies: dict[str, StrategyRoom]


@dataclasses.dataclass(frozen=True)
class Need:
    vcpus: int
    memory_kib: int
    strategy: str = ""
    """The flavor's strategy; empty: none."""
    cells: tuple[int, ...] = ()
    """The vCPUs of each NUMA node; empty: it has none."""


def fits(room: Room, need: Need, claimed: int = 0) -> bool:
    """``claimed``: the vCPUs taken since the room was read."""
    strategy = room.strategies.get(need.strategy) or room.strategies.get(room.strategy)
    if strategy is None:
        return False
    nodes = sorted(strategy.nodes, key=lambda node: -node[0])
    if nodes:
        nodes[0] = (nodes[0][0] - claimed, nodes[0][1])
        nodes.sort(key=lambda node: -node[0])
    if need.cells:
        cells = sorted(need.cells, reverse=True)
        return len(cells) <= len(nodes) and all(cell <= node[0] for cell, node in zip(cells, nodes))  # noqa: B905
    if strategy.within_node:
        return any(free >= need.vcpus and (memory is None or memory >= need.memory_kib) for free, memory in nodes)
    return strategy.free - claimed >= need.vcpus


def parse_room(body: bytes, host: str) -> Room:
    """Raises ValueError where the answer is not a capacity of this host."""
    # A number of many digits would take seconds to read, in which no other thread of the scheduler works.
    answer = json.loads(body.decode("utf-8"), parse_int=_int, parse_constant=_refuse)
    if not isinstance(answer, dict) or answer.get("host") != host:
        raise ValueError("it is not a capacity of this host")
    strategies = {}
    for strategy in _list(answer.get("strategies")):
        if not isinstance(strategy, dict) or not isinstance(strategy.get("strategy"), str):
            raise ValueError("a strategy has no name")
        nodes = tuple((_count(node, "free_vcpus"), _memory(node)) for node in _list(strategy.get("nodes")))
        strategies[strategy["strategy"]] = StrategyRoom(
            strategy.get("within_node") is True, _count(strategy, "free_vcpus"), nodes
        )
    return Room(str(answer.get("strategy")), strategies)


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _NODES:
        raise ValueError(f"it is not a list, or has more than {_NODES} items")
    return value


def _count(value: Any, name: str) -> int:
    count = value.get(name) if isinstance(value, dict) else None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_VCPUS:
        raise ValueError(f"{name} is not a number from 0 to {MOST_VCPUS}")
    return count


def _memory(node: Any) -> int | None:
    memory = node.get("memory_kib")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int)):
        raise ValueError("memory_kib is not a number")
    return memory


@dataclasses.dataclass
class _Entry:
    room: Room | None = None
    at: float = 0.0
    ask_at: float = 0.0
    asking: bool = False
    awaited: bool = False
    failures: int = 0
    """Missing answers since the last one."""
    used: int | None = None


class HostRooms:
    """Several threads may use it."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises SettingsError for certificates that cannot be read."""
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: list[tuple[set[str], threading.Event]] = []
        self._entries: dict[str, _Entry] = collections.defaultdict(_Entry)
        self._numbers = itertools.count()
        self._questions: tuple[queue.Queue[tuple[int, int, str]], ...] = (queue.PriorityQueue(), queue.PriorityQueue())
        self._threads = [0, 0]
        self._tls = _tls(settings)

    def rooms(self, hosts: Iterable[str]) -> dict[str, Room]:
        """The known rooms, after at most ``timeout`` seconds. A host is waited for once, when it is first asked."""
        names = [host for host in dict.fromkeys(hosts) if _HOST.fullmatch(host)]
        now, answered = self._clock(), threading.Event()
        missing: set[str] = set()
        with self._lock:
            for host in names:
                entry = self._entries[host]
                if not entry.awaited:
                    entry.awaited = True
                    missing.add(host)
                self._ask(host, entry, now)
            self._start_threads()
            if wait := bool(missing):
                self._waits.append((missing, answered))
        if wait:
            answered.wait(self._settings.timeout)
        now = self._clock()
        with self._lock:
            self._waits = [waiting for waiting in self._waits if waiting[1] is not answered]
            entries = ((host, self._entries[host]) for host in names)
            return {
                host: entry.room for host, entry in entries if entry.room and now - entry.at <= self._settings.max_age
            }

    def claimed(self, host: str, used: int) -> int:
        """By how many vCPUs Nova's use of the host has grown to ``used`` since its room was read."""
        with self._lock:
            entry = self._entries[host]
            if entry.used is None:
                entry.used = used
            return max(0, used - entry.used)

    def _ask(self, host: str, entry: _Entry, now: float) -> None:
        if entry.asking or now < entry.ask_at:
            return
        entry.asking = True
        # Hosts that do not answer must not delay the questions to those that do: their rooms would grow old.
        lane = int(entry.room is not None and not entry.failures)
        # A host that is new or has failed once does not wait for hundreds of those that fail each time.
        self._questions[lane].put((min(entry.failures, 2), next(self._numbers), host))

    def _start_threads(self) -> None:
        # Not before the first question: nova-scheduler forks its workers, and a thread would stay behind.
        for lane, questions in enumerate(self._questions):
            for _ in range(min(questions.qsize(), THREADS[lane] - self._threads[lane])):
                work = threading.Thread(target=self._work, args=(lane,), name="pinner-weigher", daemon=True)
                try:
                    work.start()
                except RuntimeError as error:  # the limit of threads; the questions wait until the next scheduling
                    LOG.warning("no thread can ask pinner for the room of hosts: %s", error)
                    return
                self._threads[lane] += 1

    def _work(self, lane: int) -> None:
        while True:
            _, _, host = self._questions[lane].get()
            room, why = None, ""
            try:
                room = self._read(host)
            except Exception as error:  # an answer may be anything, and this thread has to go on
                why = str(error)[:200] or repr(error)
            self._note(host, room, why)

    def _read(self, host: str) -> Room:
        server = self._settings.server.replace("{host}", host).rstrip("/")
        token = ""
        if self._settings.token_file:
            with open(self._settings.token_file.replace("{host}", host), encoding="ascii") as file:  # noqa: PTH123
                token = file.read(4096).strip()
        # Free vCPUs do not depend on the size: one size keeps the answer short.
        body = fetch(server + f"/v1/hosts/{host}/capacity?vcpus=1", token, self._tls, ANSWER_SECONDS)
        return parse_room(body, host)

    def _note(self, host: str, room: Room | None, why: str) -> None:
        now = self._clock()
        with self._lock:
            entry = self._entries[host]
            changed = (entry.failures > 0) != (room is None)
            entry.asking, entry.failures = False, entry.failures + 1 if room is None else 0
            if room is None:
                entry.ask_at = now + self._settings.retry
            else:
                entry.room, entry.at, entry.ask_at, entry.used = room, now, now + self._settings.refresh, None
            for missing, answered in self._waits:
                missing.discard(host)
                if not missing:
                    answered.set()
        if changed and room is None:
            LOG.warning("pinner of host %s does not tell its room: %s", host, why)
        elif changed:
            LOG.info("pinner of host %s tells its room again", host)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.server.startswith("https://"):
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ValueError) as error:
        raise SettingsError(f"ca_file = {settings.ca_file}: {error}") from None
