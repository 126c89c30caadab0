"""The schemas of requests, and of the answers that are not values of pinner.model.

Requests have models of their own, which refuse unknown fields. Most answers are values of pinner.model or of
pinner.service.protocol: their views say RootModel[Plan], for example.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from apiflask.schema_adapters import registry
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pinner.api.field_types import BusyThreshold, CpuList, Name, Names, Scalar, Seconds, ShortText, Timestamp
from pinner.api.validation import StrictAdapter
from pinner.model.agent_audit import Anchor, SignedHead
from pinner.model.audit import Caller
from pinner.model.cpuset import MAX_LENGTH, CpuSet
from pinner.model.event import GuestEvent, GuestEventKind
from pinner.model.guest import NovaIdentity
from pinner.model.journal import Entry, Run, RunState
from pinner.model.page import DEFAULT_LIMIT, MAX_LIMIT, SortDirection
from pinner.model.policy import Mode, Policy
from pinner.model.request import Isolating, Request, Smt

# This must run before a view uses a schema: APIFlask then validates and describes every model with StrictAdapter.
registry.register("pydantic", StrictAdapter)

UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MAX_SPECS = 128
"""The most extra specs that an event may carry."""
_DEFAULT = Request()


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class PageQuery(_Input):
    """A part of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="The largest number of items."), Scalar] = DEFAULT_LIMIT
    marker: Annotated[
        Name, Field(description="`next` of the previous page.", json_schema_extra={"format": "marker"})
    ] = ""


class HostPageQuery(PageQuery):
    """A part of a list, of one host or of all hosts."""

    host: Annotated[Name | None, Field(description="Only the items of this host.")] = None
    sort_dir: Annotated[SortDirection, Field(description="desc: newest first; asc: oldest first.")] = "desc"


class RunQuery(HostPageQuery):
    """A part of the runs, in one state or in all states."""

    state: Annotated[RunState | None, Field(description="Only the runs in this state.")] = None


class AuditQuery(HostPageQuery):
    """A part of the audit trail."""

    actor: Annotated[ShortText | None, Field(description="Only the actions of this actor.")] = None
    since: Annotated[Timestamp | None, Field(description="Only the records from this time on.")] = None


MAX_HEADS = 16
"""The most heads of an anchor; they fit into the largest request body."""
_Number = Annotated[int, Field(ge=0, lt=2**63)]
_Hash = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
_HostName = Annotated[str, Field(max_length=255)]
_Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/=]{0,88}$")]


class SignedHeadInput(_Input):
    """The head of an agent's audit trail with its signature, as `GET /v1/audit/anchor` returned it."""

    host: _HostName
    """The agent's host."""
    seq: _Number
    """The number of the last record of the agent's trail."""
    hash: _Hash
    """The hash of that record."""
    centre_seq: _Number
    """The number of the centre's record that the agent saw last; 0: none."""
    centre_hash: _Hash
    """The hash of that record."""
    at: Annotated[str, Field(max_length=40, description="The agent's clock, as it was signed.")]
    key: _Base64
    """The agent's public key."""
    signature: _Base64
    """The signature of the other fields."""


class AnchorInput(_Input):
    """An anchor, as `GET /v1/audit/anchor` returned it."""

    version: Annotated[int, Field(ge=1, le=1, description="The version of this format.")]
    heads: Annotated[tuple[SignedHeadInput, ...], Field(min_length=1, max_length=MAX_HEADS)]
    """The signed head of each host."""

    def value(self) -> Anchor:
        """The anchor as a value."""
        return Anchor(self.version, tuple(SignedHead(**head.model_dump()) for head in self.heads))


class SampleQuery(_Input):
    """The duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 0.0


class ProcessQuery(PageQuery):
    """A part of the process list, and the duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 1.0
    busy: Annotated[bool, Field(description="Only busy processes."), Scalar] = False
    busy_threshold: Annotated[BusyThreshold, Scalar] = _DEFAULT.busy_threshold


class PlanQuery(_Input):
    """The format of a plan."""

    format: Annotated[
        Literal["json", "shell", "text"],
        Field(description="json: the plan; shell: the same changes as commands; text: a text for people."),
    ] = "json"


class NewSnapshot(_Input):
    """The duration of the CPU use measurement. The server's configuration sets the default."""

    sample_seconds: Annotated[
        Seconds | None,
        Field(
            description="Seconds over which CPU use is measured; 0: it is not measured. Default: [host] sample_seconds."
        ),
    ] = None


class PlanParameters(_Input):
    """A strategy and its parameters."""

    strategy: Annotated[Name, Field(description="The name of a strategy, as GET /v1/strategies lists it.")] = (
        _DEFAULT.strategy
    )
    guests: Annotated[Names, Field(description="Names or UUIDs of the guests to place; empty: all guests.")] = (
        _DEFAULT.guests
    )
    processes: Annotated[
        Names,
        Field(description="Names or ids of processes to move even if they are idle or have a restricted affinity."),
    ] = _DEFAULT.processes
    housekeeping: CpuList = _DEFAULT.housekeeping
    emulator: CpuList = _DEFAULT.emulator
    busy_threshold: BusyThreshold = _DEFAULT.busy_threshold
    smt: Annotated[
        Smt,
        Field(
            description="How `isolated` uses sibling threads. prefer: use them; isolate: leave them idle; "
            "require: use only cores that have siblings."
        ),
    ] = _DEFAULT.smt
    isolation: Annotated[
        Isolating,
        Field(
            description="How `isolated` gets its CPUs. boot: from kernel arguments; live: from cgroup v2 partitions."
        ),
    ] = _DEFAULT.isolation
    excluded_guests: Annotated[Names, Field(description="Names or UUIDs of guests that the plan must not change.")] = (
        _DEFAULT.excluded_guests
    )
    excluded_processes: Annotated[
        Names, Field(description="Names or systemd units of processes that the plan must not change.")
    ] = _DEFAULT.excluded_processes
    nova_emulators: Annotated[
        bool,
        Field(description="Also place the emulator threads of guests that Nova pinned, unless Nova gives them CPUs."),
    ] = _DEFAULT.nova_emulators
    rebalance: bool

    def request(self) -> Request:
        """The request for the planner. Raises Invalid."""
        return Request(**{name: getattr(self, name) for name in Request.__dataclass_fields__})


class NewPlan(PlanParameters):
    """A strategy with its parameters, and the snapshot to plan from."""

    rebalance: Annotated[
        bool,
        Field(description="Place all guests anew if that improves the score; otherwise well-placed guests stay."),
    ] = _DEFAULT.rebalance
    snapshot: Annotated[
        Name | None, Field(description="The id of a stored snapshot. By default pinner takes a new one.")
    ] = None
    sample_seconds: Annotated[
        Seconds | None,
        Field(
            description="Seconds over which CPU use is measured; 0: it is not measured. Default: [host] sample_seconds."
        ),
    ] = None


def _require_false(value: bool) -> bool:
    """The value, which is false. Literal[False] would also accept the number 0."""
    if value:
        raise ValueError("false: a policy never rebalances")
    return value


class PolicyRequest(PlanParameters):
    """The strategy of a policy, with its parameters. A policy never rebalances: it moves as few guests as possible."""

    rebalance: Annotated[
        bool,
        AfterValidator(_require_false),
        Field(json_schema_extra={"const": False}, description="false: a policy never rebalances."),
    ] = False


class NewPolicy(_Input):
    """The new policy of a host."""

    mode: Annotated[
        Mode,
        Field(
            description="observe: report drift; propose: also store a plan that corrects the drift; "
            "enforce: also apply the plan."
        ),
    ] = "observe"
    request: Annotated[
        PolicyRequest, Field(default_factory=PolicyRequest, description="The strategy and its parameters.")
    ]

    def policy(self) -> Policy:
        """The policy for the service. Raises Invalid."""
        return Policy(self.request.request(), self.mode)


class NewExclusion(_Input):
    """Whether pinner must not change the guest's CPUs."""

    excluded: Annotated[bool, Field(description="true: exclude the guest; false: include it again.")] = True


class NewApply(_Input):
    """The options of an apply."""

    persist: Annotated[bool, Field(description="Also write the pins into the guests' persistent definitions.")] = False
    migrate_memory: Annotated[
        bool, Field(description="Also move each guest's memory to the NUMA node that the plan gives to its vCPUs.")
    ] = False


class NewRollback(_Input):
    """A rollback has no options."""


class NewIdentity(_Input):
    """An instance, as Nova describes it."""

    instance: Annotated[ShortText, Field(description="The name of the instance.")] = ""
    project: Annotated[ShortText, Field(description="The name of the project.")] = ""
    user: Annotated[ShortText, Field(description="The name of the user.")] = ""
    flavor: Annotated[ShortText, Field(description="The name of the flavor.")] = ""
    extra_specs: Annotated[
        dict[ShortText, ShortText],
        Field(default_factory=dict, max_length=MAX_SPECS, description="The extra specs of the flavor."),
    ]


class NewEvent(_Input):
    """An event of a guest."""

    host: Annotated[
        Name | None, Field(description="The guest's host. It may be left out if the server has a single host.")
    ] = None
    guest: Annotated[str, Field(pattern=UUID, description="The guest's UUID.")]
    event: Annotated[ShortText, Field(description="The event as its source names it, such as instance.reboot.end.")]
    source: Annotated[
        ShortText, Field(description="The source of the event, for the audit trail. By default the request's actor.")
    ] = ""
    at: Annotated[Timestamp | None, Field(description="The time of the event. By default the current time.")] = None
    nova: Annotated[NewIdentity | None, Field(description="The instance, if Nova reported the event.")] = None

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """The event for the service."""
        nova = NovaIdentity(**self.nova.model_dump()) if self.nova else None
        at = self.at or datetime.now(UTC)
        return GuestEvent(self.guest.lower(), kind, self.event, self.source or caller.actor, at, nova)


class NewLeavingEvent(NewEvent):
    """An event of a guest that is about to be migrated to another host."""

    cpus: Annotated[
        str,
        Field(
            max_length=MAX_LENGTH,
            json_schema_extra={"format": "cpu-ids"},
            description="The CPUs of the destination, if they are known.",
        ),
    ] = ""

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """The event for the service. Raises Invalid."""
        return replace(super().to_event(kind, caller), cpus=CpuSet.parse(self.cpus, "cpus"))


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error."""

    code: str
    """The kind of error, which programs compare; it never changes."""
    message: str
    """A sentence for people."""
    details: Mapping[str, Any]
    """The values of the message, for programs."""
    request_id: str
    """The id of the request in the log and in the audit trail."""


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """The body of every error."""

    error: ErrorBody
    """The error."""


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A stored snapshot: its id and the number of its CPUs, NUMA nodes, guests and processes."""

    id: str
    """The id of the snapshot: the SHA-256 of its content."""
    host: str
    """The name of the host."""
    taken_at: datetime
    """The time at which the snapshot was taken."""
    sample_seconds: float
    """The seconds over which CPU use was measured; 0: it was not measured."""
    cpus: int
    """The number of CPUs."""
    nodes: int
    """The number of NUMA nodes."""
    guests: int
    """The number of active guests."""
    processes: int
    """The number of processes."""
    warnings: tuple[str, ...]
    """What the agent could not read."""


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run and its changes."""

    run: Run
    """The run."""
    entries: tuple[Entry, ...]
    """The changes of the run; of a rollback, those of the run that it undoes."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of this API."""

    id: str
    """The name of the version, which begins its paths."""
    status: Literal["CURRENT"]
    """CURRENT: this version gets new fields."""
    path: str
    """The path of the version."""
    version: str
    """The number that the header field OpenStack-API-Version has."""
    description: str
    """The path of the OpenAPI document."""
    lists: tuple[str, ...]
    """The paths of the lists."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The server's release and the API versions that it supports."""

    name: str
    """The name of the service: pinner."""
    release: str
    """The release of the server's software."""
    versions: tuple[Version, ...]
    """The versions."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the server."""

    status: Literal["ok"]
    """ok: the server answers."""
