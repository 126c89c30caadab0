"""Entries as rows of the table ``entries``."""

from typing import Any

from sqlalchemy import Row

from pinner import codec
from pinner.model.change import AffinityChange, Change, MetadataChange, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.machine.memory import NodeMemory
from pinner.model.processes.lineage import Lineage
from pinner.model.run.journal import Entry

OWNER_LENGTH = 64
"""Characters of an owner that its column can hold. A UUID and a process id are shorter."""

REPEATED = ("kind", "owner", "name", "mask")
"""The columns that repeat parts of an entry's change."""
_STATE = ("run", "seq", "state", "at", "error", "definition")


def entry_row(entry: Entry) -> dict[str, Any]:
    """The row of an entry."""
    fixed = {
        "change": codec.dump(entry.change).decode(),
        "lineage": _LINEAGE.dump_json(entry.lineage).decode(),
        "former": _FORMER.dump_json(entry.former).decode(),
    }
    return state_row(entry) | fixed | dict(zip(REPEATED, _repeated(entry.change), strict=True))


def state_row(entry: Entry) -> dict[str, Any]:
    """The columns of an entry that name it, and those that a later state of it changes; see also correct_entries."""
    row = {name: getattr(entry, name) for name in _STATE}
    row["found"] = _FOUND.dump_json(entry.found).decode()
    row["memory"] = _MEMORY.dump_json(entry.memory).decode()
    row["inheritors"] = _FOUND.dump_json(entry.inheritors).decode()
    return row


def _repeated(change: Change) -> tuple[str, str, str, str]:
    """The columns REPEATED."""
    if isinstance(change, MetadataChange):
        return change.target.kind, "", "", ""
    if not isinstance(change, AffinityChange):
        return "", "", "", ""
    target = change.target
    name = target.name if target.kind == "process" else ""
    return target.kind, target.owner[:OWNER_LENGTH], name, str(change.after)


_FOUND = codec.adapter(tuple[ThreadMask, ...])
_MEMORY = codec.adapter(tuple[NodeMemory, ...])
CHANGE = codec.adapter(Change)
_LINEAGE = codec.adapter(Lineage | None)
_FORMER = codec.adapter(tuple[CpuSet, ...])
NO_INHERITORS = "[]"
"""The column ``inheritors`` of an entry without inheritors."""


def entry_of(row: Row[*tuple[Any, ...]]) -> Entry:
    """The entry of a row."""
    values = {name: row._mapping[name] for name in Entry.__dataclass_fields__}
    values["change"] = CHANGE.validate_json(values["change"])
    values["found"] = _FOUND.validate_json(values["found"])
    values["memory"] = _MEMORY.validate_json(values["memory"])
    values["lineage"] = _LINEAGE.validate_json(values["lineage"])
    values["inheritors"] = _FOUND.validate_json(values["inheritors"])
    values["former"] = _FORMER.validate_json(values["former"])
    return Entry(**values)
