"""The base of all schemas of requests."""

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from pinner import codec


class Input(BaseModel):
    """A part of a request: strict types, no unknown fields, no NaN; nothing is read after the first wrong item of a
    list."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """See BaseModel."""
        schema: CoreSchema = codec.failing_fast(handler(source), handler)
        return schema
