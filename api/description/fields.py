"""Descriptions of the fields in the OpenAPI document: docstrings of the model and the schemas."""

import ast
import inspect
import pkgutil
import re
from collections import ChainMap
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from pinner import model
from pinner.api import schemas
from pinner.api.description.operations import Json
from pinner.service import protocol

_COMMON = {
    "id": "Its id.",
    "items": "The items of the page, in the order of the list.",
    "name": "Its name.",
    "actor": "The person or program that asked for it.",
    "after": "After the change.",
    "at": "The time.",
    "before": "Before the change.",
    "blocked": "Why the plan cannot be applied as it is; else empty.",
    "boot": "The host's boot (/proc/sys/kernel/random/boot_id); empty: not known.",
    "ended_at": "The time of the end; null while it is running.",
    "host": "The host's name.",
    "index": "The kernel's index of the interface (ifindex): another interface may get its name later.",
    "interface": "The interface's name.",
    "memory_kib": "The memory in KiB.",
    "node": "The id of the NUMA node.",
    "nodes": "The NUMA nodes.",
    "origin": "The caller's address, or `cli` and the terminal.",
    "part": "The number of the vCPU or iothread; null for an emulator.",
    "pid": "The process id.",
    "pin": "The pin that libvirt has stored.",
    "plan": "The id of the plan.",
    "reason": "Why the change is made.",
    "run": "The id of the run.",
    "started": "The start time in clock ticks after boot.",
    "started_at": "The time of the start.",
    "step": "Seconds from one value to the next.",
    "strategy": "The strategy's name.",
    "taken_at": "The time of the snapshot.",
    "tid": "The thread id.",
    "unit": "The unit of the values.",
    "uuid": "The guest's UUID.",
    "warnings": "What an operator should know before an apply.",
}
"""Descriptions of fields without a docstring, which mean the same in each class."""
_VALUES = {
    "AddedGuests": "NewGuests",
    "AnchorInput": "Anchor",
    "NewEvent": "GuestEvent",
    "NewIdentity": "NovaIdentity",
    "NewPolicy": "Policy",
    "NewProbe": "ProbeOptions",
    "NewShape": "GuestShape",
    "PlanParameters": "Request",
    "SignedHeadInput": "SignedHead",
}
"""The model's values that requests become: fields of one name mean the same."""


def described(name: str, schema: Json) -> Json:
    """The schema with a description of each field."""
    fields = schema.get("properties", {})
    texts = _field_docstrings().get("Page" if name.endswith("Page") else name, {})
    described = {}
    for field, field_schema in fields.items():
        common = "" if "$ref" in field_schema else field_schema.get("const") or _COMMON.get(field, "")
        text = field_schema.get("description") or texts.get(field, common)
        described[field] = field_schema | ({"description": on_one_line(text)} if text else {})
    return schema | {"properties": described} if fields else schema


@cache
def _field_docstrings() -> dict[str, dict[str, str]]:
    """The text below each field, by class and field."""
    names = [
        info.name for room in (model, schemas) for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    modules = [*map(import_module, names), protocol]
    docstrings: dict[str, dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                others = [docstrings.get(name, {}) for name in (*bases, _VALUES.get(node.name, ""))]
                docstrings[node.name] = dict(ChainMap(dict(_docstrings(node)), *others))
    return docstrings


def _docstrings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, docstring


def on_one_line(docstring: str) -> str:
    """In Markdown, without what only Python's form of the value has."""
    text = " ".join(docstring.split()).replace("``", "`")
    return re.sub(r" JSON leaves [^.;]*out[^.;]*\.", "", text)
