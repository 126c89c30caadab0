"""The schemas of queries."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from pinner.api.schemas.inputs import BusyThreshold, Input, Name, Scalar, Seconds, ShortText, Timestamp
from pinner.model.cpuset import MAX_CPUS
from pinner.model.outcome.blame import MAX_SECONDS
from pinner.model.outcome.measures import GUEST_SERIES, HOST_SERIES, Span
from pinner.model.page import DEFAULT_LIMIT, MAX_LIMIT, PageRequest, SortDirection
from pinner.model.plan.request import Request
from pinner.model.questions import MAX_MEMORY_KIB, GuestShape
from pinner.model.run.journal import RunState

_DEFAULT = Request()
_SERIES = "|".join(series.name for series in (*GUEST_SERIES, *HOST_SERIES))


class PageQuery(Input):
    """A part of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), Scalar] = DEFAULT_LIMIT
    """The largest number of items."""
    marker: Annotated[Name, Field(json_schema_extra={"format": "marker"})] = ""
    """`next` of the previous page."""


class HostPageQuery(PageQuery):
    """A part of a list, of one host or of all hosts."""

    host: Name | None = None
    """Only the items of this host."""
    sort_dir: SortDirection = "desc"
    """desc: newest first; asc: oldest first."""

    def part(self) -> PageRequest:
        return PageRequest(self.limit, self.marker, self.sort_dir)


class RunQuery(HostPageQuery):
    """A part of the runs, in one state or in all states."""

    state: RunState | None = None
    """Only the runs in this state."""


class AuditQuery(HostPageQuery):
    """A part of the audit trail."""

    actor: ShortText | None = None
    """Only the actions of this actor."""
    since: Timestamp | None = None
    """Only the records from this time on."""


class SampleQuery(Input):
    """The duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 0.0


def _with_busy(threshold: float, others: ValidationInfo) -> float:
    if not others.data.get("busy", True):
        raise ValueError("a value beside busy=true; without it all processes are listed")
    return threshold


class ProcessQuery(PageQuery):
    """A part of the process list, and the duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 1.0
    busy: Annotated[bool, Scalar] = False
    """Only busy processes."""
    busy_threshold: Annotated[
        BusyThreshold,
        AfterValidator(_with_busy),
        Scalar,
        Field(description="With `busy`: a process is busy if it uses more than so many per cent of one CPU."),
    ] = _DEFAULT.busy_threshold


class CapacityQuery(Input):
    """The size of the guests."""

    vcpus: Annotated[int | None, Field(ge=1, le=MAX_CPUS), Scalar] = None
    """Only guests of so many vCPUs."""
    memory_kib: Annotated[int | None, Field(ge=0, le=MAX_MEMORY_KIB), Scalar] = None
    """Also plan guests of so much memory and of `vcpus` (default: 1): how many fit exactly. 0: of any memory."""
    page_kib: Annotated[int, Field(ge=0, le=MAX_MEMORY_KIB), Scalar] = 0
    """The size of the huge pages of this memory; 0: normal pages. Only with `memory_kib`."""

    def shape(self) -> GuestShape | None:
        """None: no guest is planned. Raises Invalid."""
        if self.memory_kib is None and not self.page_kib:
            return None
        return GuestShape(self.vcpus or 1, self.memory_kib or 0, self.page_kib)


class ExplanationQuery(Input):
    """The guest to explain."""

    guest: Name
    """The name or UUID of an active guest."""


class FindingsQuery(Input):
    """The time between the two samples of the counters."""

    sample_seconds: Annotated[Seconds, Scalar] = 2.0


class BlameQuery(Input):
    """The length of a trace."""

    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS), Scalar] = 5.0
    """How long the scheduler is traced, in seconds."""


class MeasuresQuery(Input):
    """A part of the history of measures."""

    begin: Annotated[Timestamp | None, Field(alias="from")] = None
    """The first time; default: an hour before."""
    end: Annotated[Timestamp | None, Field(alias="to")] = None
    """The last time; default: now."""
    step: Annotated[Literal[5, 60, 900] | None, Scalar] = None
    """Seconds from one value to the next; default: the finest that reaches back."""
    guest: Name | None = None
    """Only the guest of this name or UUID."""
    series: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda text: tuple(text.split(","))),
        WithJsonSchema({"type": "string", "pattern": f"^({_SERIES})(,({_SERIES}))*$"}),
    ] = ()
    """Only the series of these names, separated by commas."""

    def span(self) -> Span:
        return Span(self.begin, self.end, self.step)


class PlanQuery(Input):
    """The format of a plan."""

    format: Literal["json", "shell", "text"] = "json"
    """json: the plan; shell: the same changes as commands; text: a text for people."""
