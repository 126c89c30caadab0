"""The base of all schemas of requests."""

from pydantic import BaseModel, ConfigDict


class Input(BaseModel):
    """A part of a request: strict types, no unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
