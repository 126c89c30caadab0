"""A host whose threads are values in a dictionary.

The executor's tests use it because they need failures at chosen moments: a refusal at the third write, a thread born
between two readings, another program that moves threads. Real guests and processes are in tests/functional.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from support.values import FINGERPRINT, cpus, make_plan

from pinner.model.change import AffinityChange, NamedPins, PartPin, PlannedChange, Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Gone
from pinner.model.guest.nova import Bounds, NovaOwns
from pinner.model.kinds import KINDS, PINNED
from pinner.model.machine.process import CpuLimit, Descendants, Lineage
from pinner.model.plan.plan import Plan
from pinner.model.states import PartitionState, State
from pinner.model.text import pins_text

Write = tuple[str, str]
"""A write to the host: a target or a thread id, and the CPUs."""


class InMemoryHost:
    """Satisfies apply's Host. ``before_write`` is called with every write and may raise or change things."""

    guests_at_once = 1
    """The order of its writes is known."""

    def __init__(self, *, cpuset_controller: bool = True) -> None:
        self.threads: dict[Target, list[ThreadMask]] = {}
        self.definitions: dict[str, str] = {}
        """Of the guests that are persistent."""
        self.has_metadata = False
        """Whether its guests have metadata. Without it, a run has the changes of its plan and no others."""
        self.names: dict[str, tuple[PartPin, ...]] = {}
        """The pins that the metadata of each running guest names."""
        self.defined_names: dict[str, tuple[PartPin, ...]] = {}
        """The pins that the metadata of each definition names."""
        self.live_pins: dict[str, tuple[PartPin, ...]] = {}
        """The pins in the XML of each running guest, before any run."""
        self.saved: dict[str, tuple[PartPin, ...]] = {}
        """The pins that the metadata of each saved image names."""
        self.saved_pins: dict[str, tuple[PartPin, ...]] = {}
        """The pins in each saved image."""
        self.marked: set[str] = set()
        """The guests that are excluded by their metadata."""
        self.cells: set[str] = set()
        """The guests of Nova with NUMA cells."""
        self.per_node: dict[Target, dict[int, int]] = {}
        self.pages_stay: dict[int, int] = {}
        """KiB on each node that the kernel does not move."""
        self.numatunes: dict[Target, str] = {}
        """Of the guests that have one which libvirt may change."""
        self.states: dict[Target, State] = {}
        """Of targets that have a state; setting a partition's moves every thread to ``reset``, as Linux before 6.2; if
        it is empty, none."""
        self.reset = "0-7"
        self.clock = 8
        """The start time of new processes is later than this one."""
        self.parents: dict[Target, Target] = {}
        self.unsure: dict[Target, Target] = {}
        """Processes that may be children of another one."""
        self.kernel_targets: set[Target] = set()
        """The processes that are kernel threads."""
        self.boot = "boot"
        self.hardware = FINGERPRINT
        """The fingerprint of its topology."""
        self.offline = ""
        self.occupied: set[str] = set()
        """The guests (by UUID) that do not answer."""
        self.limits: tuple[CpuLimit, ...] = ()
        """The cgroups above all guests that leave out CPUs."""
        self.novas = NovaOwns()
        self.writes: list[Write] = []
        self.before_write: Callable[[Write], None] = lambda write: None
        self.before_read: Callable[[Target], None] = lambda target: None
        self._cpuset_controller = cpuset_controller

    def add(self, target: Target, *masks: str) -> Target:
        """A target with a thread for each mask; a vCPU, an emulator or a process alike."""
        first = 100 * (len(self.threads) + 1)
        self.threads[target] = [ThreadMask(first + n, 7, cpus(mask)) for n, mask in enumerate(masks)]
        return target

    def bear(self, target: Target, mask: str) -> int:
        """A new thread; its id."""
        tid = max(thread.tid for thread in self.threads[target]) + 1
        self.threads[target].append(ThreadMask(tid, 9, cpus(mask)))
        return tid

    def move(self, tid: int, mask: str) -> None:
        """Another program moves the thread."""
        self._write(tid, cpus(mask))

    def kernel(self) -> dict[int, str]:
        """Every thread's mask."""
        return {thread.tid: str(thread.cpus) for threads in self.threads.values() for thread in threads}

    def change(self, target: Target, after: str) -> AffinityChange:
        return AffinityChange(target, tuple(self.threads[target]), cpus(after), "so")

    def plan(self, *changes: PlannedChange, blocked: str = "") -> Plan:
        return make_plan(changes=changes, blocked=blocked)

    def fingerprint(self) -> str:
        return self.hardware

    def online(self) -> CpuSet:
        return CpuSet.of(range(64)) - cpus(self.offline)

    def bounds(self) -> Bounds:
        return Bounds(self.novas, frozenset(self.marked), frozenset(self.cells))

    def cpu_limits(self, guest: str) -> tuple[CpuLimit, ...]:
        return self.limits

    def masks(self, target: Target) -> tuple[ThreadMask, ...]:
        self.before_read(target)
        if KINDS[target.kind].state is PartitionState:
            return tuple(thread for threads in self.threads.values() for thread in threads)
        if KINDS[target.kind].state:
            return ()
        if not self.threads.get(target):
            raise Gone(str(target))
        return tuple(self.threads[target])

    def kernel_threads(self) -> frozenset[ThreadKey]:
        return frozenset(thread.key for each in self.kernel_targets for thread in self.threads[each])

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        self._record((str(target), str(cpus)))
        if target not in self.threads:
            raise Gone(str(target))
        if persist:
            others = _pin_of(target).sub("", self.definitions[target.owner])
            self.definitions[target.owner] = others + _pin(target, cpus)
        moved = self.threads[target] if self._cpuset_controller else self.threads[target][:1]
        for thread in list(moved):
            self._write(thread.tid, cpus)

    @property
    def guests(self) -> "InMemoryHost":
        return self

    def require_answering(self, target: Target) -> None:
        if target.owner in self.occupied:
            raise Busy(str(target), "occupied", overdue=False)

    def set_mask(self, thread: ThreadMask, read: CpuSet | None = None) -> bool:
        if read not in (None, *(known.cpus for known in self._known(thread))):
            return False
        self._record((str(thread.tid), str(thread.cpus)))
        if not self._known(thread):
            raise Gone(f"thread {thread.tid}")
        self._write(thread.tid, thread.cpus)
        return True

    def _known(self, thread: ThreadMask) -> list[ThreadMask]:
        return [known for threads in self.threads.values() for known in threads if thread.key == known.key]

    def lineage(self, target: Target) -> Lineage:
        if target.kind == "process" and target not in self.threads:
            raise Gone(str(target))
        return Lineage(self.boot, self.clock)

    def inheritors(
        self, target: Target, since: Lineage, masks: Collection[CpuSet], others: Mapping[ThreadKey, int]
    ) -> Descendants[ThreadMask]:
        unsure = [child for child, parent in self.unsure.items() if parent == target]
        kin = [
            child
            for child in self.threads
            if self._descends(child, target) and (int(child.owner), child.part) not in others
        ]
        threads = (thread for child in kin for thread in self.threads[child])
        return Descendants(
            tuple(thread for thread in threads if thread.started >= since.since and thread.cpus in masks),
            tuple(thread for child in unsure for thread in self.threads[child] if thread.cpus in masks),
        )

    def has_inheritors(self, target: Target, since: Lineage, masks: Collection[CpuSet]) -> bool:
        found = self.inheritors(target, since, masks, {})
        return bool(found.sure or found.unsure)

    def _descends(self, child: Target, target: Target) -> bool:
        parent = self.parents.get(child)
        return parent is not None and (parent == target or self._descends(parent, target))

    def fork(self, parent: Target, pid: int) -> Target:
        """A new process with the mask of its parent's first thread."""
        child = Target("process", str(pid), self.clock + 1, "child")
        self.parents[child] = parent
        self.threads[child] = [ThreadMask(pid, self.clock + 1, self.threads[parent][0].cpus)]
        return child

    def state(self, target: Target) -> State:
        if target not in self.states:
            raise Gone(str(target))
        return self.states[target]

    def set_state(self, target: Target, state: State) -> None:
        self._record((str(target), str(state)))
        self.states[target] = state
        for tid in self.kernel() if target.kind == "partition" and self.reset else ():
            self._write(tid, cpus(self.reset))

    def parts(self, guest: str) -> frozenset[tuple[str, int]]:
        own = (target for target in self.threads if target.owner == guest and target.kind in ("vcpu", "iothread"))
        return frozenset((target.kind, target.part) for target in own)

    def persistent(self, guest: str) -> bool:
        return guest in self.definitions

    def definition(self, guest: str) -> str:
        return self.definitions[guest]

    def defined_pin(self, target: Target, definition: str) -> CpuSet | None:
        found = _pin_of(target).search(definition)
        return None if found is None else CpuSet.parse(found[0].rstrip("]").rpartition(" ")[2], "cpus")

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        pin, text = _pin_of(target), self.definitions[target.owner]
        now, saved = (found[0] if (found := pin.search(each)) else "" for each in (text, definition))
        if now == saved:
            return
        if now not in {_pin(target, each) for each in given}:
            raise ApplyFailed(str(target), f"{now or 'no pin'} is of an operator or another program since")
        self._record((f"definition of {target.name}", definition))
        self.definitions[target.owner] = text.replace(now, saved)

    def named_pins(self, guest: str) -> NamedPins:
        running = any(target.owner == guest and threads for target, threads in self.threads.items())
        if not self.has_metadata or (not running and guest not in self.definitions):
            raise Gone(f"guest {guest}")
        return NamedPins(
            self.names.get(guest, ()) if running else None,
            self.defined_names.get(guest, ()) if guest in self.definitions else None,
            None if running else self.saved.get(guest),
        )

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        return self.live_pins.get(guest, ())

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        self._record((f"saved image of {target.name}", pins_text(names)))
        own = [pin for pin in self.saved_pins[target.owner] if pin in pins and pin in self.saved[target.owner]]
        parts = {pin.key for pin in own}
        kept = [pin for pin in self.saved_pins[target.owner] if pin not in own]
        self.saved_pins[target.owner] = (*kept, *(pin for pin in former if pin.key in parts))
        self.saved[target.owner] = names

    def save(self, guest: str, *pins: PartPin) -> None:
        """The guest is saved, as virsh managedsave does it, with these pins."""
        self.saved[guest], self.saved_pins[guest] = self.names.pop(guest, ()), pins
        for target in [each for each in self.threads if each.owner == guest]:
            del self.threads[target]

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        self._record((str(target), pins_text(pins.live or pins.definition or ())))
        for names, given in ((self.names, pins.live), (self.defined_names, pins.definition)):
            if given:
                names[target.owner] = given
            elif given is not None:
                names.pop(target.owner, None)

    def memory(self, target: Target) -> dict[int, int]:
        if target not in self.per_node:
            raise Gone(str(target))
        return dict(self.per_node[target])

    def numatune(self, target: Target) -> str:
        return self.numatunes.get(target, "")

    def set_numatune(self, target: Target, nodes: str) -> None:
        self._record((f"numatune of {target.name}", nodes))
        self.numatunes[target] = nodes

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        self._record((str(target), f"{sorted(away)} -> {node}"))
        if target not in self.per_node:
            raise Gone(str(target))
        per_node = self.per_node[target]
        for other in away:
            moved = max(per_node.get(other, 0) - self.pages_stay.get(other, 0), 0)
            per_node[other] = per_node.get(other, 0) - moved
            per_node[node] = per_node.get(node, 0) + moved

    def _record(self, write: Write) -> None:
        self.before_write(write)
        self.writes.append(write)

    def _write(self, tid: int, mask: CpuSet) -> None:
        for threads in self.threads.values():
            threads[:] = [replace(t, cpus=mask) if t.tid == tid else t for t in threads]


def defined_guest() -> InMemoryHost:
    """A host with one guest, g1, that has metadata and a definition."""
    host = InMemoryHost()
    host.has_metadata = True
    host.add(emulator(), "0-7")
    host.add(vcpu(0), "0-7")
    host.definitions[vcpu(0).owner] = "<cputune/>"
    return host


def emulator(guest: str = "g1") -> Target:
    return Target("emulator", f"uuid-{guest}", None, guest)


def vcpu(part: int, guest: str = "g1") -> Target:
    return Target("vcpu", f"uuid-{guest}", part, guest)


def vhost(tid: int, guest: str = "g1") -> Target:
    return Target("vhost", f"uuid-{guest}", tid, guest)


def daemon(pid: int, name: str = "busyd") -> Target:
    return Target("process", str(pid), 7, name)


def memory(guest: str = "g1") -> Target:
    return Target("memory", f"uuid-{guest}", 7, guest)


def _pin(target: Target, cpus: CpuSet) -> str:
    """The pin of a target in a definition."""
    return f"[{target.kind} {cpus}]" if target.part is None else f"[{target.kind} {target.part}: {cpus}]"


def _pin_of(target: Target) -> re.Pattern[str]:
    """Finds the pin of a target in a definition. Raises KeyError, as the real host does, where libvirt pins no such."""
    if target.kind not in PINNED:
        raise KeyError(target.kind)
    part = "" if target.part is None else f" {target.part}:"
    return re.compile(rf"\[{target.kind}{part} [^]:]+\]")
