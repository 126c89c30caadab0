from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Literal, get_args

from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import Invalid
from pinner.model.kinds import SettingName
from pinner.model.plan.objective import checked_weights
from pinner.model.settings.cards import ADAPTIVE
from pinner.model.settings.sysctls import SYSCTLS

AUTO = "auto"
EXCLUSIVE = "exclusive"
ISOLATED = "isolated"
OPTIMAL = "optimal"
"""``isolated`` with a proof that its placement is the best."""
ISOLATING = (ISOLATED, OPTIMAL)
ONE_TO_ONE = (EXCLUSIVE, *ISOLATING)
DEFAULT = "shared-pool"
MANUAL = "manual"
"""The strategy of a request with a placement by hand."""
MAX_BUDGET = 1_000_000
MOST_PERCENT = 100 * MAX_CPUS
"""All CPUs of the largest host."""
MAX_MOVES = 100
Smt = Literal["prefer", "isolate", "require"]
Isolating = Literal["boot", "live"]

FIXES: Mapping[str, SettingName] = {
    "cpu-deep-idle": "resume-latency",
    "cpu-slow-governor": "governors",
    "host-delays-vcpus": "cpu-weights",
    "irq-off-node": "irqs",
    "irq-on-guest-cpus": "irqs",
    "irqbalance-unbanned": "irqbalance",
    ADAPTIVE: "coalescing",
    "nic-no-coalescing": "coalescing",
    "nic-single-queue": "queues",
    "nic-small-ring": "rings",
    "rps-on-guest-cpus": "rps",
    **{code: "sysctls" for rule in SYSCTLS.values() for code in rule.codes},
}
"""By code."""


SETS = ("housekeeping", "emulator", "vcpus")
"""Fields of a request that are a CPU list or ``auto``."""
_NOT_BESIDE_PLACEMENT = {
    *SETS,
    "busy_threshold",
    "fix",
    "isolation",
    "rebalance",
    "remedies",
    "smt",
    "solver_budget",
    "with_processes",
}
"""Fields of a request that a placement by hand would not read."""
PinKind = Literal["vcpu", "emulator", "iothread", "all", "process"]
NUMBERED = ("vcpu", "iothread")


@dataclass(frozen=True, slots=True)
class RequestedPin:
    """The CPUs of a part of a guest, or of a process. Raises Invalid where it cannot be right on any host."""

    owner: str
    """The name or UUID of the guest, the name or pid of the process."""
    kind: PinKind
    """The part of the guest (emulator: with the vhost threads; all: all its threads), or process."""
    cpus: CpuSet
    """Where its threads may run."""
    part: int | None = None
    """The number of the vCPU or iothread; null for the other kinds."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(PinKind):
            raise Invalid("placement", str(self), f"a part of the kind {', '.join(get_args(PinKind))}")
        if (self.part is None) == (self.kind in NUMBERED) or not 0 <= (self.part or 0) < MAX_CPUS:
            expected = f"a number from 0 to {MAX_CPUS - 1} with {' and '.join(NUMBERED)}, and none with another kind"
            raise Invalid("placement", str(self), expected)
        if not self.cpus:
            raise Invalid("placement", str(self), "a CPU list that names at least one CPU")

    @property
    def subject(self) -> str:
        return f"{self.owner} {self.kind}{'' if self.part is None else f' {self.part}'}"

    def __str__(self) -> str:
        return f"{self.subject}={self.cpus}"


def _require_once(pins: Sequence[RequestedPin]) -> None:
    """``pins`` are sorted. Raises Invalid."""
    for pin, other in pairwise(pins):
        if pin.subject == other.subject:
            raise Invalid("placement", str(pin), f"each part once; {other} is named, too")
        if pin.kind == "all" and pin.owner == other.owner and other.kind != "process":
            raise Invalid("placement", str(pin), f"all threads of a guest, or parts of it; {other} is named, too")


@dataclass(frozen=True, slots=True)
class Request:
    """A strategy with its parameters. Raises Invalid where a value cannot be right on any host."""

    strategy: str = DEFAULT
    guests: tuple[str, ...] = ()
    """Names or UUIDs of those to place, even ones that an operator pinned; none: all others and busy processes."""
    processes: tuple[str, ...] = ()
    """Names or pids of processes to move although they are idle, or their owner restricted their affinity."""
    housekeeping: str = AUTO
    """CPUs of the host's busy processes: a list such as 0-3,8, or `auto`."""
    emulator: str = AUTO
    """A CPU list, or ``auto``."""
    busy_threshold: float = 2.0
    """Per cent of one CPU; a process above it is busy."""
    smt: Smt = "prefer"
    """As in Nova: prefer = use sibling threads; isolate = leave them idle; require = use only cores that have them."""
    isolation: Isolating = "boot"
    """For ``isolated``: boot = CPUs that the kernel's arguments isolate; live = cgroup v2 partitions made now."""
    released_guests: tuple[str, ...] = field(default=(), metadata={"exclude_if": lambda names: not names})
    """Names or UUIDs of guests to place also outside their definition's CPUs (<vcpu cpuset>) and an operator's pins;
    they may be absent. JSON leaves it out where it is empty."""
    excluded_guests: tuple[str, ...] = ()
    """Names or UUIDs to skip; they may be absent."""
    excluded_processes: tuple[str, ...] = ()
    """Names or systemd units to skip; they may be absent."""
    nova_emulators: bool = False
    """Also place QEMU's own threads of guests that Nova pinned, where Nova gives them no CPUs."""
    minimum_cores: int | None = None
    """Fewest cores of each node for housekeeping, for emulators and for vCPUs; null: [host] minimum_cores."""
    rebalance: bool = False
    """Place all guests anew where that lowers the objective; otherwise well placed guests stay."""
    with_processes: bool = False
    """Also move busy processes if ``guests`` names guests; a request for all guests always does."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of terms of the objective that this request sets; [objective] of the configuration has others."""
    moves: int = 2
    """Placed guests that one plan may move, to make room for new guests or to place them better."""
    solver_budget: int = 1000
    """For ``optimal``: nodes of its search tree that the solver may visit; in large models fewer."""
    remedies: tuple[SettingName, ...] = field(
        default=(),
        metadata={
            "alias": "with",
            "exclude_if": lambda names: not names,
            "description": "What the plan changes besides the CPUs of threads; left out where it changes nothing else.",
        },
    )
    """What the plan changes besides CPUs of threads. JSON calls it ``with``, and leaves it out where it is empty: a
    request without it keeps its hash."""
    fix: tuple[str, ...] = field(default=(), metadata={"exclude_if": lambda codes: not codes})
    """Codes of findings (`pinner check`) that the plan cures, without other changes, except those of ``remedies``. JSON
    leaves it out where it is empty."""
    vcpus: str = field(default=AUTO, metadata={"exclude_if": lambda cpus: cpus == AUTO})
    """CPUs for vCPUs, not isolated ones: a list, or ``auto``: what the other sets leave. JSON leaves ``auto`` out."""
    placement: tuple[RequestedPin, ...] = field(default=(), metadata={"exclude_if": lambda pins: not pins})
    """CPUs for parts of guests and for processes, by hand: the plan places these alone. ``guests`` and ``processes``
    name their owners then, and the strategy is ``manual``. JSON leaves it out where it is empty."""
    irq_cpus: Mapping[str, str] = field(default_factory=dict, metadata={"exclude_if": lambda devices: not devices})
    """Housekeeping CPUs for the interrupts of a device, by its interface or PCI address, beside ``with`` irqs. JSON
    leaves it out where it is empty."""

    def __post_init__(self) -> None:
        if not 0 <= self.busy_threshold <= MOST_PERCENT:
            raise Invalid("busy_threshold", self.busy_threshold, f"a number of per cent from 0 to {MOST_PERCENT}")
        if self.minimum_cores is not None and not 1 <= self.minimum_cores <= MAX_CPUS:
            raise Invalid("minimum_cores", self.minimum_cores, f"a number of cores from 1 to {MAX_CPUS}")
        if not 0 <= self.solver_budget <= MAX_BUDGET:
            raise Invalid("solver_budget", self.solver_budget, f"a number of search nodes from 0 to {MAX_BUDGET}")
        for name in SETS:
            value = getattr(self, name)
            if value != AUTO and not CpuSet.parse(value, name):
                raise Invalid(name, value, "auto, or a CPU list that names at least one CPU")
        if self.smt not in ("prefer", "isolate", "require"):
            raise Invalid("smt", self.smt, "prefer, isolate or require")
        if self.isolation not in ("boot", "live"):
            raise Invalid("isolation", self.isolation, "boot or live")
        if not (isinstance(self.moves, int) and 0 <= self.moves <= MAX_MOVES):
            raise Invalid("moves", self.moves, f"a number of guests from 0 to {MAX_MOVES}")
        if unknown := sorted(set(self.remedies) - {*get_args(SettingName)}):
            raise Invalid("with", ", ".join(unknown), f"some of: {', '.join(get_args(SettingName))}")
        object.__setattr__(self, "remedies", tuple(sorted(set(self.remedies))))
        object.__setattr__(self, "fix", self._checked_fix())
        object.__setattr__(self, "weights", checked_weights(self.weights))
        self._follow_placement()
        self._require_irq_cpus()

    def _follow_placement(self) -> None:
        """Raises Invalid."""
        if not self.placement:
            return
        pins = tuple(
            sorted(self.placement, key=lambda pin: (pin.kind == "process", pin.owner, pin.kind, pin.part or 0))
        )
        _require_once(pins)
        owners = {
            "guests": tuple(dict.fromkeys(pin.owner for pin in pins if pin.kind != "process")),
            "processes": tuple(dict.fromkeys(pin.owner for pin in pins if pin.kind == "process")),
        }
        for each in fields(self):
            if each.name in _NOT_BESIDE_PLACEMENT and (value := getattr(self, each.name)) != each.default:
                raise Invalid(each.metadata.get("alias", each.name), value, "not set beside a placement")
        for name, named in owners.items():
            if getattr(self, name) not in ((), named):
                raise Invalid(name, getattr(self, name), "not set beside a placement, which names its own")
        if self.strategy not in (MANUAL, DEFAULT):
            raise Invalid("strategy", self.strategy, f"{MANUAL}, or not set, beside a placement")
        for name, followed in (owners | {"placement": pins, "strategy": MANUAL}).items():
            object.__setattr__(self, name, followed)

    def _checked_fix(self) -> tuple[str, ...]:
        if unknown := [code for code in self.fix if code not in FIXES]:
            known = ", ".join(sorted(FIXES))
            expected = f"one of: {known}; for other findings, set the lines by hand that a check shows"
            raise Invalid("fix", unknown[0], expected)
        return tuple(sorted(set(self.fix)))

    def _require_irq_cpus(self) -> None:
        if self.irq_cpus and not self.asks_for("irqs"):
            raise Invalid("irq_cpus", ", ".join(self.irq_cpus), "none, or beside `with` irqs")
        for device, cpus in self.irq_cpus.items():
            if not CpuSet.parse(cpus, "irq_cpus"):
                raise Invalid("irq_cpus", f"{device}={cpus}", "a CPU list that names at least one CPU")

    def asks_for(self, setting: SettingName) -> bool:
        return setting in self.remedies or any(FIXES[code] == setting for code in self.fix)
