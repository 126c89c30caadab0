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

ROWS = {"entries": 1000}
"""How many rows are read at a time: one of the other tables, because a snapshot may take several MiB. A journal may
have hundreds of thousands of entries, and other processes wait for the upgrade."""


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
    """Rename the fields in every row."""
    connection = op.get_bind()
    words = [*names, *(value for _, value in values)]
    for name, (key, column) in COLUMNS.items():
        body = sa.column(column, sa.Text)
        keys = [sa.column(part, sa.Integer if part == "seq" else sa.String) for part in key]
        table = sa.table(name, *keys, body)
        # Most entries contain none of the words.
        affected = sa.or_(*(body.contains(f'"{word}"', autoescape=True) for word in words))
        page = sa.select(body, *keys).where(affected).order_by(*keys).limit(ROWS.get(name, 1))
        same_row = sa.and_(*(each == sa.bindparam(f"_{each.name}") for each in keys))
        update = sa.update(table).where(same_row).values({column: sa.bindparam("_body")})
        rows = connection.execute(page).all()
        while rows:
            changed = []
            for before, *found in rows:
                new = _renamed(json.loads(before), names, values)
                text = json.dumps(new, ensure_ascii=False, separators=(",", ":"))
                changed.append({"_body": text} | {f"_{part}": value for part, value in zip(key, found, strict=True)})
            connection.execute(update, changed)
            rows = connection.execute(page.where(sa.tuple_(*keys) > tuple(rows[-1][1:]))).all()


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
