"""What an apply needs of other packages: a host to change, and a journal to write."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pinner.model.change import NamedPins, PartPin, Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.guest.nova import Bounds
from pinner.model.kinds import State, TargetKind
from pinner.model.machine.process import Descendants, Lineage
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Damaged, Entry, InForce, Run

Part = tuple[TargetKind, int]
"""A vCPU or iothread of a guest, with its number."""


Progress = Callable[[Entry, int], None]
"""Gets an entry and the number of entries, before the first change and after each. Must not raise."""


class Host(Protocol):
    """A machine whose threads can be read and pinned. Several threads may use it, each for other guests."""

    @property
    def guests_at_once(self) -> int:
        """How many guests may be changed at once."""

    def fingerprint(self) -> str:
        """The value of Topology.fingerprint now."""

    def online(self) -> CpuSet:
        """The CPUs that are online now."""

    def bounds(self) -> Bounds:
        """Nova's CPUs and the excluded guests. Raises HostUnreachable, NotPermitted, Busy, and Invalid for a CPU set of
        Nova's configuration."""

    def masks(self, target: Target) -> tuple[ThreadMask, ...]:
        """The kernel's masks of the live threads, by thread id. A partition has all movable threads of the host, work
        queues none. Raises Gone."""

    def kernel_threads(self) -> frozenset[ThreadKey]:
        """The kernel threads that can be moved."""

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Pin a part of a guest, live, and with ``persist`` in its definition. Raises Gone, NotPermitted,
        HostUnreachable, ApplyFailed."""

    def require_answering(self, target: Target) -> None:
        """Raises Busy where another job occupies the target's guest."""

    def set_mask(self, thread: ThreadMask) -> None:
        """Raises Gone where no thread has this id and start time, ApplyFailed where the kernel grants less."""

    def lineage(self, target: Target) -> Lineage:
        """By which ``inheritors`` finds those of the target's mask from now on. Raises Gone."""

    def inheritors(
        self, target: Target, since: Lineage, masks: Collection[CpuSet], others: Mapping[ThreadKey, int]
    ) -> Descendants[ThreadMask]:
        """The threads with one of the ``masks`` that started after ``since`` in processes that descend from the target,
        which may have ended; of ``others``, which have a change of their own, only descendants count."""

    def has_inheritors(self, target: Target, since: Lineage, masks: Collection[CpuSet]) -> bool:
        """Whether ``inheritors`` may find a thread. The answer may be old for a process that has ended."""

    def state(self, target: Target) -> State:
        """Of a target without threads. Raises Gone, and ApplyFailed where its driver does not answer."""

    def set_state(self, target: Target, state: State) -> None:
        """Reads it back. Raises Gone, NotPermitted, and ApplyFailed where it is another."""

    def parts(self, guest: str) -> frozenset[Part]:
        """Those of the guest (by UUID) that have a thread. Raises Gone."""

    def persistent(self, guest: str) -> bool:
        """Whether the guest (by UUID) has a definition. Raises Gone."""

    def definition(self, guest: str) -> str:
        """The <cputune> of the guest's persistent definition as XML, or empty. Raises Gone."""

    def defined_pin(self, target: Target, definition: str) -> CpuSet | None:
        """The target's pin in a ``definition``; None where it has none."""

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        """Restore the target's pin of ``definition``, or its absence. Raises ApplyFailed where the pin there is none of
        the ``given`` CPUs of runs: an operator has changed it."""

    def named_pins(self, guest: str) -> NamedPins:
        """Those that the guest's metadata names. Raises Gone where libvirt has no such guest (by UUID), and Busy."""

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        """In the XML of the running guest (by UUID), whoever made them. Raises Gone, Busy."""

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        """In the saved image of a guest, a part that has one of ``pins``, which the metadata names, gets its pin of
        ``former``, or none; the metadata gets ``names``. Raises like ``pin``."""

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        """Give a guest's metadata these names; a part that is None stays. Raises like ``pin``."""

    def memory(self, target: Target) -> Mapping[int, int]:
        """Resident KiB of a guest's QEMU by node, from numa_maps. Raises Gone, NotPermitted."""

    def numatune(self, target: Target) -> str:
        """The nodes of the live numatune where libvirt may change them (mode restrictive), or empty."""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """Sets it through libvirt. Raises like ``pin``."""

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        """By migrate_pages; some pages cannot be moved. Raises Gone, NotPermitted, ApplyFailed."""


class Journal(Protocol):
    """A durable record beside the agent: what a method has written survives a crash. Only ``note`` may write as late as
    the next ``intend`` or ``end``. Several threads may call ``intend`` at once."""

    def begin(self, run: Run) -> None:
        """Lock the host and open a run. Raises HostBusy while another run is open, also one to be recovered;
        RunConflict where the journal has this id."""

    def close_unbegun(self, run: Run) -> None:
        """Store a run that never began. Raises RunConflict where the journal has this id: of ``begin`` and this, the
        first one wins."""

    def end_earlier_boots(self, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
        """Note the changes of ended runs from other boots as ``gone``; returns their number. Those in a persistent
        definition, of an unknown boot, and the pins of the guests (by UUID) that ``keeps`` accepts stay ``done``."""

    def require_room(self) -> None:
        """Raises StoreUnavailable where the next run cannot be written: the disk may be full."""

    def intend(self, *entries: Entry, reported: Collection[Entry] = ()) -> None:
        """Write entries before the host is touched, also known ones with threads found later. The audit trail gets the
        ``reported`` ones, whose state is a report of the run."""

    def note(self, entry: Entry, *, again: bool = False) -> None:
        """Record an entry's new state. ``again``: the trail has this report, and only the facts are newer."""

    def end(self, run: Run, corrected: Collection[Entry] = ()) -> None:
        """Close the run with its final state, and unlock the host unless this raises. In the same step, the run that a
        rollback undid gets the rollback's state, and the ``corrected`` entries replace the former ones."""

    def leave(self, run: Run) -> None:
        """Unlock the host where the run's end could not be written: it is interrupted."""

    def interrupted(self) -> Run | None:
        """The open run whose process has ended. The host is locked until the caller ends or leaves that run."""

    def run(self, run: str) -> Run:
        """Raises NotFound."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """A run's entries by ``seq``; empty for an unknown run."""

    def readable_entries(self, run: str) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
        """A run's entries by ``seq``, and those whose records cannot be read."""

    def placed(self) -> tuple[CpuSet, ...]:
        """The masks that runs gave to processes and that are in force."""

    def moved_processes(self) -> frozenset[str]:
        """The names of the processes whose moves are in force."""

    def allocated(self) -> CpuSet:
        """The CPUs that runs gave to any threads and that are in force."""

    def placed_processes(self) -> dict[ThreadKey, int]:
        """The first threads of the processes that runs placed, each with the moment before its first mask, in clock
        ticks after boot; 0: not known."""

    def changed_later(self, run: str, most: int) -> tuple[tuple[Run, Target], ...]:
        """The later runs in force that gave a target of ``run`` another affinity or state, or a target of such a later
        run, and so on; each with one such target, newest first, at most ``most``. The last one has changed a target of
        ``run`` itself. A release does not count: it restores the prior affinities."""

    def in_force(self, host: str, after: str = "") -> Iterator[InForce | Damaged]:
        """The changes that no rollback has undone, oldest first; with ``after``, those of later runs. A change of a
        definition counts also where its guest is gone."""

    def purge(
        self, before: datetime, is_kept: Callable[[str], bool], needed: Callable[[Collection[str]], Collection[str]]
    ) -> int:
        """Delete the ended runs that began before a moment; returns their number. One with changes in place stays if
        ``is_kept`` says so, another one if ``needed`` returns it. Raises StoreUnavailable."""

    def changes_of(self, guest: str) -> tuple[Entry, ...]:
        """The changes of affinity of a guest (by UUID) that were not undone, oldest first."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A plan, compared with the agent's own view of the host under the host's lock."""

    plan: Plan
    """Without what is not on the host."""
    ended: frozenset[Target] = frozenset()
    """The processes and settings that the agent's inventory lacks. The rules were not applied to their changes: neither
    the run nor its recovery makes them."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """The guests (by UUID) that cannot be read now, with the reason. The rules were not applied to their changes: they
    fail alone."""
    require_permitted: Callable[[], None] = lambda: None
    """Raises Refused or NovaConflict for a change that the agent's rules do not allow; called once the plan is known
    not to be stale. By default the plan is this process's own."""


Admit = Callable[[Plan, Run], Admission]
"""Compares a run's plan with the host. Raises Refused, StalePlan and the errors of a snapshot."""
