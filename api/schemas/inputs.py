"""The base of all schemas of requests, and the types of their fields with limits and descriptions."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema

from pinner import codec
from pinner.model.cpuset import MAX_LENGTH
from pinner.model.plan.request import MOST_PERCENT
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

_LONGEST_SCALAR = 100
"""Enough for each number. A long text could be nested so deeply that reading it fails."""


def _scalar(text: Any) -> Any:
    if len(text) > _LONGEST_SCALAR or text != text.strip():
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


_TIME = "a date and time with a time zone, such as 2026-11-21T10:00:00Z"


def _timestamp(text: Any) -> datetime:
    """An RFC 3339 time in UTC. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError("a string")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(_TIME) from None
    if time.tzinfo is None or "T" not in text.upper():
        raise ValueError(_TIME)
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time whose year in UTC is between 1 and 9999") from None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Scalar = BeforeValidator(_scalar)
Seconds = Annotated[
    float, Field(ge=0, le=MAX_SAMPLE_SECONDS, description="Measure CPU use for so many seconds; 0: do not measure it.")
]
Whole = BeforeValidator(_whole)
"""Stands behind the limits of an integer: 2.0 is one, as in JSON Schema."""
BusyThreshold = Annotated[
    float,
    Field(ge=0, le=MOST_PERCENT, description="A process is busy if it uses more than so many per cent of one CPU."),
]
Timestamp = Annotated[
    AwareDatetime, BeforeValidator(_timestamp), WithJsonSchema({"type": "string", "format": "date-time"})
]
ShortText = Annotated[str, Field(max_length=500)]
MAX_NAMES = 1000
Name = Annotated[str, Field(max_length=255)]
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_NAMES)]
CpuList = Annotated[
    str,
    Field(
        max_length=MAX_LENGTH, json_schema_extra={"format": "cpu-list"}, description="`auto` or a list such as 0-3,8."
    ),
]


class Input(BaseModel):
    """A part of a request: strict types, no unknown fields, no NaN; no item of a list is read after a wrong one."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = codec.failing_fast(handler(source), handler)
        return schema
