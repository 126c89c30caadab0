"""The components of the OpenAPI document as client generators want them, and examples of bodies.

They have plain names, no inline objects, and a description of every field.
"""

import ast
import inspect
import pkgutil
from collections import ChainMap
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from typing import Any

from pinner import model
from pinner.api import schemas
from pinner.api.description.operations import Json
from pinner.service import protocol

REF = "#/components/schemas/"


def tidy(components: Json) -> Json:
    """The components under plain names, sorted. Each inline object is a component of its own."""
    tidied: Json = {}
    for name, schema in components.items():
        plain = plain_name(name)
        tidied[plain] = _described(plain, _without_titles(schema)) | {"title": plain}
    for name in tuple(tidied):
        for field, schema in tidied[name].get("properties", {}).items():
            if "additionalProperties" in schema:
                part = name + field.title().replace("_", "")
                tidied[part] = {"type": "object", "title": part} | schema
                tidied[name]["properties"][field] = {"$ref": REF + part, "description": schema.get("description", "")}
    return dict(sorted(tidied.items()))


def plain_name(name: str) -> str:
    """RunPage for pydantic's Page_Run_, and Tap for APIFlask's Guest.Tap: a part is the same in every model."""
    name = name.rpartition(".")[2]
    if name.startswith("Page_"):
        item = name.removeprefix("Page_").rstrip("_")
        return ("Name" if item == "str" else item) + "Page"
    return name


def with_plain_references(value: Any) -> Any:
    match value:
        case {"$ref": str(reference)}:
            return value | {"$ref": REF + plain_name(reference.removeprefix(REF))}
        case dict():
            return {key: with_plain_references(each) for key, each in value.items()}
        case list():
            return [with_plain_references(each) for each in value]
    return value


def _without_titles(schema: Json) -> Json:
    """The schema without pydantic's titles of fields, which repeat their names and confuse generators."""
    properties = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema.get("properties", {}).items()
    }
    return schema | {"properties": properties} if properties else schema


def _described(name: str, schema: Json) -> Json:
    """The schema with the docstring of each field that has no description yet."""
    fields = schema.get("properties", {})
    texts = _DESCRIPTIONS.get("Page" if name.endswith("Page") else name, {})
    described = {
        field: field_schema if "description" in field_schema or field not in texts
        else field_schema | {"description": texts[field]}
        for field, field_schema in fields.items()
    }  # fmt: skip
    return schema | {"properties": described} if fields else schema


def _field_docstrings() -> dict[str, dict[str, str]]:
    """The text below each field, by class and field.

    Python does not store docstrings of fields, so the sources are read: once, at the import, because the API cannot
    read them in every installation after it has given up root.
    """
    names = [
        each.name for room in (model, schemas) for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    modules = [*map(import_module, names), protocol]
    found: dict[str, dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                bases = [found.get(base.id, {}) for base in node.bases if isinstance(base, ast.Name)]
                found[node.name] = dict(ChainMap(dict(_docstrings(node)), *bases))
    return found


def _docstrings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, " ".join(dedent(docstring).split())


_DESCRIPTIONS = _field_docstrings()


_GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
_RUN = {
    "id": "run-0922af3478d4",
    "kind": "apply",
    "host": "compute1",
    "plan": "plan-0922af3478d4593b",
    "actor": "ann",
    "origin": "192.0.2.7",
    "state": "applied",
    "started_at": "2026-11-21T10:00:00Z",
    "ended_at": "2026-11-21T10:00:01Z",
    "persist": False,
    "undoes": "",
    "error": "",
    "migrate_memory": False,
    "all_or_nothing": False,
    "recovered": "",
}
_REQUEST = {"strategy": "numa-local", "excluded_guests": ["db1"]}

EXAMPLES: dict[str, dict[str, Any]] = {
    "NewPlan": {
        "defaults": {},
        "one strategy": {"strategy": "numa-local", "housekeeping": "0-1", "emulator": "auto"},
        "one guest": {"guests": ["web1"], "sample_seconds": 0},
    },
    "NewSnapshot": {"without CPU use": {"sample_seconds": 0}},
    "NewApply": {"live": {}, "persistent": {"persist": True}},
    "NewPolicy": {"observe": {"mode": "observe"}, "enforce": {"mode": "enforce", "request": _REQUEST}},
    "NewExclusion": {"exclude": {"excluded": True}, "include": {"excluded": False}},
    "NewEvent": {"reboot": {"host": "compute1", "guest": _GUEST, "event": "instance.reboot.end", "source": "nova"}},
    "NewLeavingEvent": {
        "migration": {"host": "compute1", "guest": _GUEST, "event": "instance.live_migration_pre.start", "cpus": "0-15"}
    },
    "Run": {"applied": _RUN},
    "RunPage": {"one run": {"items": [_RUN], "next": ""}},
    "PlanSummaryPage": {
        "one plan": {
            "items": [
                {
                    "id": "plan-0922af3478d4593b",
                    "host": "compute1",
                    "strategy": "shared-pool",
                    "created_at": "2026-11-21T10:00:00Z",
                    "changes": 7,
                    "unplaced": 0,
                    "blocked": "",
                }
            ],
            "next": "plan-0922af3478d4593b",
        }
    },
    "NamePage": {"one host": {"items": ["compute1"], "next": ""}},
    "GuestExclusion": {"excluded": {"uuid": _GUEST, "name": "web1", "excluded": True}},
    "Health": {"ok": {"status": "ok"}},
    "ErrorDocument": {
        "wrong input": {
            "error": {
                "code": "invalid",
                "message": "housekeeping: '0-99' is not valid: CPUs of this host; it has no 16-99",
                "details": {"field": "housekeeping", "value": "0-99", "expected": "CPUs of this host; it has no 16-99"},
                "request_id": "req-5f0f7a52-26b5-4bd3-8e3a-2f6f3a8f5a10",
            }
        }
    },
}
