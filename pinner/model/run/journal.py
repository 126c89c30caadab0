"""The record of changes of a host."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pinner.model.change import Change, Target, ThreadMask, boots_differ
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import DEFINED, WITH_STATE, TargetKind
from pinner.model.machine.process import Lineage
from pinner.model.text import mib

EntryState = Literal["intent", "done", "gone", "failed", "undone", "stuck"]
"""intent  in the journal, perhaps made             done    made, and read back from the kernel
gone    its guest, process or thread ended       failed  not made; the prior masks were verified
undone  the prior masks are restored             stuck   could not be undone, ``error`` says why"""

UNDO_BEGUN: tuple[EntryState, ...] = ("failed", "undone", "stuck")

RunKind = Literal["apply", "rollback", "release"]
"""release: restores a guest's prior CPUs before it is migrated away, and is not recorded as a placement."""
RunState = Literal["running", "applied", "applied_partly", "undone", "rolled_back", "rolled_back_partly", "failed"]
"""applied            the host is as planned
applied_partly     some guests or processes are placed; the others are as before, or have a stuck entry
undone             nothing is placed, and the host is as before the run
rolled_back        the changes are undone; the state of a rollback, and of the run that it undid
rolled_back_partly the same, but a change was gone or is stuck
failed             refused before any change; or, with stuck entries, a change could not be undone"""

MIN_WATCH_SECONDS, DEFAULT_WATCH_SECONDS, MAX_WATCH_SECONDS = 15, 30, 240
"""The shortest watch of a run, the default, and the longest one. The history of an hour must have the watch and a time
before the run that is WATCH_FOLD times as long, also for a look that is late."""

WATCH_FOLD = 10
"""A measure is watched if it is known before the run for so many times the watch's length: see outcome/watch.py."""


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """KiB of a guest on one node before and after a move, from numa_maps: ``before_kib`` is the sum of the others."""

    node: int
    before_kib: int
    """KiB on the node before."""
    moved_kib: int
    """How much less the node has now; below 0: how much more."""
    stayed_kib: int
    """How much the node has now."""


def memory_moved(before: Mapping[int, int], after: Mapping[int, int]) -> tuple[NodeMemory, ...]:
    """Ascending by node."""
    return tuple(
        NodeMemory(node, before.get(node, 0), before.get(node, 0) - after.get(node, 0), after.get(node, 0))
        for node in sorted({*before, *after})
    )


def moved_text(parts: Iterable[NodeMemory]) -> str:
    """``node 1: 500 MiB moved, 2 MiB stayed``; without nodes that gained memory."""
    return "; ".join(
        f"node {part.node}: {mib(part.moved_kib)} moved, {mib(part.stayed_kib)} stayed"
        for part in parts
        if part.moved_kib >= 0
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a run."""

    run: str
    seq: int
    """Its number in the run, from 1."""
    change: Change
    """The change."""
    state: EntryState
    """The state."""
    at: datetime
    """The time of the state."""
    error: str = ""
    """Why the change failed, was gone or is stuck; else empty."""
    found: tuple[ThreadMask, ...] = ()
    """Threads that were created while an affinity was changed; of a partition's change, all threads of the host that
    can be moved. Each with its prior mask."""
    definition: str = ""
    """With --persist: the pins (<cputune>) of the persistent definition before the change, as XML."""
    memory: tuple[NodeMemory, ...] = ()
    """How much memory moved and stayed, of a change of memory that was made."""
    lineage: Lineage | None = None
    """Of a change of affinity: facts by which an undo finds the processes that inherited the mask."""
    inheritors: tuple[ThreadMask, ...] = ()
    """Threads of other processes that an undo found with the mask, each with it."""
    former: tuple[CpuSet, ...] = ()
    """Of a rollback of all runs: CPUs that other runs gave to the target before the last one."""

    @property
    def summary(self) -> str:
        """Often empty."""
        return self.error or (moved_text(self.memory) if self.state == "done" else "")

    @property
    def result(self) -> str:
        return f"{self.state}: {self.summary}" if self.summary else self.state

    def is_news(self, known: "Entry | None") -> bool:
        """A later state or a new entry. Prior masks or definitions that another rollback corrected are no news."""
        return known is None or replace(known, change=self.change, definition=self.definition) != self


@dataclass(frozen=True, slots=True)
class Run:
    """An apply, a rollback or a release, from its start to its end."""

    id: str
    kind: RunKind
    """The kind."""
    host: str
    plan: str
    """The id; of a rollback, that of the run that it undoes; empty if it undoes all runs."""
    actor: str
    """Who asked for it, as the agent's caller claimed."""
    origin: str
    """The caller's address, or the CLI's terminal; as the agent's caller claimed."""
    state: RunState
    """The state."""
    started_at: datetime
    ended_at: datetime | None = None
    persist: bool = False
    """Whether persistent definitions are written, too."""
    undoes: str = ""
    """Of a rollback: the run that it undoes; empty: all runs of the host."""
    error: str = ""
    """Why it did not succeed; else empty."""
    migrate_memory: bool = False
    """Whether guests' memory was to follow."""
    recovered: str = ""
    """Of a run whose process died: the recovery's result, in words."""
    all_or_nothing: bool = False
    """Whether one failed change undoes the whole run; else only its guest's or process's changes."""
    peer: str = ""
    """The process that called the agent, with its user, as the kernel names it; empty before the agent has the run."""
    boot: str = ""
    """The host's, in which it began (/proc/sys/kernel/random/boot_id); empty: not known."""
    watch_seconds: int = 0
    """How long the guests are watched after it; 0: not at all."""
    undo_if_worse: bool = False
    """Whether it is rolled back if a measure becomes worse during the watch."""

    @property
    def result(self) -> str:
        return f"{self.state}: {self.error}" if self.error else self.state

    @property
    def options(self) -> str:
        options = {
            "persist": self.persist,
            "migrate_memory": self.migrate_memory,
            "all_or_nothing": self.all_or_nothing,
            f"watch_seconds {self.watch_seconds}": self.watch_seconds > 0,
            "undo_if_worse": self.undo_if_worse,
        }
        return ", ".join(name for name, is_given in options.items() if is_given)

    @property
    def undoes_all(self) -> bool:
        return self.kind == "rollback" and not self.undoes

    def is_of_earlier_boot(self, boot: str) -> bool:
        return boots_differ(self.boot, boot)


NEVER_BEGUN = "closed before it began: it changed nothing, and the agent refuses a late begin"
"""Of a run that the agent closed before it began."""

IN_PART = "are not online, so it got only the others; roll back again once they are"
"""Of an entry whose undo could give a thread only a part of its prior mask."""

EARLIER_BOOT = "the host was restarted since"


def is_final(run: Run, entry: Entry) -> bool:
    """A rollback of a run has that run's entries; one of all runs has its own, ``done`` before it undoes them."""
    return entry.state != "intent" and not (run.kind == "rollback" and entry.state == "done")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    persist: bool = False
    migrate_memory: bool = False
    all_or_nothing: bool = False
    watch_seconds: int = 0
    """0: none, or DEFAULT_WATCH_SECONDS with undo_if_worse."""
    undo_if_worse: bool = False
    allow_worse: bool = False
    """Whether a plan is applied that makes the objective worse."""

    @property
    def kept(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "allow_worse"}

    def with_watch(self) -> "ApplyOptions":
        seconds = self.watch_seconds or (DEFAULT_WATCH_SECONDS if self.undo_if_worse else 0)
        return replace(self, watch_seconds=seconds)


@dataclass(frozen=True, slots=True)
class InForce:
    """A change that no rollback has undone."""

    entry: Entry
    persist: bool = False
    boot: str = ""
    """In which the run began; empty: not known."""


@dataclass(frozen=True, slots=True)
class Damaged:
    run: str
    seq: int
    why: str
    """With the repair."""
    kind: str = ""
    """Of a change of affinity or metadata; else empty."""
    owner: str = ""
    """Of a change of affinity; else empty."""
    name: str = ""
    """Of a process; else empty."""
    cpus: CpuSet = CpuSet()
    """After a change of affinity."""
    boot: str = ""

    def may_concern(self, target: Target) -> bool:
        if self.owner:
            return (self.kind, self.owner) == (target.kind, target.owner)
        return target.kind in ((self.kind,) if self.kind else ("memory", *WITH_STATE))

    def has_ended(self, boot: str) -> bool:
        """Before the host's present ``boot``. Pins in a definition outlive a boot."""
        return self.kind not in DEFINED and boots_differ(self.boot, boot)

    def __str__(self) -> str:
        if self.kind == "process":
            what = f"process {self.name} ({self.owner}) on CPUs {self.cpus}"
        elif self.owner:
            what = f"{self.kind} of guest {self.owner} on CPUs {self.cpus}"
        else:
            what = "the metadata of a guest" if self.kind else "a partition, work queues, a setting or memory"
        return f"change {self.seq} of run {self.run} ({what})"


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is."""

    run: Run
    done: int
    """Changes that have ended."""
    total: int
    """Number of changes."""
    entry: Entry | None
    """The one that has just ended; null in the last message."""


@dataclass(frozen=True, slots=True)
class RecordedPins:
    """Pins that pinner wrote, and no operator."""

    placed: frozenset[str] = frozenset()
    """UUIDs of guests whose threads a run has changed, and not restored, except runs by hand."""
    persisted: frozenset[tuple[str, TargetKind, int | None, CpuSet]] = frozenset()
    """In definitions, and removed by no rollback: the guest's UUID, the part's kind and number, its CPUs."""
    parts: frozenset[tuple[str, TargetKind, int | None]] = frozenset()
    """Of other guests: parts that are placed by hand, and those without a pin before whose threads a run has moved and
    restored: libvirt keeps a pin."""

    def has_live(self, guest: str, kind: TargetKind, part: int | None) -> bool:
        return guest in self.placed or (guest, kind, part) in self.parts
