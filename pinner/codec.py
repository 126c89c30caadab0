"""Values to JSON and back: for the store, the agent's wire, snapshot files and REST alike.

pydantic reads the model's dataclasses as they are, so there is no second definition of any of them.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pinner.model.errors import Invalid

T = TypeVar("T")


adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""The reader and writer of one type."""


def dump(value: object) -> bytes:
    """A value as compact JSON in UTF-8. The same value gives the same bytes."""
    return adapter(type(value)).dump_json(value)


def plain(value: object) -> Any:
    """A value as dicts, lists, strings and numbers."""
    return adapter(type(value)).dump_python(value, mode="json")


def load(kind: type[T], text: bytes | str, field: str = "body") -> T:
    """Read a value. Raises Invalid that names the first wrong place below ``field``."""
    try:
        value: T = adapter(kind).validate_json(text)
        return value
    except ValidationError as error:
        raise invalid(error, field) from None


def read(kind: type[T], value: object, field: str = "body") -> T:
    """A value from what ``plain`` gives. Raises Invalid like ``load``."""
    try:
        made: T = adapter(kind).validate_python(value)
        return made
    except ValidationError as error:
        raise invalid(error, field) from None


def invalid(error: ValidationError, field: str) -> Invalid:
    """pydantic's complaint as ours: the first wrong place (below ``field``, where one is given), its value and what
    would be right."""
    first = error.errors(include_url=False)[0]
    where = ".".join(part for part in (field, *map(str, first["loc"])) if part)
    return Invalid(where, _short(first["input"]), first["msg"])


def content_hash(value: object) -> str:
    """SHA-256 of the value's JSON, in hexadecimal."""
    return hashlib.sha256(dump(value)).hexdigest()


def _short(value: object) -> object:
    text = str(value)
    return value if len(text) <= 80 else f"{text[:77]}..."
