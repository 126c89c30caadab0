"""Values to JSON and back, for the store, the agent's socket, snapshot files and REST. pydantic reads the dataclasses
of the model directly, so no value is defined twice."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pinner.model.errors import Invalid

if TYPE_CHECKING:  # imported where a value is read or written: the help of a command needs no pydantic
    from pydantic import GetCoreSchemaHandler, TypeAdapter, ValidationError

T = TypeVar("T")


_FAIL_FAST: Mapping[str, Mapping[str, Any]] = {
    kind: {"fail_fast": True} for kind in ("list", "tuple", "set", "frozenset", "dict")
}
_BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "int": {"ge": -(2**63), "le": 2**64 - 1},
    "float": {"ge": -(2.0**63), "le": 2.0**64, "allow_inf_nan": False},
    "datetime": {"ge": datetime(1, 1, 2, tzinfo=UTC), "le": datetime(9999, 12, 30, tzinfo=UTC)},
}
"""Kernel and libvirt count in 64 bits. Sums and products of such numbers are finite. Each time zone has such a time."""


def failing_fast(schema: Any, handler: "GetCoreSchemaHandler") -> Any:
    """pydantic reads no item of a collection after the first wrong one: a million errors would take a gigabyte."""
    return _limited(schema, handler, _FAIL_FAST)


def _limited(schema: Any, handler: "GetCoreSchemaHandler", limits: Mapping[str, Mapping[str, Any]]) -> Any:
    """A part's own limits are narrower, and stay."""
    parts: list[Any] = [schema]
    resolved: set[str] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            kind = part.get("type")
            part |= {**limits.get(str(kind), {}), **part}
            if kind == "definition-ref" and part["schema_ref"] not in resolved:
                resolved.add(part["schema_ref"])
                parts.append(handler.resolve_ref_schema(part))
            parts += [value for name, value in part.items() if name != "metadata"]
        elif isinstance(part, list):
            parts += part
    return schema


class _Guarded:
    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> Any:
        return _limited(handler(source), handler, {**_FAIL_FAST, **_BOUNDS})


def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(Annotated[kind, _Guarded()])


adapter: Callable[[Any], "TypeAdapter[Any]"] = cache(_adapter)


def dump(value: object) -> bytes:
    """Compact JSON in UTF-8. Equal values give equal bytes."""
    return adapter(type(value)).dump_json(value, by_alias=True)


def readable(value: object) -> str:
    return adapter(type(value)).dump_json(value, indent=2, ensure_ascii=True, by_alias=True).decode()


def plain(value: object) -> Any:
    return adapter(type(value)).dump_python(value, mode="json", by_alias=True)


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds, which has the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def most_values(text: bytes) -> int:
    """Without decoding the JSON text; more where a string has commas or brackets."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def load(kind: type[T], text: bytes | str, field: str = "body", *, exact: bool = False) -> T:
    """Raises Invalid, which names the first wrong field below ``field``; with ``exact`` also for an unknown field."""
    from pydantic import ValidationError

    try:
        value: T = adapter(kind).validate_json(text, extra="forbid" if exact else None)
        return value
    except ValidationError as error:
        raise invalid(error, field) from None


def read(kind: type[T], value: object, field: str = "body") -> T:
    """Raises Invalid like ``load``."""
    from pydantic import ValidationError

    try:
        result: T = adapter(kind).validate_python(value)
        return result
    except ValidationError as error:
        raise invalid(error, field) from None


def invalid(error: "ValidationError", field: str) -> Invalid:
    """The first wrong field (below ``field``, if given), its value, and the expected value."""
    first = error.errors(include_url=False)[0]
    where = ".".join(filter(None, (field, *(str(_short(part)) for part in first["loc"]))))
    match first["type"]:
        case "missing":
            return Invalid(where, None, "this field is required")
        case "extra_forbidden" | "unexpected_keyword_argument":
            return Invalid(where, _short(first["input"]), "there is no field of this name")
        case "value_error":
            return Invalid(where, _short(first["input"]), str(first["ctx"]["error"]))
    return Invalid(where, _short(first["input"]), first["msg"])


def content_hash(value: object) -> str:
    return hashlib.sha256(dump(value)).hexdigest()


def _short(value: object) -> object:
    if isinstance(value, bytes):  # a text that is no JSON
        value = value.decode(errors="backslashreplace")
    text = str(value)
    return value if len(text) <= 80 else f"{text[:77]}..."
