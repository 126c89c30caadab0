"""What comes in over REST and what goes out.

Requests are models of their own, which refuse unknown fields. Answers are the values of pinner.model and
pinner.usecases themselves (a view says RootModel[Plan]), and here only what stands in neither.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from apiflask.schema_adapters import registry
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pinner.api.validation import StrictAdapter
from pinner.model.audit import Caller
from pinner.model.cpuset import CpuSet
from pinner.model.event import GuestEvent, GuestEventKind
from pinner.model.guest import NovaIdentity
from pinner.model.journal import Entry, Run
from pinner.model.page import DEFAULT_LIMIT, MAX_LIMIT
from pinner.model.policy import Mode, Policy
from pinner.model.request import Isolating, Request, Smt
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

# Before any view binds a schema: from here on APIFlask reads and describes every model strictly.
registry.register("pydantic", StrictAdapter)

UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
MAX_SPECS = 128
"""Extra specs of one flavor."""
_DEFAULT = Request()


def _scalar(text: Any) -> Any:
    """A query parameter's text as the JSON number or boolean that it spells; anything else stays a string."""
    try:
        return json.loads(text) if text == text.strip() else text
    except ValueError:
        return text


def _moment(text: Any) -> datetime:
    """RFC 3339 to UTC."""
    if not isinstance(text, str):
        raise ValueError("text")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError("a date and time with its zone, such as 2026-11-21T10:00:00Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a date between the years 1 and 9999, in UTC too") from None


Scalar = BeforeValidator(_scalar)
Seconds = Annotated[float, Field(ge=0, le=MAX_SAMPLE_SECONDS)]
Moment = Annotated[AwareDatetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
Words = Annotated[str, Field(max_length=500)]
CpuList = Annotated[str, Field(json_schema_extra={"format": "cpu-list"}, description="auto, or a list such as 0-3,8")]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class PageQuery(_Input):
    """Which part of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), Scalar] = DEFAULT_LIMIT
    marker: Annotated[str, Field(description="`next` of a page before", json_schema_extra={"format": "marker"})] = ""


class HostPageQuery(PageQuery):
    """Part of a list, of one host or of all."""

    host: str | None = None


class AuditQuery(HostPageQuery):
    """Part of the audit trail."""

    actor: str | None = None
    since: Moment | None = None


class SampleQuery(_Input):
    """How long CPU use is measured."""

    sample_seconds: Annotated[Seconds, Scalar] = 0.0


class ProcessQuery(PageQuery):
    """Which processes, and how long their CPU use is measured."""

    sample_seconds: Annotated[Seconds, Scalar] = 1.0
    busy: Annotated[bool, Scalar] = False
    busy_threshold: Annotated[float, Field(ge=0), Scalar] = _DEFAULT.busy_threshold


class PlanQuery(_Input):
    """How a plan is written down."""

    format: Literal["json", "shell", "text"] = "json"


class NewSnapshot(_Input):
    """How long CPU use is measured; by default as the host is configured."""

    sample_seconds: Seconds | None = None


class Asked(_Input):
    """What is asked of a strategy."""

    strategy: str = _DEFAULT.strategy
    guests: tuple[str, ...] = _DEFAULT.guests
    processes: tuple[str, ...] = _DEFAULT.processes
    housekeeping: CpuList = _DEFAULT.housekeeping
    emulator: CpuList = _DEFAULT.emulator
    busy_threshold: Annotated[float, Field(ge=0)] = _DEFAULT.busy_threshold
    smt: Smt = _DEFAULT.smt
    isolation: Isolating = _DEFAULT.isolation
    excluded_guests: tuple[str, ...] = _DEFAULT.excluded_guests
    excluded_processes: tuple[str, ...] = _DEFAULT.excluded_processes
    nova_emulators: Annotated[
        bool,
        Field(description="place QEMU's own threads of guests that Nova pinned, where Nova gives those no CPUs"),
    ] = _DEFAULT.nova_emulators
    rebalance: bool

    def request(self) -> Request:
        """What a strategy sees. Raises Invalid."""
        return Request(**{name: getattr(self, name) for name in Request.__dataclass_fields__})


class NewPlan(Asked):
    """What is asked of a strategy, and which snapshot it works from (none: one taken now)."""

    rebalance: Annotated[
        bool, Field(description="place all guests anew where that scores better; else who sits well stays")
    ] = _DEFAULT.rebalance
    snapshot: str | None = None
    sample_seconds: Seconds | None = None


class PolicyRequest(Asked):
    """What is asked of a strategy for good: no rebalance, for a policy moves no more than it must."""

    rebalance: Literal[False] = False


class NewPolicy(_Input):
    """What is to hold on a host from now on, in place of the policy that it has."""

    mode: Annotated[
        Mode,
        Field(description="observe: drift is reported; propose: and a plan against it is stored; enforce: and applied"),
    ] = "observe"
    request: PolicyRequest = Field(default_factory=PolicyRequest)

    def policy(self) -> Policy:
        """Raises Invalid."""
        return Policy(self.request.request(), self.mode)


class NewExclusion(_Input):
    """Whether a guest's CPUs are to be left alone."""

    excluded: bool = True


class NewApply(_Input):
    """How a plan is applied."""

    persist: Annotated[bool, Field(description="also write the guests' persistent definitions")] = False
    migrate_memory: Annotated[
        bool, Field(description="also move each guest's memory to the NUMA node that the plan gives to its vCPUs")
    ] = False


class NewRollback(_Input):
    """Nothing can be said about a rollback."""


class NewIdentity(_Input):
    """What Nova says of an instance."""

    instance: Words = ""
    project: Words = ""
    user: Words = ""
    flavor: Words = ""
    extra_specs: Annotated[dict[Words, Words], Field(max_length=MAX_SPECS)] = Field(default_factory=dict)


class NewEvent(_Input):
    """Something that happened to a guest."""

    host: Annotated[str | None, Field(description="may be left out where the server has one host alone")] = None
    guest: Annotated[str, Field(pattern=UUID, description="UUID")]
    event: Annotated[Words, Field(description="the event in the teller's words")]
    source: Annotated[Words, Field(description="who tells it, for the audit trail")] = ""
    at: Annotated[Moment | None, Field(description="when it happened; by default now")] = None
    nova: NewIdentity | None = None

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """As the use case takes it."""
        nova = NovaIdentity(**self.nova.model_dump()) if self.nova else None
        at = self.at or datetime.now(UTC)
        return GuestEvent(self.guest.lower(), kind, self.event, self.source or caller.actor, at, nova)


class NewLeaving(NewEvent):
    """A guest that is about to be migrated away."""

    cpus: Annotated[
        str, Field(json_schema_extra={"format": "cpu-ids"}, description="the CPUs that its destination has, if known")
    ] = ""

    def to_event(self, kind: GuestEventKind, caller: Caller) -> GuestEvent:
        """Raises Invalid."""
        return replace(super().to_event(kind, caller), cpus=CpuSet.parse(self.cpus, "cpus"))


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A stored snapshot: how much of everything it holds."""

    id: str
    host: str
    taken_at: datetime
    sample_seconds: float
    cpus: int
    nodes: int
    guests: int
    processes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run and its changes."""

    run: Run
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of this API."""

    id: str
    status: Literal["CURRENT"]
    path: str


@dataclass(frozen=True, slots=True)
class Versions:
    """What this server speaks."""

    name: str
    release: str
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """That the server answers."""

    status: Literal["ok"]
