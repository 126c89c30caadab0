"""Name what a plan leaves out by a target instead of a label.

Old: ``{name, why}`` in a plan's ``unplaced`` and ``skipped``, where the name is text such as "guest g1",
"guest g1 vcpu 2", "process ovs (600) thread 601, 602" or "18 busy per-CPU kernel threads".
New: ``{target, why, threads}``. The plan's snapshot gives the UUIDs of guests and the start times of processes. A name
that the snapshot lacks gets an empty owner and no start time, so that the upgrade does not fail because of it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_PLANS = sa.table("plans", sa.column("id"), sa.column("body"))
_SNAPSHOTS = sa.table("snapshots", sa.column("id"), sa.column("body"))

_LISTS = ("unplaced", "skipped")
_PROCESS = re.compile(r"process (.*) \((\d+)\)(?: thread (\d+(?:, \d+)*))?", re.DOTALL)
_VCPU = re.compile(r"guest (.*) vcpu (\d+)", re.DOTALL)
_PER_CPU = re.compile(r"\d+ busy per-CPU kernel threads")
_BUSIEST = re.compile(r"most of it (.*)", re.DOTALL)


def upgrade() -> None:
    """Rewrite the entries of each plan that leaves something out. One plan at a time: a snapshot may be large."""
    for plan, body in _plans():
        if any(body[name] for name in _LISTS):
            snapshot = _snapshot(body["basis"]["snapshot"])
            _store(plan, body | {name: [_new(each, snapshot) for each in body[name]] for name in _LISTS})


def downgrade() -> None:
    """Restore the labels. An entry for all per-CPU kernel threads keeps the name of the busiest one."""
    for plan, body in _plans():
        _store(plan, body | {name: [_old(each) for each in body[name]] for name in _LISTS})


def _plans() -> Iterator[tuple[str, Any]]:
    connection = op.get_bind()
    for plan in connection.execute(sa.select(_PLANS.c.id)).scalars().all():
        yield plan, json.loads(connection.execute(sa.select(_PLANS.c.body).where(_PLANS.c.id == plan)).scalar_one())


def _store(plan: str, body: Any) -> None:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    op.get_bind().execute(sa.update(_PLANS).where(_PLANS.c.id == plan).values(body=text))


def _snapshot(snapshot: str) -> Any:
    return json.loads(
        op.get_bind().execute(sa.select(_SNAPSHOTS.c.body).where(_SNAPSHOTS.c.id == snapshot)).scalar_one()
    )


def _new(old: Any, snapshot: Any) -> Any:
    label, why = old["name"], old["why"]
    guests = {guest["name"]: guest["uuid"] for guest in snapshot["guests"]}
    if found := _PROCESS.fullmatch(label):
        name, pid, tids = found.groups()
        started = next((each["started"] for each in snapshot["processes"] if str(each["pid"]) == pid), None)
        threads = [int(tid) for tid in tids.split(", ")] if tids else []
        return _entry("process", pid, started, name, why, threads)
    if _PER_CPU.fullmatch(label):
        busiest = _BUSIEST.search(why)
        name = busiest[1] if busiest else ""
        nothing: Any = {"pid": "", "started": None}
        process = next((each for each in snapshot["processes"] if each["name"] == name), nothing)
        return _entry("process", str(process["pid"]), process["started"], name, f"{label}: {why}")
    name = label.removeprefix("guest ")
    if name not in guests and (found := _VCPU.fullmatch(label)):
        return _entry("vcpu", guests.get(found[1], ""), int(found[2]), found[1], why)
    return _entry("guest", guests.get(name, ""), None, name, why)


def _entry(kind: str, owner: str, part: int | None, name: str, why: str, threads: list[int] | None = None) -> Any:
    target = {"kind": kind, "owner": owner, "part": part, "name": name}
    return {"target": target, "why": why, "threads": threads or []}


def _old(new: Any) -> Any:
    target, threads = new["target"], new["threads"]
    name, owner, part = target["name"], target["owner"], target["part"]
    label = {
        "process": f"process {name} ({owner})",
        "vcpu": f"guest {name} vcpu {part}",
    }.get(target["kind"], f"guest {name}")
    return {"name": label + (f" thread {', '.join(map(str, threads))}" if threads else ""), "why": new["why"]}
