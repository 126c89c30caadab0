"""Changes, plans and snapshots that revision 0006 stored, after the migration to the kinds of change."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import text
from support.hosts import guest
from support.values import MEMBER, NOON, cpus, isolated, make_change, make_plan, make_run, make_snapshot, root

from pinner import codec
from pinner.model.change import MemoryChange, StateChange, Target
from pinner.model.guest import Cgroup
from pinner.model.plan import Roles, Wanted
from pinner.store import schema
from pinner.store.engine import connect, reading, writing
from pinner.store.plans import Plans
from pinner.store.runs import Runs
from pinner.store.snapshots import Snapshots
from pinner.store.tables import utc_text

pytestmark = pytest.mark.usefixtures("migrations")
BUSY = {"kind": "process", "owner": "110", "part": 7, "name": "busy"}
SCOPE = {"kind": "partition", "owner": "machine.slice/g1.scope", "part": None, "name": "g1.scope"}
WORK = {"kind": "workqueue", "owner": "", "part": None, "name": "unbound kernel work"}
MEMORY = {"kind": "memory", "owner": "uuid-g1", "part": 7, "name": "g1"}
OLD_AFFINITY = {
    "target": BUSY,
    "before": [{"tid": 110, "started": 7, "cpus": "0-3"}],
    "after": "1",
    "reason": "it is busy",
    "states": ["", ""],
}
INVALID = "isolated invalid (Cpu list in cpuset.cpus not exclusive) 4-7"
OLD_CHANGES = (
    OLD_AFFINITY,
    {"target": SCOPE, "before": [], "after": "4-7", "reason": "so", "states": ["member", "isolated 4-7"]},
    {"target": SCOPE, "before": [], "after": "2-7", "reason": "so", "states": [INVALID, "root 2-7"]},
    {"target": WORK, "before": [], "after": "0-3", "reason": "so", "states": ["0-7", "0-3"]},
    {"target": MEMORY, "before": {"1": 2048}, "node": 0, "numatune": "", "reason": "so"},
)
"""Changes as revision 0006 wrote them."""
NEW_CHANGES = (
    make_change(110, after="1"),
    StateChange(Target(**SCOPE), MEMBER, isolated("4-7"), "so"),
    StateChange(Target(**SCOPE), isolated("4-7", "Cpu list in cpuset.cpus not exclusive"), root("2-7"), "so"),
    StateChange(Target(**WORK), cpus("0-7"), cpus("0-3"), "so"),
    MemoryChange(Target(**MEMORY), {1: 2048}, 0, "", "so"),
)


@pytest.fixture
def bare(tmp_path):
    made = connect(f"sqlite:///{tmp_path}/bare.sqlite")
    yield made
    made.dispose()


def test_changes_of_older_journals_can_be_undone(bare):
    schema.upgrade(bare, "0006")
    run = {name: getattr(make_run(), name) for name in ("id", "kind", "host", "plan", "actor", "origin", "state")}
    more = {"started_at": utc_text(NOON), "persist": False, "undoes": "", "error": ""}
    _insert(bare, "runs", **run, **more)
    for seq, old in enumerate(OLD_CHANGES, start=1):
        row = {"run": "run-1", "seq": seq, "change": json.dumps(old), "state": "done", "at": utc_text(NOON)}
        _insert(bare, "entries", **row, error="", found="[]", definition="", memory="[]")
    schema.ensure(bare)
    assert tuple(entry.change for entry in Runs(bare).entries("run-1")) == NEW_CHANGES
    schema.downgrade(bare, "0006")
    with reading(bare) as connection:
        stored = connection.execute(text("SELECT change FROM entries ORDER BY seq")).scalars()
        assert tuple(map(json.loads, stored)) == OLD_CHANGES


@pytest.mark.parametrize(
    ("roles", "purpose"), [(Roles(cpus("0"), cpus("1"), cpus("2-3")), "place"), (Roles(*[cpus("")] * 3), "release")]
)
def test_older_plans_and_their_snapshots_can_be_read(bare, roles, purpose):
    snapshot = replace(make_snapshot(), guests=(guest(1, 1, cpus("0-3"), cgroups=(Cgroup("g1", isolated("1")),)),))
    wanted = (
        Wanted(Target(**SCOPE), cpus("4-7"), "so", isolated("4-7")),
        Wanted(Target(**WORK), cpus("0-3"), "so", cpus("0-3")),
        Wanted(Target(**BUSY), cpus("1"), "so"),
    )
    plan = replace(make_plan(changes=NEW_CHANGES[:-1]), wanted=wanted, roles=roles, purpose=purpose)
    old_snapshot, old_plan = codec.plain(snapshot), codec.plain(plan)
    old_snapshot["guests"][0]["cgroups"][0]["state"] = "isolated 1"
    del old_plan["purpose"]
    old_plan["changes"] = list(OLD_CHANGES[:-1])
    for want, state in zip(old_plan["wanted"], ("isolated 4-7", "0-3", ""), strict=True):
        want["state"] = state
    schema.upgrade(bare, "0006")
    _insert(bare, "snapshots", id="s", host="h1", taken_at=utc_text(NOON), body=json.dumps(old_snapshot))
    _insert(bare, "plans", id="plan-1", host="h1", strategy="s", created_at=utc_text(NOON), changes=4, unplaced=0,
            blocked="", snapshot="s", body=json.dumps(old_plan))  # fmt: skip
    schema.ensure(bare)
    assert (Snapshots(bare).get("s"), Plans(bare).get("plan-1")) == (snapshot, plan)
    schema.downgrade(bare, "0006")
    with reading(bare) as connection:
        stored = [connection.execute(text(f"SELECT body FROM {table}")).scalar() for table in ("snapshots", "plans")]
    assert list(map(json.loads, stored)) == [old_snapshot, old_plan]


def _insert(engine, table, **values):
    names = ", ".join(values)
    with writing(engine) as connection:
        connection.execute(
            text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in values)})"), values
        )
