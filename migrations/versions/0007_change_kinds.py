"""Changes of three kinds with a tag each, and a partition's state as a value instead of text.

Old: ``{target, before, after, reason, states}``, where ``states`` are two texts such as "member" and "isolated 4-7" for
a target with a state, and two empty texts otherwise; or ``{target, before, node, numatune, reason}`` for memory.
New: every change has a ``kind``; a change of a state has its states in ``before`` and ``after``.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_STATE = re.compile(r"(member|root|isolated)( invalid(?: \((.*)\))?)?(?: ([0-9,-]+))?")
"""A partition's state as text: kind, whether and why it is invalid, its own CPUs."""

_ENTRIES = sa.table("entries", sa.column("run", sa.String), sa.column("seq", sa.Integer), sa.column("change", sa.Text))
_ROWS = 1000
"""How many entries are read at a time."""
_PLANS = sa.table("plans", sa.column("id"), sa.column("body"))
_SNAPSHOTS = sa.table("snapshots", sa.column("id"), sa.column("body"))


def upgrade() -> None:
    """Rewrite the changes of runs and plans, and the states in plans and snapshots.

    A snapshot's id stays the hash of its old content, because plans refer to it.
    """
    _rewrite_entries(_new_change)
    _rewrite(_PLANS, _new_plan)
    _rewrite(_SNAPSHOTS, _new_snapshot)


def downgrade() -> None:
    """Rewrite them to the old form. A release plan stays one: its roles have no CPUs."""
    _rewrite_entries(_old_change)
    _rewrite(_PLANS, _old_plan)
    _rewrite(_SNAPSHOTS, _old_snapshot)


def _rewrite_entries(convert: Callable[[Any], Any]) -> None:
    """Many rows at a time: the journal of a busy host has hundreds of thousands, and others wait for the upgrade."""
    connection = op.get_bind()
    key, change = sa.tuple_(_ENTRIES.c.run, _ENTRIES.c.seq), _ENTRIES.c.change
    same_row = (_ENTRIES.c.run == sa.bindparam("_run")) & (_ENTRIES.c.seq == sa.bindparam("_seq"))
    update = sa.update(_ENTRIES).where(same_row).values(change=sa.bindparam("_change"))
    page = sa.select(_ENTRIES.c.run, _ENTRIES.c.seq, change).order_by(_ENTRIES.c.run, _ENTRIES.c.seq).limit(_ROWS)
    rows = connection.execute(page).all()
    while rows:
        changed = [{"_run": run, "_seq": seq, "_change": _dumped(convert(json.loads(old)))} for run, seq, old in rows]
        connection.execute(update, changed)
        rows = connection.execute(page.where(key > (rows[-1].run, rows[-1].seq))).all()


def _rewrite(table: sa.TableClause, convert: Callable[[Any], Any]) -> None:
    """One row at a time: a snapshot may be large."""
    connection = op.get_bind()
    for key in connection.execute(sa.select(table.c.id)).scalars().all():
        body = json.loads(connection.execute(sa.select(table.c.body).where(table.c.id == key)).scalar_one())
        connection.execute(sa.update(table).where(table.c.id == key).values(body=_dumped(convert(body))))


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _new_change(old: Any) -> Any:
    if "node" in old:
        return old | {"kind": "memory"}
    before, after = old.pop("states", ("", ""))
    if not after:
        return old | {"kind": "affinity"}
    target = old["target"]["kind"]
    return old | {"before": _new_state(target, before), "after": _new_state(target, after), "kind": "state"}


def _old_change(new: Any) -> Any:
    match new.pop("kind"):
        case "affinity":
            return new | {"states": ["", ""]}
        case "state":
            before, after = _old_state(new["before"]), _old_state(new["after"])
            cpus = new["after"] if isinstance(new["after"], str) else new["after"]["cpus"]
            return new | {"before": [], "after": cpus, "states": [before, after]}
    return new


def _new_plan(old: Any) -> Any:
    roles = old["roles"]
    wanted = [want | {"state": _new_wanted(want)} for want in old["wanted"]]
    allocates = roles["housekeeping"] or roles["emulator"] or roles["vcpu"]
    purpose = "place" if allocates else "release"
    return old | {"wanted": wanted, "changes": [_new_change(each) for each in old["changes"]], "purpose": purpose}


def _new_wanted(want: Any) -> Any:
    return _new_state(want["target"]["kind"], want["state"]) if want.get("state") else None


def _old_plan(new: Any) -> Any:
    del new["purpose"]
    wanted = [want | {"state": _old_state(want["state"]) if want["state"] else ""} for want in new["wanted"]]
    return new | {"wanted": wanted, "changes": [_old_change(each) for each in new["changes"]]}


def _new_snapshot(old: Any) -> Any:
    return _with_states(old, lambda state: _new_state("partition", state))


def _old_snapshot(new: Any) -> Any:
    return _with_states(new, _old_state)


def _with_states(snapshot: Any, convert: Callable[[Any], Any]) -> Any:
    for guest in snapshot["guests"]:
        for cgroup in guest.get("cgroups", ()):
            cgroup["state"] = convert(cgroup["state"])
    return snapshot


def _new_state(target: str, text: str) -> Any:
    """The work queues' state is a list of CPUs, in the new form too."""
    if target == "workqueue":
        return text
    found = _STATE.fullmatch(text)
    if found is None:
        raise ValueError(f"no state of a partition: {text!r}")
    kind, invalid, why, cpus = found.groups()
    return {"kind": kind, "cpus": cpus or "", "invalid": (why or "the kernel gives no reason") if invalid else ""}


def _old_state(state: Any) -> str:
    if isinstance(state, str):
        return state
    invalid = f"invalid ({state['invalid']})" if state["invalid"] else ""
    return " ".join(filter(None, (state["kind"], invalid, state["cpus"])))
