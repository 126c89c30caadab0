"""Nova on a host: what its configuration says, whose CPUs are its own, and what no plan may cross."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pinner.model.change import TargetKind
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.plan import Wanted

QEMUS_OWN: tuple[TargetKind, ...] = ("emulator", "vhost", "iothread")
"""What of a guest Nova lets float where no hw:emulator_threads_policy says otherwise."""


@dataclass(frozen=True, slots=True)
class NovaSets:
    """The host's CPUs by Nova's configuration; empty: not set."""

    dedicated: CpuSet = CpuSet()
    """cpu_dedicated_set: for vCPUs with a CPU of their own."""
    shared: CpuSet = CpuSet()
    """cpu_shared_set: for all other vCPUs."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """nova.conf as far as it matters here, in its own words; empty: it does not say it."""

    files: tuple[str, ...]
    dedicated: str = ""
    """[compute] cpu_dedicated_set"""
    shared: str = ""
    """[compute] cpu_shared_set"""
    pin_set: str = ""
    """[DEFAULT] vcpu_pin_set, of old: for all vCPUs, pinned or not."""
    format: str = ""
    """[notifications] notification_format"""
    topics: tuple[str, ...] = ()
    """[notifications] versioned_notifications_topics"""
    drivers: tuple[str, ...] = ()
    """[oslo_messaging_notifications] driver"""
    error: str = ""
    """Why it could not be read."""

    def sets(self) -> NovaSets:
        """The CPU sets; of old, vcpu_pin_set was the shared one. Raises Invalid, naming the option, for one that does
        not parse or holds no CPU, and where the file could not be read."""
        if self.error:
            raise Invalid("nova.conf", ", ".join(self.files), self.error)
        shared = cpus(self.pin_set, "vcpu_pin_set") or cpus(self.shared, "cpu_shared_set")
        return NovaSets(cpus(self.dedicated, "cpu_dedicated_set"), shared)


def configured(ours: NovaSets, conf: NovaConf | None) -> NovaSets:
    """Nova's sets: those that pinner was told itself (``ours``), and each that it was not told by nova.conf.

    pinner's own go first, since they are set by hand where nova.conf cannot be read or does not say it all. Raises
    Invalid where nova.conf should say one and cannot.
    """
    if conf is None or (ours.dedicated and ours.shared):
        return ours
    theirs = conf.sets()
    return NovaSets(ours.dedicated or theirs.dedicated, ours.shared or theirs.shared)


def cpus(text: str, option: str) -> CpuSet:
    """Read a CPU list as Nova does (nova.virt.hardware.parse_cpu_spec): blanks and empty parts do not matter.

    Raises Invalid for one that does not parse, and for one that says something and holds no CPU.
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
    """Those that Nova dedicates to it."""
    floating: bool
    """Whether Nova gives QEMU's own threads no CPUs of their own: then a request may move them."""

    def __str__(self) -> str:
        return f"guest {self.name}, to which Nova dedicates CPUs {self.cpus}"


@dataclass(frozen=True, slots=True)
class NovaOwns:
    """What of a host is Nova's."""

    sets: NovaSets = NovaSets()
    guests: tuple[NovaGuest, ...] = ()

    @property
    def dedicated(self) -> CpuSet:
        """The CPUs that nobody else may use."""
        return self.sets.dedicated | union(guest.cpus for guest in self.guests)

    def for_vcpus(self, cpus: CpuSet) -> CpuSet:
        """Those of ``cpus`` that floating vCPUs may use."""
        return cpus & self.sets.shared if self.sets.shared else cpus

    def owners_of(self, cpus: CpuSet) -> Iterator[tuple[str, CpuSet]]:
        """Who dedicates CPUs of ``cpus``, for people, and which."""
        if both := cpus & self.sets.dedicated:
            yield f"Nova's cpu_dedicated_set {self.sets.dedicated}", both
        for guest in self.guests:
            if both := cpus & guest.cpus:
                yield str(guest), both


def require_clear(wanted: Iterable[Wanted], owns: NovaOwns, *, emulators: bool) -> None:
    """Raises NovaConflict with the first of ``wanted`` that crosses what Nova owns. ``emulators``: QEMU's own threads
    of guests that Nova pinned may be placed, where Nova lets them float."""
    guests = {guest.uuid: guest for guest in owns.guests}
    # Thousands of threads share a handful of sets: each is looked at once.
    clear: set[tuple[bool, CpuSet]] = set()
    for want in wanted:
        kind = want.target.kind
        theirs = guests.get(want.target.owner)
        if theirs is not None and not want.state and not (emulators and theirs.floating and kind in QEMUS_OWN):
            raise NovaConflict(_ours(want), str(theirs), theirs.cpus)
        if want.state or (kind == "vcpu", want.cpus) in clear:
            continue
        for owner, both in owns.owners_of(want.cpus):
            raise NovaConflict(_ours(want), owner, both)
        if kind == "vcpu" and (outside := want.cpus - owns.for_vcpus(want.cpus)):
            raise NovaConflict(_ours(want), f"Nova's cpu_shared_set {owns.sets.shared}", outside)
        clear.add((kind == "vcpu", want.cpus))


def _ours(want: Wanted) -> str:
    return f"{want.target} on CPUs {want.cpus}"
