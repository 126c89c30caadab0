"""Nova on a host: its configuration, the CPUs that it owns, and the check that no plan uses them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pinner.model.change import TargetKind
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.plan import Wanted

QEMUS_OWN: tuple[TargetKind, ...] = ("emulator", "vhost", "iothread")
"""The parts of a guest that Nova does not pin, unless the flavor sets hw:emulator_threads_policy."""


@dataclass(frozen=True, slots=True)
class NovaSets:
    """The CPU sets of Nova's configuration; empty: not set."""

    dedicated: CpuSet = CpuSet()
    """cpu_dedicated_set: the CPUs for vCPUs with a CPU of their own."""
    shared: CpuSet = CpuSet()
    """cpu_shared_set: the CPUs for all other vCPUs."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """The options of nova.conf that pinner uses, as written there; empty: not set."""

    files: tuple[str, ...]
    """The files that were read."""
    dedicated: str = ""
    """[compute] cpu_dedicated_set"""
    shared: str = ""
    """[compute] cpu_shared_set"""
    pin_set: str = ""
    """[DEFAULT] vcpu_pin_set of older releases: for all vCPUs, pinned or not."""
    format: str = ""
    """[notifications] notification_format"""
    topics: tuple[str, ...] = ()
    """[notifications] versioned_notifications_topics"""
    drivers: tuple[str, ...] = ()
    """[oslo_messaging_notifications] driver"""
    error: str = ""
    """Why it could not be read."""

    def sets(self) -> NovaSets:
        """The CPU sets; vcpu_pin_set, if set, is the shared one. Raises Invalid with the option's name for a list that
        does not parse or has no CPU, and where the file could not be read."""
        if self.error:
            raise Invalid("nova.conf", ", ".join(self.files), self.error)
        shared = cpus(self.pin_set, "vcpu_pin_set") or cpus(self.shared, "cpu_shared_set")
        return NovaSets(cpus(self.dedicated, "cpu_dedicated_set"), shared)


def configured(ours: NovaSets, conf: NovaConf | None) -> NovaSets:
    """Nova's sets: those of pinner's own configuration (``ours``), and nova.conf's where a set is empty there.

    pinner's own sets come first, because an administrator sets them where nova.conf cannot be read or lacks them.
    Raises Invalid where a set of nova.conf is needed and cannot be read.
    """
    if conf is None or (ours.dedicated and ours.shared):
        return ours
    theirs = conf.sets()
    return NovaSets(ours.dedicated or theirs.dedicated, ours.shared or theirs.shared)


def cpus(text: str, option: str) -> CpuSet:
    """Read a CPU list as Nova does (nova.virt.hardware.parse_cpu_spec): blanks and empty parts do not matter.

    Raises Invalid for a list that does not parse, and for one that is not empty but has no CPU.
    """
    found = CpuSet.parse(",".join(part for part in "".join(text.split()).split(",") if part), option)
    if text.strip() and not found:
        raise Invalid(option, text, "a CPU list that names at least one CPU")
    return found


@dataclass(frozen=True, slots=True)
class NovaGuest:
    """A guest whose vCPUs Nova pinned."""

    uuid: str
    name: str
    cpus: CpuSet
    """The CPUs that Nova dedicates to the guest."""
    floating: bool
    """Whether Nova gives QEMU's own threads no CPUs of their own: then a request may move them."""

    def __str__(self) -> str:
        return f"guest {self.name}, to which Nova dedicates CPUs {self.cpus}"


@dataclass(frozen=True, slots=True)
class NovaOwns:
    """The CPUs and guests of a host that Nova owns."""

    sets: NovaSets = NovaSets()
    guests: tuple[NovaGuest, ...] = ()

    @property
    def dedicated(self) -> CpuSet:
        """The CPUs that pinner may not use."""
        return self.sets.dedicated | union(guest.cpus for guest in self.guests)

    def for_vcpus(self, cpus: CpuSet) -> CpuSet:
        """The CPUs of ``cpus`` that floating vCPUs may use."""
        return cpus & self.sets.shared if self.sets.shared else cpus

    def owners_of(self, cpus: CpuSet) -> Iterator[tuple[str, CpuSet]]:
        """Each owner of CPUs of ``cpus``, for people, with these CPUs."""
        if both := cpus & self.sets.dedicated:
            yield f"Nova's cpu_dedicated_set {self.sets.dedicated}", both
        for guest in self.guests:
            if both := cpus & guest.cpus:
                yield str(guest), both


def require_clear(wanted: Iterable[Wanted], owns: NovaOwns, *, emulators: bool) -> None:
    """Raises NovaConflict with the first of ``wanted`` that uses CPUs or guests of Nova. ``emulators``: QEMU's own
    threads of guests that Nova pinned may be placed, where Nova does not pin them."""
    guests = {guest.uuid: guest for guest in owns.guests}
    # Thousands of threads share a handful of sets: each is checked once.
    clear: set[tuple[bool, CpuSet]] = set()
    for want in wanted:
        kind = want.target.kind
        theirs = guests.get(want.target.owner)
        if theirs is not None and want.state is None and not (emulators and theirs.floating and kind in QEMUS_OWN):
            raise NovaConflict(_ours(want), str(theirs), theirs.cpus)
        if want.state is not None or (kind == "vcpu", want.cpus) in clear:
            continue
        for owner, both in owns.owners_of(want.cpus):
            raise NovaConflict(_ours(want), owner, both)
        if kind == "vcpu" and (outside := want.cpus - owns.for_vcpus(want.cpus)):
            raise NovaConflict(_ours(want), f"Nova's cpu_shared_set {owns.sets.shared}", outside)
        clear.add((kind == "vcpu", want.cpus))


def _ours(want: Wanted) -> str:
    return f"{want.target} on CPUs {want.cpus}"
