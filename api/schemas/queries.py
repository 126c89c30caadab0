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

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="The largest number of items."), Scalar] = DEFAULT_LIMIT
    marker: Annotated[
        Name, Field(description="`next` of the previous page.", json_schema_extra={"format": "marker"})
    ] = ""


class HostPageQuery(PageQuery):
    """A part of a list, of one host or of all hosts."""

    host: Annotated[Name | None, Field(description="Only the items of this host.")] = None
    sort_dir: Annotated[SortDirection, Field(description="desc: newest first; asc: oldest first.")] = "desc"

    def part(self) -> PageRequest:
        return PageRequest(self.limit, self.marker, self.sort_dir)


class RunQuery(HostPageQuery):
    """A part of the runs, in one state or in all states."""

    state: Annotated[RunState | None, Field(description="Only the runs in this state.")] = None


class AuditQuery(HostPageQuery):
    """A part of the audit trail."""

    actor: Annotated[ShortText | None, Field(description="Only the actions of this actor.")] = None
    since: Annotated[Timestamp | None, Field(description="Only the records from this time on.")] = None


class SampleQuery(Input):
    """The duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 0.0


def _with_busy(threshold: float, others: ValidationInfo) -> float:
    """Without ``busy``, the threshold decides nothing."""
    if not others.data.get("busy", True):
        raise ValueError("a value beside busy=true; without it all processes are listed")
    return threshold


class ProcessQuery(PageQuery):
    """A part of the process list, and the duration of the CPU use measurement."""

    sample_seconds: Annotated[Seconds, Scalar] = 1.0
    busy: Annotated[bool, Field(description="Only busy processes."), Scalar] = False
    busy_threshold: Annotated[
        BusyThreshold,
        AfterValidator(_with_busy),
        Scalar,
        Field(description="With `busy`: a process is busy if it uses more than so many per cent of one CPU."),
    ] = _DEFAULT.busy_threshold


class CapacityQuery(Input):
    """The size of the guests."""

    vcpus: Annotated[int | None, Field(ge=1, le=MAX_CPUS, description="Only guests of so many vCPUs."), Scalar] = None
    memory_kib: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_MEMORY_KIB,
            description="Also plan guests of so much memory, and of `vcpus` (default: 1), to find how many fit "
            "exactly. 0: their memory does not count.",
        ),
        Scalar,
    ] = None
    page_kib: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_MEMORY_KIB,
            description="The size of the huge pages of this memory; 0: normal pages. Only with `memory_kib`.",
        ),
        Scalar,
    ] = 0

    def shape(self) -> GuestShape | None:
        """None: no guest is planned. Raises Invalid."""
        if self.memory_kib is None and not self.page_kib:
            return None
        return GuestShape(self.vcpus or 1, self.memory_kib or 0, self.page_kib)


class ExplanationQuery(Input):
    """The guest to explain."""

    guest: Annotated[Name, Field(description="The name or UUID of an active guest.")]


class FindingsQuery(Input):
    """The time between the two samples of the counters."""

    sample_seconds: Annotated[Seconds, Scalar] = 2.0


class BlameQuery(Input):
    """The length of a trace."""

    seconds: Annotated[
        float, Field(gt=0, le=MAX_SECONDS, description="How long the scheduler is traced, in seconds."), Scalar
    ] = 5.0


class MeasuresQuery(Input):
    """A part of the history of measures."""

    begin: Annotated[Timestamp | None, Field(alias="from", description="The first time; default: an hour before.")] = (
        None
    )
    end: Annotated[Timestamp | None, Field(alias="to", description="The last time; default: now.")] = None
    step: Annotated[
        Literal[5, 60, 900] | None,
        Field(description="Seconds from one value to the next; default: the finest that reaches back."),
        Scalar,
    ] = None
    guest: Annotated[Name | None, Field(description="Only the guest of this name or UUID.")] = None
    series: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda text: tuple(text.split(","))),
        WithJsonSchema({"type": "string", "pattern": f"^({_SERIES})(,({_SERIES}))*$"}),
        Field(description="Only the series of these names, separated by commas."),
    ] = ()

    def span(self) -> Span:
        return Span(self.begin, self.end, self.step)


class PlanQuery(Input):
    """The format of a plan."""

    format: Annotated[
        Literal["json", "shell", "text"],
        Field(description="json: the plan; shell: the same changes as commands; text: a text for people."),
    ] = "json"
