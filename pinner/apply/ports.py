"""What an apply needs of the outside: a host to change and a journal to write. Both are satisfied elsewhere."""

from collections.abc import Collection, Mapping
from typing import Protocol

from pinner.model.bounds import Bounds
from pinner.model.change import Target, TargetKind, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.journal import Entry, Run

Part = tuple[TargetKind, int]
"""A vCPU or iothread of a guest: its kind and number."""


class Host(Protocol):
    """A machine whose threads can be read and pinned."""

    def fingerprint(self) -> str:
        """Topology.fingerprint as of now."""

    def online(self) -> CpuSet:
        """The CPUs that are online now."""

    def bounds(self) -> Bounds:
        """What is to be kept clear of as of now. Raises HostUnreachable, NotPermitted, Busy, and Invalid for a set of
        Nova's that does not parse."""

    def masks(self, target: Target) -> tuple[ThreadMask, ...]:
        """The kernel's word on every live thread of the target (Cpus_allowed_list), by ascending thread id.

        Of a partition: of all threads of the host that can be moved, since any may lose its mask to it; of the work
        queues: none. Raises Gone where the guest, process (by pid and start time), vCPU or iothread is no more.
        """

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Pin an emulator, vCPU or iothread through libvirt, live, and with ``persist`` in its definition too.

        Raises Gone, NotPermitted, HostUnreachable, or ApplyFailed with libvirt's own words.
        """

    def set_mask(self, thread: ThreadMask) -> None:
        """Give one thread the mask ``thread.cpus`` by sched_setaffinity.

        Raises Gone where the thread id is free or belongs to a thread of another start time; ApplyFailed where the
        kernel refuses or grants less.
        """

    def state(self, target: Target) -> str:
        """What a target of SETTINGS is now, in the kernel's words. Raises Gone where the cgroup is no more."""

    def set_state(self, target: Target, state: str) -> None:
        """Give a target of SETTINGS a state and read it back.

        Raises Gone, NotPermitted, and ApplyFailed with the kernel's or systemd's words where it is not so then.
        """

    def parts(self, guest: str) -> frozenset[Part]:
        """The vCPUs and iothreads that the guest (by UUID) has threads for. Raises Gone."""

    def persistent(self, guest: str) -> bool:
        """Whether the guest (by UUID) has a definition that outlives a shutdown. Raises Gone."""

    def definition(self, guest: str) -> str:
        """The <cputune> element of the guest's persistent definition as XML, empty where it has none. Raises Gone."""

    def restore_definition(self, target: Target, definition: str) -> None:
        """Put the target's own pin element of ``definition`` back into the persistent definition: also its absence."""

    def memory(self, target: Target) -> Mapping[int, int]:
        """Resident KiB of a guest's QEMU by node, from numa_maps. Raises Gone where that process is no more, and
        NotPermitted."""

    def numatune(self, target: Target) -> str:
        """The nodes of the guest's live numatune, where libvirt may change them (mode restrictive); else empty."""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """Give the live numatune other nodes, through libvirt. Raises like ``pin``."""

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        """Move what lies on the nodes ``away`` to ``node`` (migrate_pages). Pages that cannot be moved stay.

        Raises Gone, NotPermitted, and ApplyFailed with the kernel's answer.
        """


class Journal(Protocol):
    """A durable record beside the agent. What a method has returned from survives a crash of the machine, except that
    ``note`` may lag behind until the next ``intend`` or ``end``: recovery reads the kernel, not the note."""

    def begin(self, run: Run, entries: tuple[Entry, ...]) -> None:
        """Hold the host and open a run with the entries that it has already. Raises HostBusy while another run is
        open, also one that its process left open: that is settled first."""

    def intend(self, *entries: Entry) -> None:
        """Write down what the run is about to change, before it is touched: its entries, or to an entry what was found
        later (threads born meanwhile)."""

    def note(self, entry: Entry) -> None:
        """Record an entry's new state."""

    def end(self, run: Run) -> None:
        """Close the run that was begun with its final state, which of a rollback (rolled_back, rolled_back_partly) is
        also the state of the run that it took back. Lets the host go, unless it raises."""

    def leave(self, run: Run) -> None:
        """Let the host go where the run still holds it, because its end could not be written: it is interrupted."""

    def interrupted(self) -> Run | None:
        """The run that its process left open, held for the caller to end or to leave; None: there is none, or its
        process is at work."""

    def run(self, run: str) -> Run:
        """One run. Raises NotFound."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """A run's entries by ``seq``; empty for an unknown run."""

    def placed(self) -> tuple[CpuSet, ...]:
        """The masks that applied runs gave to processes and no rollback has taken back."""
