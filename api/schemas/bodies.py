"""The schemas of small request bodies."""

from typing import Annotated

from pydantic import Field

from pinner.api.schemas.base import Input
from pinner.api.schemas.field_types import Seconds, Whole
from pinner.model.outcome.probe import DEFAULT_SECONDS as DEFAULT_WINDOW
from pinner.model.outcome.probe import DEFAULT_WINDOWS, MAX_WINDOWS, MIN_WINDOWS
from pinner.model.outcome.probe import MAX_SECONDS as MAX_WINDOW
from pinner.model.outcome.probe import MIN_SECONDS as MIN_WINDOW
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS as DEFAULT_SECONDS
from pinner.model.run.journal import MAX_WATCH_SECONDS as MAX_SECONDS
from pinner.model.run.journal import MIN_WATCH_SECONDS as MIN_SECONDS
from pinner.model.run.journal import WATCH_FOLD as FOLD
from pinner.model.run.journal import ApplyOptions


class NewSnapshot(Input):
    """The duration of the CPU use measurement. The server's configuration sets the default."""

    sample_seconds: Annotated[
        Seconds | None,
        Field(
            description="Seconds over which CPU use is measured; 0: it is not measured. Default: [host] sample_seconds."
        ),
    ] = None


class NewExclusion(Input):
    """Whether pinner must not change the guest's CPUs."""

    excluded: Annotated[bool, Field(description="true: exclude the guest; false: include it again.")] = True


class NewApply(Input):
    """The options of an apply."""

    persist: Annotated[bool, Field(description="Also write the pins into the guests' persistent definitions.")] = False
    migrate_memory: Annotated[
        bool, Field(description="Also move each guest's memory to the NUMA node that the plan gives to its vCPUs.")
    ] = False
    all_or_nothing: Annotated[
        bool,
        Field(description="true: if a change fails, undo all changes; false: undo those of its guest or process."),
    ] = False
    watch_seconds: Annotated[
        Annotated[int, Field(ge=MIN_SECONDS, le=MAX_SECONDS), Whole] | None,
        Field(
            description="How long the server watches run delay and drops after the run; null: not at all. A measure is "
            f"watched if it is known before the run for {FOLD} times as long."
        ),
    ] = None
    undo_if_worse: Annotated[
        bool,
        Field(
            description="Roll the run back if a measure becomes worse within `watch_seconds` "
            f"({DEFAULT_SECONDS} if null). Refused while no measure is known for long enough."
        ),
    ] = False

    def options(self) -> ApplyOptions:
        """The options as a value."""
        return ApplyOptions(**self.model_dump() | {"watch_seconds": self.watch_seconds or 0})


class NewProbe(Input):
    """The windows of a probe."""

    windows: Annotated[
        Annotated[int, Field(ge=MIN_WINDOWS, le=MAX_WINDOWS), Whole],
        Field(description="The number of windows of each placement. Four measures need five at least."),
    ] = DEFAULT_WINDOWS
    seconds: Annotated[
        Annotated[int, Field(ge=MIN_WINDOW, le=MAX_WINDOW), Whole],
        Field(description="The length of a window in seconds."),
    ] = DEFAULT_WINDOW


class NewRollback(Input):
    """A rollback has no options."""
