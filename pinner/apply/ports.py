from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pinner.model.change import NamedPins, PartPin, Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.guest.nova import Bounds
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import CpuLimit, Descendants, Lineage
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Damaged, Entry, InForce, Run
from pinner.model.states import State

Part = tuple[TargetKind, int]

Progress = Callable[[Entry, int], None]
"""Gets an entry and the number of entries, before the first change and after each. Must not raise."""


class GuestPort(Protocol):
    """What libvirt keeps of a guest. Raises Gone like Host."""

    def require_answering(self, target: Target) -> None:
        """Raises Busy where another job occupies the target's guest."""

    def persistent(self, guest: str) -> bool: ...

    def definition(self, guest: str) -> str:
        """The <cputune> of the persistent definition as XML, or empty."""

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        """Restore the target's pin of ``definition``, or its absence. Raises ApplyFailed where the pin is none of
        ``given``, so an operator's."""

    def named_pins(self, guest: str) -> NamedPins:
        """Raises Busy."""

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        """Those in the running guest's XML, whoever made them. Raises Busy."""

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        """In a saved image, ``pins`` become ``former`` or go; the metadata gets ``names``. Raises like Host.pin."""

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        """Write these names into the guest's metadata, where not None. Raises like Host.pin."""

    def numatune(self, target: Target) -> str:
        """The nodes of the live numatune where libvirt may change them (mode restrictive), or empty."""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """Raises like Host.pin."""

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Raises like Host.pin."""


class Host(Protocol):
    """Threads may share it, each for other guests. Methods for a target or a guest (UUID) raise Gone once it ended."""

    @property
    def guests_at_once(self) -> int: ...

    @property
    def guests(self) -> GuestPort: ...

    def fingerprint(self) -> str: ...

    def online(self) -> CpuSet: ...

    def bounds(self) -> Bounds:
        """Nova's CPUs, excluded guests. Raises HostUnreachable, NotPermitted, Busy; Invalid for a CPU set of Nova's."""

    def masks(self, target: Target) -> tuple[ThreadMask, ...]:
        """The live threads' masks by thread id. A partition has the host's movable threads; work queues have none."""

    def kernel_threads(self) -> frozenset[ThreadKey]: ...

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Live, and with ``persist`` in the guest's definition. Raises NotPermitted, HostUnreachable, ApplyFailed."""

    def set_mask(self, thread: ThreadMask, read: CpuSet | None = None) -> bool:
        """Returns False where another program has set a mask since ``read``, which stays. Raises Gone where no thread
        has this id and start time, ApplyFailed where the kernel grants less."""

    def lineage(self, target: Target) -> Lineage:
        """The facts by which ``inheritors`` later finds those of the target's mask."""

    def inheritors(
        self, target: Target, since: Lineage, masks: Collection[CpuSet], others: Mapping[ThreadKey, int]
    ) -> Descendants[ThreadMask]:
        """The threads with one of the ``masks`` that started after ``since`` in descendants of the target, which may
        have ended. ``others`` have a change of their own: of them only descendants count."""

    def has_inheritors(self, target: Target, since: Lineage, masks: Collection[CpuSet]) -> bool:
        """Whether ``inheritors`` may find a thread. For a process that has ended, the answer may be old."""

    def state(self, target: Target) -> State:
        """Of a target without threads. Raises ApplyFailed where its driver does not answer."""

    def set_state(self, target: Target, state: State) -> None:
        """Reads it back. Raises NotPermitted, and ApplyFailed where it is another."""

    def cpu_limits(self, guest: str) -> tuple[CpuLimit, ...]: ...

    def parts(self, guest: str) -> frozenset[Part]:
        """Those that have a thread."""

    def defined_pin(self, target: Target, definition: str) -> CpuSet | None: ...

    def memory(self, target: Target) -> Mapping[int, int]:
        """Resident KiB of the guest's QEMU by node (numa_maps). Raises NotPermitted."""

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        """By migrate_pages(2), which cannot move some pages. Raises NotPermitted, ApplyFailed."""


class Journal(Protocol):
    """A durable record beside the agent: records survive a crash; those of ``note`` may be written as late as the next
    ``intend`` or ``end``. Several threads may call ``intend``."""

    def begin(self, run: Run) -> None:
        """Lock the host and open a run. Raises HostBusy while a run is open or to be recovered; RunConflict for a known
        id."""

    def close_unbegun(self, run: Run) -> None:
        """Store a run that never began. Raises RunConflict for a known id."""

    def end_earlier_boots(self, boot: str, at: datetime, keeps: Callable[[str], bool]) -> int:
        """Note the changes of ended runs from other boots as ``gone``; returns their number. Those in definitions, of
        an unknown boot, and pins of guests (UUID) that ``keeps`` accepts stay ``done``."""

    def require_room(self) -> None:
        """Raises StoreUnavailable where the next run has no room."""

    def intend(self, *entries: Entry, reported: Collection[Entry] = ()) -> None:
        """Write entries before the host is touched, also known ones with threads found later. The audit trail gets the
        states of those ``reported``."""

    def note(self, entry: Entry, *, again: bool = False) -> None:
        """``again``: the trail has this report, and only the facts are newer."""

    def end(self, run: Run, corrected: Collection[Entry] = ()) -> None:
        """Close the run with its final state, and unlock the host unless this raises. In the same step, a run that was
        rolled back gets its state, and ``corrected`` entries replace the former ones."""

    def leave(self, run: Run) -> None:
        """Unlock the host where the run's end could not be written: it is interrupted."""

    def interrupted(self) -> Run | None:
        """The open run whose process has ended. The host stays locked until the caller ends or leaves it."""

    def run(self, run: str) -> Run:
        """Raises NotFound."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """A run's entries by ``seq``; empty for an unknown run."""

    def readable_entries(self, run: str) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]]:
        """Those by ``seq``, and the damaged records."""

    def placed(self) -> tuple[CpuSet, ...]:
        """The masks in force that runs gave to processes."""

    def moved_processes(self) -> frozenset[str]:
        """The names of those whose moves are in force."""

    def allocated(self) -> CpuSet:
        """The CPUs in force that runs gave to any threads."""

    def placed_processes(self) -> dict[ThreadKey, int]:
        """The first threads of the processes that runs placed, each with the moment before its first mask, in clock
        ticks after boot (0: not known)."""

    def changed_later(self, run: str, most: int) -> tuple[tuple[Run, Target], ...]:
        """The later runs in force that gave a target of ``run``, or of such a later run, another affinity or state;
        each with one such target, newest first, at most ``most``. The last one has changed a target of ``run`` itself.
        Releases do not count: they restore prior affinities."""

    def in_force(self, host: str, after: str = "") -> Iterator[InForce | Damaged]:
        """The changes that no rollback has undone, oldest first; with ``after``, those of later runs. A change of a
        definition counts also where its guest is gone."""

    def purge(
        self, before: datetime, is_kept: Callable[[str], bool], needed: Callable[[Collection[str]], Collection[str]]
    ) -> int:
        """Delete the ended runs that began before a moment, but those with changes in place that ``is_kept`` accepts,
        and others that ``needed`` returns; returns their number. Raises StoreUnavailable."""

    def changes_of(self, guest: str) -> tuple[Entry, ...]:
        """The changes of a guest's (UUID) affinity that were not undone, oldest first."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A plan, compared under the host's lock with the agent's own view of the host."""

    plan: Plan
    """Without what is not on the host."""
    ended: frozenset[Target] = frozenset()
    """Processes and settings that the agent's inventory lacks: no rules were applied, so nobody makes their changes."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Guests (by UUID) that cannot be read now, and why. Their changes, without the rules applied, fail alone."""
    unfit: Mapping[Target, str] = field(default_factory=dict)
    """What does not fit what a guest says of its inside now, and why. These changes fail alone."""
    require_permitted: Callable[[], None] = lambda: None
    """Raises Refused or NovaConflict for a change against the agent's rules, after the plan is known not to be stale.
    By default the plan is this process's own."""


Admit = Callable[[Plan, Run], Admission]
"""Raises Refused, StalePlan and the errors of a snapshot."""
