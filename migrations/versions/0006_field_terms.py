"""Rename tables, and fields inside stored JSON, to the field's terms.

The tables ``standings`` and ``told`` become ``placements`` and ``guest_hints``. Plans, snapshots, policies, placements
and the changes of entries are stored as JSON; their renamed fields and values are listed below. A snapshot keeps its
id, the hash of its earlier content, because plans refer to it. Drifts are not stored, so their renamed field is not
listed. Records of the audit trail are never changed.
"""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NAMES = {
    "left_alone": "skipped",
    "exempt": "excluded",
    "exempt_guests": "excluded_guests",
    "exempt_processes": "excluded_processes",
    "repack": "rebalance",
    "hold": "immovable_reason",
    "helpers": "vhost_threads",
}
"""The field's name before and after."""

VALUES = {
    ("hold", "narrowed"): ("immovable_reason", "restricted"),
    ("kind", "helper"): ("kind", "vhost"),
}
"""The name and the value of a field before and after. A device has a ``kind`` too, but it is never one of these."""

EXTRA_SPECS = "extra_specs"
"""The properties of a Nova flavor. An operator chooses their names, so they may be equal to the names of fields. All
other mappings have keys that pinner chose."""

COLUMNS = {
    "snapshots": (("id",), "body"),
    "plans": (("id",), "body"),
    "policies": (("host",), "body"),
    "placements": (("host",), "body"),
    "entries": (("run", "seq"), "change"),
}
"""The key and the JSON column of each table."""


def upgrade() -> None:
    """Rename the tables, then the fields."""
    op.rename_table("standings", "placements")
    _rename_hints("told", "guest_hints")
    _rewrite(NAMES, VALUES)


def downgrade() -> None:
    """Restore the earlier names."""
    _rewrite({new: old for old, new in NAMES.items()}, {new: old for old, new in VALUES.items()})
    _rename_hints("guest_hints", "told")
    op.rename_table("placements", "standings")


def _rename_hints(before: str, after: str) -> None:
    op.drop_index(f"{before}_of_host", before)
    op.rename_table(before, after)
    op.create_index(f"{after}_of_host", after, ["host"])


Words = Mapping[str, str]
Values = Mapping[tuple[str, str], tuple[str, str]]


def _rewrite(names: Words, values: Values) -> None:
    """Rename the fields in every row. Only one body at a time is read, because a snapshot may take several MiB."""
    connection = op.get_bind()
    words = [*names, *(value for _, value in values)]
    for name, (key, column) in COLUMNS.items():
        table = sa.table(name, *(sa.column(part) for part in key), sa.column(column, sa.Text))
        # Most entries contain none of the words, and a journal may have very many entries.
        affected = sa.or_(*(table.c[column].contains(f'"{word}"', autoescape=True) for word in words))
        for row in connection.execute(sa.select(*(table.c[part] for part in key)).where(affected)).all():
            same_row = sa.and_(*(table.c[part] == value for part, value in row._mapping.items()))
            before = connection.execute(sa.select(table.c[column]).where(same_row)).scalar_one()
            after = json.dumps(_renamed(json.loads(before), names, values), ensure_ascii=False, separators=(",", ":"))
            if after != before:
                connection.execute(sa.update(table).where(same_row).values({column: after}))


def _renamed(value: Any, names: Words, values: Values) -> Any:
    if isinstance(value, list):
        return [_renamed(each, names, values) for each in value]
    if not isinstance(value, dict):
        return value
    renamed = {}
    for name, field in value.items():
        if name == EXTRA_SPECS:
            renamed[name] = field
        elif isinstance(field, str) and (name, field) in values:
            new_name, renamed_value = values[name, field]
            renamed[new_name] = renamed_value
        else:
            renamed[names.get(name, name)] = _renamed(field, names, values)
    return renamed
