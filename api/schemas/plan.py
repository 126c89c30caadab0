"""The schemas of a new plan, of a new policy, and of a what-if question."""

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from pinner.api.schemas.inputs import MAX_NAMES, BusyThreshold, CpuList, Input, Name, Names, Seconds, Whole
from pinner.model.cpuset import MAX_CPUS, MAX_LENGTH, CpuSet
from pinner.model.kinds import REMEDIES, SettingName
from pinner.model.plan.objective import MOST_WEIGHT
from pinner.model.plan.request import (
    FIXES,
    MAX_BUDGET,
    MAX_MOVES,
    NUMBERED,
    Isolating,
    PinKind,
    Request,
    RequestedPin,
    Smt,
)
from pinner.model.policy import Mode, Policy, Setback
from pinner.model.questions import MAX_MEMORY_KIB, MAX_NEW_GUESTS, GuestShape, NewGuests, Scenario

_DEFAULT = Request()

_Weight = Annotated[
    Annotated[float, Field(ge=0, le=MOST_WEIGHT)] | None,
    Field(description="The factor of the term in its tier; 0: it does not count. Default: that of [objective]."),
]


class Weights(Input):
    """The weights of the objective's terms."""

    unplaced_guests: _Weight = None
    extra_nodes: _Weight = None
    remote_memory: _Weight = None
    shared_cores: _Weight = None
    extra_l3: _Weight = None
    host_overload: _Weight = None
    qemu_overload: _Weight = None
    vcpu_overload: _Weight = None
    vcpu_vs_host: _Weight = None
    vcpu_vs_emulator: _Weight = None
    emulator_vs_host: _Weight = None
    overcommit: _Weight = None
    remote_devices: _Weight = None
    paired_vcpus: _Weight = None
    moved_threads: _Weight = None
    moved_memory: _Weight = None


class NewPin(Input):
    """CPUs for a part of a guest, or for a process."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"enum": [*NUMBERED]}}},
            "then": {"required": ["part"], "properties": {"part": {"type": "integer"}}},
            "else": {"properties": {"part": {"type": "null"}}},
        }
    )

    owner: Name
    """The name or UUID of the guest, or the name or id of the process."""
    kind: PinKind
    """A vCPU, an iothread, the emulator with the vhost threads, or all threads of the guest; or a process of the
    host."""
    part: Annotated[int, Field(ge=0, lt=MAX_CPUS), Whole] | None = None
    """The number of the vCPU or iothread; null for other kinds."""
    cpus: Annotated[str, Field(min_length=1, max_length=MAX_LENGTH, json_schema_extra={"format": "cpu-ids"})]
    """The CPUs where its threads may run, such as 0-3,8."""

    def pin(self) -> RequestedPin:
        """Raises Invalid."""
        return RequestedPin(self.owner, self.kind, CpuSet.parse(self.cpus, "placement.cpus"), self.part)


class PlanParameters(Input):
    """A strategy and its parameters."""

    strategy: Name = _DEFAULT.strategy
    """The name of a strategy, as GET /v1/strategies lists it."""
    guests: Names = _DEFAULT.guests
    with_processes: bool = _DEFAULT.with_processes
    processes: Names = _DEFAULT.processes
    housekeeping: CpuList = _DEFAULT.housekeeping
    emulator: CpuList = _DEFAULT.emulator
    vcpus: CpuList = _DEFAULT.vcpus
    busy_threshold: BusyThreshold = _DEFAULT.busy_threshold
    smt: Smt = _DEFAULT.smt
    isolation: Isolating = _DEFAULT.isolation
    solver_budget: Annotated[int, Field(ge=0, le=MAX_BUDGET), Whole] = _DEFAULT.solver_budget
    released_guests: Names = _DEFAULT.released_guests
    excluded_guests: Names = _DEFAULT.excluded_guests
    excluded_processes: Names = _DEFAULT.excluded_processes
    nova_emulators: bool = _DEFAULT.nova_emulators
    minimum_cores: Annotated[int, Field(ge=1, le=MAX_CPUS), Whole] | None = _DEFAULT.minimum_cores
    rebalance: bool
    weights: Annotated[Weights, Field(default_factory=Weights)]

    moves: Annotated[int, Field(ge=0, le=MAX_MOVES), Whole] = _DEFAULT.moves
    remedies: Annotated[
        tuple[SettingName, ...],
        Field(
            alias="with",
            max_length=MAX_NAMES,
            description="What the plan changes besides the CPUs of threads. "
            + " ".join(f"{kind.remedy}: {kind.summary}." for kind in REMEDIES.values()),
        ),
    ] = _DEFAULT.remedies
    irq_cpus: Annotated[dict[Name, CpuList], Field(max_length=MAX_NAMES, default_factory=dict)]
    # A factory keeps the default, which is shorter, out of the schema.
    placement: Annotated[tuple[NewPin, ...], Field(min_length=1, max_length=MAX_NAMES, default_factory=tuple)]
    """CPUs by hand, each part once: the plan places these parts alone, and the strategy is `manual`. Beside it, no
    parameter is set that chooses what the plan changes, or where. Where a part has these CPUs by an operator's pin, the
    pin becomes pinner's; a rollback gives it back."""

    def request(self) -> Request:
        """Raises Invalid."""
        fields = {name: getattr(self, name) for name in Request.__dataclass_fields__ if hasattr(self, name)}
        pins = tuple(pin.pin() for pin in self.placement)
        return Request(**(fields | {"weights": self.weights.model_dump(exclude_none=True), "placement": pins}))


Fix = Annotated[
    tuple[Annotated[Name, Field(json_schema_extra={"enum": sorted(FIXES)})], ...],
    Field(
        max_length=MAX_NAMES,
        description="The codes of findings (`GET /v1/hosts/{host}/findings`). The plan then changes only what cures "
        "these findings, and what `with` names; guests and processes stay.",
    ),
]


class NewPlan(PlanParameters):
    """A strategy with its parameters, and the snapshot to plan from."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["snapshot"], "properties": {"snapshot": {"type": "string"}}},
            "then": {"properties": {"sample_seconds": {"type": "null"}}},
        }
    )

    fix: Fix = _DEFAULT.fix
    rebalance: bool = _DEFAULT.rebalance
    snapshot: Name | None = None
    """The id of a stored snapshot. By default pinner takes a new one."""
    sample_seconds: Seconds | None = None
    """Seconds over which CPU use is measured; 0: it is not measured. Default: [host] sample_seconds. Null beside
    `snapshot`, which has the CPU use of its own time."""
    replaces: Name | None = None
    """The id of a plan of the host by the same request, which an apply found stale or the agent refused, and which was
    not applied. The audit trail names this plan as its successor."""

    @field_validator("sample_seconds")
    @classmethod
    def _without_snapshot(cls, value: float | None, others: ValidationInfo) -> float | None:
        if value is not None and others.data.get("snapshot") is not None:
            raise ValueError("null beside snapshot, which has the CPU use of its own time")
        return value


class AskedRequest(PlanParameters):
    """A strategy with its parameters, for a plan that is not stored."""

    rebalance: bool = _DEFAULT.rebalance


def _require_false(value: bool) -> bool:
    """Literal[False] would also accept the number 0."""
    if value:
        raise ValueError("false: a policy never rebalances")
    return value


class PolicyRequest(PlanParameters):
    """The strategy of a policy, with its parameters. A policy never rebalances: it moves as few guests as possible."""

    fix: Fix = _DEFAULT.fix
    rebalance: Annotated[bool, AfterValidator(_require_false), Field(json_schema_extra={"const": False})] = False
    """false: a policy never rebalances."""


class NewPolicy(Input):
    """The new policy of a host."""

    mode: Mode = "observe"
    """observe: report drift; propose: also store a plan that corrects the drift; enforce: also apply the plan."""
    request: Annotated[PolicyRequest, Field(default_factory=PolicyRequest)]
    """The strategy and its parameters."""
    undo_if_worse: bool = False
    setback: Annotated[Setback | None, Field(json_schema_extra={"readOnly": True})] = None
    """Read-only. It is ignored, so that a policy that was read can be sent back."""

    def policy(self) -> Policy:
        """Raises Invalid."""
        return Policy(self.request.request(), self.mode, self.undo_if_worse)


_MOST = 64
"""Shapes of new guests, and nodes, in one question."""


class NewShape(Input):
    """The size of a guest."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["page_kib"], "properties": {"page_kib": {"exclusiveMinimum": 0}}},
            "then": {"required": ["memory_kib"], "properties": {"memory_kib": {"exclusiveMinimum": 0}}},
        }
    )

    vcpus: Annotated[int, Field(ge=1, le=MAX_CPUS), Whole]
    memory_kib: Annotated[int, Field(ge=0, le=MAX_MEMORY_KIB), Whole] = 0
    page_kib: Annotated[int, Field(ge=0, le=MAX_MEMORY_KIB), Whole] = 0


class AddedGuests(Input):
    """Guests of one shape that have just started."""

    shape: NewShape
    count: Annotated[int, Field(ge=1, le=MAX_NEW_GUESTS), Whole] = 1
    strategy: Name = ""

    def guests(self) -> NewGuests:
        """Raises Invalid."""
        shape = GuestShape(self.shape.vcpus, self.shape.memory_kib, self.shape.page_kib)
        return NewGuests(shape, self.count, self.strategy)


class NewScenario(Input):
    """A request for a host, and the differences of the host of the question."""

    request: Annotated[AskedRequest, Field(default_factory=AskedRequest)]
    """The request for the host as it is."""
    then: AskedRequest | None = None
    """The request for the host of the question; null: the same."""
    add: Annotated[tuple[AddedGuests, ...], Field(max_length=_MOST)] = ()
    """The guests that the host also has."""
    remove: Names = ()
    """Names or UUIDs of the guests that it does not have."""
    without_nodes: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_CPUS), Whole], ...], Field(max_length=_MOST)] = ()
    """The NUMA nodes that it does not have, with their CPUs and memory."""
    without_cpus: Annotated[str, Field(max_length=MAX_LENGTH, json_schema_extra={"format": "cpu-ids"})] = ""
    """The CPUs that are switched off, such as 0-3,8; empty: none."""
    sample_seconds: Seconds = 0.0

    def scenario(self) -> Scenario:
        """Raises Invalid."""
        return Scenario(
            tuple(addition.guests() for addition in self.add),
            self.remove,
            self.without_nodes,
            CpuSet.parse(self.without_cpus, "without_cpus"),
            None if self.then is None else self.then.request(),
        )
