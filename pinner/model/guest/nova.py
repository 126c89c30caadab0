"""Nova on a host: its configuration, its CPUs, the check that no plan uses them, and `pinner nova check`'s report."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pinner.model.cpuset import MAX_CPUS, MAX_LENGTH, CpuSet, union
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.kinds import QEMUS_OWN
from pinner.model.plan.plan import Wanted

PowerStrategy = Literal["cpu_state", "governor"]
"""What Nova does to a dedicated CPU without a guest: it takes it offline, or gives it a slow governor."""


@dataclass(frozen=True, slots=True)
class NovaSets:
    """Empty: not set."""

    dedicated: CpuSet = CpuSet()
    shared: CpuSet = CpuSet()
    """cpu_shared_set: for vCPUs without a CPU of their own."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """nova.conf's options that pinner uses, as written; empty: not set."""

    files: tuple[str, ...]
    """Files that were read."""
    dedicated: str = ""
    """[compute] cpu_dedicated_set"""
    shared: str = ""
    """[compute] cpu_shared_set"""
    pin_set: str = ""
    """[DEFAULT] vcpu_pin_set of older releases: for all vCPUs."""
    format: str = ""
    """[notifications] notification_format"""
    topics: tuple[str, ...] = ()
    """[notifications] versioned_notifications_topics"""
    drivers: tuple[str, ...] = ()
    """[oslo_messaging_notifications] driver, with its old name"""
    error: str = ""
    """Why it could not be read."""
    reserved_cpus: int = 0
    """[DEFAULT] reserved_host_cpus"""
    power_management: bool = False
    """[libvirt] cpu_power_management"""
    power_strategy: PowerStrategy = "cpu_state"
    """[libvirt] cpu_power_management_strategy; it needs cpu_power_management."""
    governor_high: str = "performance"
    """[libvirt] cpu_power_governor_high"""
    compute_driver: str = ""
    """[DEFAULT] compute_driver"""
    is_durable: bool = False
    """Whether Nova's queues outlive the broker: [oslo_messaging_rabbit] amqp_durable_queues, or quorum queues."""
    is_quorum: bool = False
    """[oslo_messaging_rabbit] rabbit_quorum_queue"""
    source: str = ""
    """The process, deployment or option of pinner that names the files."""
    process: int | None = None
    """nova-compute's process id; None: the configuration is not from a process."""
    changed: tuple[str, ...] = ()
    """Files changed after nova-compute's start: it still uses their earlier content."""
    is_missing: bool = False
    """Neither nova-compute's process nor its configuration was found."""
    ignored_processes: tuple[str, ...] = ()
    """Processes that claim to be nova-compute and are not believed, each with the reason."""
    old_drivers: tuple[str, ...] = ()
    """[DEFAULT] notification_driver, which Nova 31 and newer ignore."""

    @property
    def switches_cpus_off(self) -> bool:
        return self.power_management and self.power_strategy == "cpu_state"

    @property
    def sets_governors(self) -> bool:
        """Dedicated CPUs stay online then."""
        return self.power_management and self.power_strategy == "governor"

    def sets(self) -> NovaSets:
        """vcpu_pin_set, if set, is the shared one. Raises Invalid with the option where nova-compute does not start: a
        list that does not parse or has no CPU, options that exclude each other, an unreadable configuration."""
        if self.error:
            named = " of ".join(filter(None, (", ".join(self.files), self.source)))
            raise Invalid("nova.conf", named, f"{self.error}; {_REMEDY}")
        pin_set, shared = cpus(self.pin_set, "vcpu_pin_set"), cpus(self.shared, "cpu_shared_set")
        sets = NovaSets(cpus(self.dedicated, "cpu_dedicated_set"), pin_set or shared)
        for conflict in conflicts(self, sets):
            raise Invalid(conflict.option, conflict.value, conflict.why)
        return sets


_REMEDY = (
    "correct or permit the file, or name other files in [nova] nova_conf of pinner.conf, or set ignore_nova_conf = true"
)


@dataclass(frozen=True, slots=True)
class Conflict:
    option: str
    value: str
    why: str
    line: str
    """Corrected."""


def conflicts(conf: NovaConf, sets: NovaSets) -> Iterator[Conflict]:
    """LibvirtDriver._check_cpu_set_configuration."""
    if conf.pin_set:
        if sets.dedicated:
            why = "Nova does not start with both vcpu_pin_set and cpu_dedicated_set; use cpu_shared_set instead"
            line = set_line("cpu_shared_set", sets.shared - sets.dedicated)
            yield Conflict("vcpu_pin_set", conf.pin_set, why, line)
        return
    if both := sets.dedicated & sets.shared:
        why = f"CPUs {both} are also in cpu_dedicated_set, and Nova does not start with both"
        line = set_line("cpu_shared_set", sets.shared - both)
        yield Conflict("cpu_shared_set", conf.shared, why, line)
    if conf.reserved_cpus and (sets.dedicated or sets.shared):
        why = "Nova does not start with both reserved_host_cpus and a CPU set"
        yield Conflict("reserved_host_cpus", str(conf.reserved_cpus), why, "reserved_host_cpus = 0")


def set_line(option: str, *choices: CpuSet) -> str:
    """The line of nova.conf with the first of ``choices`` that has CPUs; else a comment: Nova refuses an empty set."""
    chosen = next(filter(None, choices), None)
    return f"{option} = {chosen}" if chosen else f"#{option}"


def configured(ours: NovaSets, conf: NovaConf | None, guests: Collection[str] = ()) -> NovaSets:
    """pinner's own sets (``ours``), else nova.conf's; ``guests``: names of Nova's. Raises Invalid where nova.conf is
    needed and unreadable, or missing although Nova has guests."""
    if conf is None or (ours.dedicated and ours.shared):
        return ours
    if conf.is_missing and guests:
        raise Invalid("nova_conf", "(automatic)", missing(guests))
    theirs = conf.sets()
    return NovaSets(ours.dedicated or theirs.dedicated, ours.shared or theirs.shared)


def missing(guests: Collection[str]) -> str:
    return (
        f"the path of Nova's configuration; Nova manages {len(guests)} guests here ({min(guests)} is one), but pinner "
        "finds neither a nova-compute process nor a configuration of Nova; if Nova has no other CPU sets than those of "
        "pinner.conf, set ignore_nova_conf = true"
    )


def cpus(text: str, option: str) -> CpuSet:
    """Nova's grammar: numbers as Python reads them, ranges, blanks, and ``^`` before excluded ones. Raises Invalid,
    also for a list with text and no CPU."""
    included: set[int] = set()
    excluded: set[int] = set()
    if len(text) > MAX_LENGTH:
        raise Invalid(option, text[:80], f"a CPU list of at most {MAX_LENGTH} characters")
    for part in filter(None, (part.strip() for part in text.split(","))):
        (excluded if part.startswith("^") else included).update(_range(part, text, option))
    if text and not included - excluded:
        raise Invalid(option, text, "a CPU list that names at least one CPU")
    return CpuSet.of(included - excluded)


def _range(part: str, text: str, option: str) -> range:
    start, dash, end = part.removeprefix("^").partition("-")
    try:
        first = int(start)
        last = int(end) if dash else first
    except ValueError:
        why = f"Nova refuses {part!r}: a number, a range such as 4-7, or one of them after ^"
        raise Invalid(option, text, f"a CPU list such as 0-15,^4; {why}") from None
    if first > last:
        raise Invalid(option, text, f"a CPU list such as 0-15,^4; Nova refuses {part!r}: it runs backwards")
    if last >= MAX_CPUS:
        raise Invalid(option, text, f"a CPU list such as 0-15,^4; no CPU has a number of {MAX_CPUS} or more")
    return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class NovaGuest:
    uuid: str
    name: str
    cpus: CpuSet
    floating: bool
    """QEMU's own threads have no CPUs of their own: a request may move them."""

    def __str__(self) -> str:
        return f"guest {self.name}, to which Nova dedicates CPUs {self.cpus}"


@dataclass(frozen=True, slots=True)
class NovaOwns:
    sets: NovaSets = NovaSets()
    guests: tuple[NovaGuest, ...] = ()

    @property
    def dedicated(self) -> CpuSet:
        return self.sets.dedicated | union(guest.cpus for guest in self.guests)

    def for_vcpus(self, cpus: CpuSet) -> CpuSet:
        return cpus & self.sets.shared if self.sets.shared else cpus

    def owners_of(self, cpus: CpuSet) -> Iterator[tuple[str, CpuSet]]:
        if both := cpus & self.sets.dedicated:
            yield f"Nova's cpu_dedicated_set {self.sets.dedicated}", both
        for guest in self.guests:
            if both := cpus & guest.cpus:
                yield str(guest), both


def require_clear(wanted: Iterable[Wanted], owns: NovaOwns, *, emulators: bool) -> None:
    """Raises NovaConflict with the first of ``wanted`` that uses CPUs or guests of Nova. ``emulators``: QEMU's own
    threads may be placed where Nova does not pin them."""
    if owns == NovaOwns():
        return
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


@dataclass(frozen=True, slots=True)
class Bounds:
    nova: NovaOwns = field(default_factory=NovaOwns)
    excluded: frozenset[str] = frozenset()
    """UUIDs (Guest.excluded)."""
    cells: frozenset[str] = frozenset()
    """UUIDs of guests with Nova's pins, which keep vCPUs in their cells' nodes."""


DEFAULT_TOPIC = "versioned_notifications"
"""Nova's default, to which other programs may listen, too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """[nova_listener] of pinner's configuration."""

    topics: tuple[str, ...] = (DEFAULT_TOPIC,)
    pool: str = "pinner"
    """pinner's own queue beside other listeners'; empty: none."""
    is_durable: bool = False
    is_quorum: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    """The option, guest or service."""
    why: str
    remedy: str
    """The corrected line, or a command; empty: none is right."""
    where: str
    """File and section of the line; empty for a command."""


@dataclass(frozen=True, slots=True)
class NovaReport:
    host: str
    files: tuple[str, ...]
    """Nova's; none: the host has no Nova."""
    dedicated: CpuSet
    """cpu_dedicated_set"""
    shared: CpuSet
    """cpu_shared_set"""
    guests: tuple[NovaGuest, ...]
    """Those that Nova pinned."""
    unused: CpuSet
    """Nova's CPUs that are offline, for instance powered down by Nova."""
    for_vcpus: CpuSet
    """For floating vCPUs; housekeeping and emulators use them, too."""
    for_others: CpuSet
    """For busy processes and emulator threads."""
    findings: tuple[Finding, ...]
    source: str = ""
    """What names the files."""
