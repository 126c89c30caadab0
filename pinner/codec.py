"""Values to JSON and back, for the store, the agent's socket, snapshot files and REST.

pydantic reads the dataclasses of the model directly, so no value is defined twice.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pinner.model.errors import Invalid

if TYPE_CHECKING:  # imported where a value is read or written: the help of a command needs no pydantic
    from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError

T = TypeVar("T")


_COLLECTIONS = ("list", "tuple", "set", "frozenset", "dict")


def failing_fast(schema: Any, handler: "GetCoreSchemaHandler") -> Any:
    """Lets pydantic read no further item of a collection after the first wrong one: it would keep an error of a
    kilobyte for each field of each wrong item, and a message can have a million."""
    parts: list[Any] = [schema]
    resolved: set[str] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") in _COLLECTIONS:
                part["fail_fast"] = True
            elif part.get("type") == "definition-ref" and part["schema_ref"] not in resolved:
                resolved.add(part["schema_ref"])
                parts.append(handler.resolve_ref_schema(part))
            parts += [value for name, value in part.items() if name != "metadata"]
        elif isinstance(part, list):
            parts += part
    return schema


class _FailingFast:
    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> Any:
        return failing_fast(handler(source), handler)


def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(Annotated[kind, _FailingFast()])


adapter: Callable[[Any], "TypeAdapter[Any]"] = cache(_adapter)


def dump(value: object) -> bytes:
    """Compact JSON in UTF-8. Equal values give equal bytes."""
    return adapter(type(value)).dump_json(value, by_alias=True)


def readable(value: object) -> str:
    """JSON for people, in ASCII."""
    return adapter(type(value)).dump_json(value, indent=2, ensure_ascii=True, by_alias=True).decode()


def plain(value: object) -> Any:
    """Dicts, lists, strings and numbers."""
    return adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def most_values(text: bytes) -> int:
    """The number of values in a JSON text, without decoding it; more where a string has commas or brackets."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def load(kind: type[T], text: bytes | str, field: str = "body", *, exact: bool = False) -> T:
    """Raises Invalid, which names the first wrong field below ``field``; with ``exact`` also for a field that ``kind``
    does not have."""
    from pydantic import ValidationError

    try:
        value: T = adapter(kind).validate_json(text, extra="forbid" if exact else None)
        return value
    except ValidationError as error:
        raise invalid(error, field) from None


def read(kind: type[T], value: object, field: str = "body") -> T:
    """Reads what ``plain`` wrote. Raises Invalid like ``load``."""
    from pydantic import ValidationError

    try:
        result: T = adapter(kind).validate_python(value)
        return result
    except ValidationError as error:
        raise invalid(error, field) from None


def invalid(error: "ValidationError", field: str) -> Invalid:
    """The first wrong field (below ``field``, if given), its value, and the expected value."""
    first = error.errors(include_url=False)[0]
    where = ".".join(part for part in (field, *map(str, first["loc"])) if part)
    match first["type"]:
        case "missing":
            return Invalid(where, None, "this field is required")
        case "extra_forbidden" | "unexpected_keyword_argument":
            return Invalid(where, _short(first["input"]), "there is no field of this name")
        case "value_error":
            return Invalid(where, _short(first["input"]), str(first["ctx"]["error"]))
    return Invalid(where, _short(first["input"]), first["msg"])


def content_hash(value: object) -> str:
    """SHA-256 of the value's JSON, in hexadecimal."""
    return hashlib.sha256(dump(value)).hexdigest()


def _short(value: object) -> object:
    if isinstance(value, bytes):  # a text that is no JSON
        value = value.decode(errors="backslashreplace")
    text = str(value)
    return value if len(text) <= 80 else f"{text[:77]}..."
