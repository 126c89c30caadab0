from collections.abc import Callable, Collection, Container, Mapping
from contextlib import suppress
from pathlib import Path

from pinner.host import drift
from pinner.host.hardware.sysfs import read_fingerprint, read_topology
from pinner.host.kernel import affinity, files, memory, procfs
from pinner.host.kernel.cpu_clocks import KnownMasks
from pinner.host.kernel.partitions import UnitReader
from pinner.host.processes import lineage, qemu, sampling
from pinner.host.settings import table
from pinner.host.settings.inside.agent import LimitedAgents
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import cell_pins, pinned_by_nova
from pinner.host.virt.libvirt import Libvirt
from pinner.host.virt.libvirt_events import OwnPins
from pinner.model.change import Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.guest.nova import Bounds, NovaOwns, NovaSets
from pinner.model.kinds import KINDS, TargetKind
from pinner.model.machine.process import CpuLimit, Descendants, Lineage, Thread
from pinner.model.machine.topology import Topology
from pinner.model.policy import Drift
from pinner.model.states import PartitionState, State

ROOT = Path("/")
ONLINE = Path("/sys/devices/system/cpu/online")


class LiveHost:
    """This machine, for an apply."""

    guests_at_once = 8
    """libvirtd answers 20 calls at once by default (max_workers), and others ask it too."""

    def __init__(
        self,
        libvirt: Libvirt,
        sets: Callable[[Collection[str]], NovaSets] = lambda _: NovaSets(),
        own_pins: OwnPins | None = None,
    ) -> None:
        """``sets`` gives Nova's present CPU sets; ``own_pins`` gets every pin."""
        self.guests = libvirt
        self._agents = LimitedAgents(libvirt)
        self._sets = sets
        self._qemus: dict[str, ThreadKey] = {}
        self._singles: dict[Target, ThreadMask] = {}
        self._known = KnownMasks()
        self._relatives: Mapping[int, lineage.Relative] = {}
        self._scanned = range(0)
        """The moments (lineage.ticks) for which the scan in ``_relatives`` may serve."""
        self._own_pins = own_pins if own_pins is not None else OwnPins()

    def fingerprint(self) -> str:
        return read_fingerprint(ROOT)

    def online(self) -> CpuSet:
        return files.cpu_list(ONLINE) or CpuSet()

    def bounds(self) -> Bounds:
        domains = self.guests.active()
        sets = self._sets([domain.name for domain in domains if domain.xml.nova is not None])
        marked = frozenset(domain.uuid for domain in domains if domain.xml.excluded)
        cells = frozenset(domain.uuid for domain in domains if cell_pins(domain))
        return Bounds(NovaOwns(sets, tuple(pinned_by_nova(ROOT, domains))), marked, cells)

    def masks(self, target: Target) -> tuple[ThreadMask, ...]:
        kind = KINDS[target.kind]
        if kind.state and kind.state is not PartitionState and kind.has_part == (target.part is not None):
            return ()
        try:
            match target.kind, target.part:
                case ("emulator", None) | ("vcpu" | "iothread", int()):
                    return self._known.masks(target, self._qemus.get(target.owner), lambda: self._of_qemu(target))
                case "process", int(started):
                    if procfs.started(ROOT, int(target.owner)) != started:
                        raise Gone(str(target))
                    return affinity.masks(int(target.owner))
                case "partition", None:
                    threads = sampling.Sampler(ROOT).movable()
                    return tuple(ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads)
                case "vhost", int(tid):
                    return (affinity.mask(tid),)
        except Gone:
            raise Gone(str(target)) from None
        raise Invalid("target", str(target), "a part unless it is an emulator")

    def kernel_threads(self) -> frozenset[ThreadKey]:
        return frozenset(thread.key for thread in sampling.Sampler(ROOT).movable(kernel=True))

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Refuses absent and offline CPUs: libvirt drops them silently, and a failed pin may change the host."""
        online = self.online()
        if not cpus <= online:
            raise ApplyFailed(str(target), f"CPUs {cpus - online} are not online (online: {online})")
        self._own_pins.add(target, cpus)
        try:
            self.guests.pin(target, cpus, persist=persist)
        except ApplyFailed as error:
            limits = [each for each in self.cpu_limits(target.owner) if not cpus <= each.cpus]
            if not limits:
                raise
            why = f"{error.details['why']}; {limits[0]} allows CPUs {limits[0].cpus}"
            raise ApplyFailed(**{**error.details, "why": why}) from None

    set_mask = staticmethod(affinity.set_affinity)

    def lineage(self, target: Target) -> Lineage:
        return lineage.read(int(target.owner) if target.kind == "process" else None)

    def inheritors(
        self, target: Target, since: Lineage, masks: Collection[CpuSet], others: Mapping[ThreadKey, int]
    ) -> Descendants[ThreadMask]:
        if target.kind != "process" or target.part is None:
            return Descendants()
        return lineage.inheritors(int(target.owner), target.part, since, masks, others, lineage.scan())

    def has_inheritors(self, target: Target, since: Lineage, masks: Collection[CpuSet]) -> bool:
        """A rollback of all runs asks for thousands of ended processes: one scan serves for a second, or ten times as
        long as it took, except for a process that got its mask after it began."""
        if target.kind != "process" or target.part is None:
            return False
        pid, started = int(target.owner), target.part
        known, now = self._relatives.get(pid), lineage.ticks()
        is_late = now not in self._scanned or since.since >= self._scanned.start
        if is_late or (known is not None and known.started == started):
            self._relatives = lineage.scan()
            end = lineage.ticks()
            self._scanned = range(now, end + max(procfs.HERTZ, 10 * (end - now)))
        descendants = lineage.inheritors(pid, started, since, masks, {}, self._relatives)
        return bool(descendants.sure or descendants.unsure)

    def state(self, target: Target) -> State:
        return table.state_of(ROOT, target, self._agents)

    def set_state(self, target: Target, state: State) -> None:
        table.set_state(ROOT, target, state, self._agents)

    def cpu_limits(self, guest: str) -> tuple[CpuLimit, ...]:
        return UnitReader(ROOT).limits_of(self._qemu(guest))

    def parts(self, guest: str) -> frozenset[tuple[TargetKind, int]]:
        stats = procfs.stats_of(ROOT, self._qemu(guest))
        roles = (qemu.role(stat.name) for stat in stats if not stat.flags & procfs.PF_NO_SETAFFINITY)
        return frozenset((kind, number) for kind, number in roles if number is not None)

    def defined_pin(self, target: Target, definition: str) -> CpuSet | None:
        return domain_xml.pin_in(definition, target)

    def memory(self, target: Target) -> Mapping[int, int]:
        per_node = qemu.memory_per_node(ROOT, self._first_thread(target))
        self._first_thread(target)
        return per_node

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        memory.migrate(self._first_thread(target), away, node)

    def has_guest(self, guest: str) -> bool:
        try:
            self.guests.persistent(guest)
        except Gone:
            return False
        return True

    def topology(self) -> Topology:
        return read_topology(ROOT)

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        return drift.explain_drifts(ROOT, drifts, self.guests.pin_of)

    def _first_thread(self, target: Target) -> int:
        pid = self._qemu(target.owner)
        if procfs.started(ROOT, pid) != target.part:
            raise Gone(str(target))
        return pid

    def _of_qemu(self, target: Target) -> tuple[ThreadMask, ...]:
        if target.part is None:
            return affinity.masks(self._qemu(target.owner), qemu.is_emulator)
        return (self._single_of_qemu(target, target.part),)

    def _single_of_qemu(self, target: Target, part: int) -> ThreadMask:
        if known := self._singles.get(target):
            with suppress(Gone):
                now = affinity.mask(known.tid)
                if now.started == known.started:
                    return now
            self._singles.pop(target, None)
        roles = qemu.roles(procfs.threads_of(ROOT, self._qemu(target.owner)))
        kinds: Mapping[TargetKind, Mapping[int, Thread]] = {"vcpu": roles.vcpus, "iothread": roles.iothreads}
        if part not in kinds[target.kind]:
            raise Gone(str(target))
        singles = {
            Target(kind, target.owner, number, target.name): ThreadMask(thread.tid, thread.started, thread.affinity)
            for kind, threads in kinds.items()
            for number, thread in threads.items()
        }
        self._singles |= singles
        return singles[target]

    def _qemu(self, guest: str) -> int:
        if known := self._qemus.get(guest):
            with suppress(Gone):
                if procfs.started(ROOT, known.tid) == known.started:
                    return known.tid
            self._qemus.pop(guest, None)
        # One search finds the processes of all guests. Each guest that starts needs one, so what is kept stays bounded.
        self._keep({guest, *self.guests.users})
        qemus = qemu.find(ROOT, {guest, *self.guests.users}, self.guests.users).qemus
        running: dict[str, ThreadKey] = {}
        for uuid, pid in qemus.items():
            if uuid == guest or uuid not in self._qemus:
                with suppress(Gone):
                    self._qemus[uuid] = running[uuid] = ThreadKey(pid, procfs.started(ROOT, pid))
        if guest not in running:
            raise Gone(f"guest {guest}")
        return running[guest].tid

    def _keep(self, guests: Container[str]) -> None:
        self._known.keep(guests)
        for uuid in [known for known in tuple(self._qemus) if known not in guests]:
            self._qemus.pop(uuid, None)
        for target in [known for known in tuple(self._singles) if known.owner not in guests]:
            self._singles.pop(target, None)
