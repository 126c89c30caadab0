"""Plans that revision 0007 stored, after the migration that names what they leave out by a target."""

import json
from dataclasses import replace

import pytest
from sqlalchemy import text
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import NOON, make_plan

from pinner import codec
from pinner.model.change import Target
from pinner.model.plan import LeftOut
from pinner.model.snapshot import Snapshot
from pinner.store import schema
from pinner.store.engine import connect, reading, writing
from pinner.store.plans import Plans
from pinner.store.snapshots import Snapshots

pytestmark = pytest.mark.usefixtures("migrations")
G1, G2 = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2))
HOST = snapshot(
    plain(4),
    [guest(1, 1, cpus("0-3")), replace(guest(2, 1, cpus("0-3")), name="a vcpu 2")],
    [process(600, 1.0, "0-3", name="ovs"), process(3, 30.0, "1", name="ksoftirqd/1")],
)
OLD = [
    {"name": "guest g1", "why": "no room"},
    {"name": "guest g1 vcpu 2", "why": "not plugged in"},
    {"name": "guest a vcpu 2", "why": "no room"},
    {"name": "process ovs (600)", "why": "pinner itself"},
    {"name": "process ovs (600) thread 601, 602", "why": "restricted"},
    {"name": "2 busy per-CPU kernel threads", "why": "together 39.0 % of one CPU, most of it ksoftirqd/1"},
]
"""Entries as revision 0007 wrote them."""
NEW = (
    LeftOut(Target("guest", G1, None, "g1"), "no room"),
    LeftOut(Target("vcpu", G1, 2, "g1"), "not plugged in"),
    LeftOut(Target("guest", G2, None, "a vcpu 2"), "no room"),
    LeftOut(Target("process", "600", 5, "ovs"), "pinner itself"),
    LeftOut(Target("process", "600", 5, "ovs"), "restricted", (601, 602)),
    LeftOut(
        Target("process", "3", 5, "ksoftirqd/1"),
        "2 busy per-CPU kernel threads: together 39.0 % of one CPU, most of it ksoftirqd/1",
    ),
)


@pytest.fixture
def bare(tmp_path):
    made = connect(f"sqlite:///{tmp_path}/bare.sqlite")
    yield made
    made.dispose()


def store_old_plan(engine, host: Snapshot) -> None:
    """Written by the present code and brought to revision 0007, where a plan is text."""
    schema.upgrade(engine)
    plan = make_plan(snapshot=Snapshots(engine).add(host))
    Plans(engine).add(plan, NOON)
    schema.downgrade(engine, "0007")
    body = codec.plain(plan) | {"unplaced": OLD[:1], "skipped": OLD[1:]}
    with writing(engine) as connection:
        connection.execute(text("UPDATE plans SET body = :body"), {"body": json.dumps(body)})


def stored(engine):
    with reading(engine) as connection:
        body = json.loads(connection.execute(text("SELECT body FROM plans")).scalar_one())
    return [*body["unplaced"], *body["skipped"]]


def test_entries_of_an_older_plan_get_targets_from_the_plans_snapshot(bare):
    store_old_plan(bare, HOST)
    schema.upgrade(bare)
    plan = Plans(bare).get("plan-1")
    assert (*plan.unplaced, *plan.skipped) == NEW


def test_entries_whose_names_the_snapshot_lacks_are_readable(bare):
    store_old_plan(bare, snapshot(plain(4)))
    schema.upgrade(bare)
    plan = Plans(bare).get("plan-1")
    assert [left.label for left in (*plan.unplaced, *plan.skipped)] == [
        *(entry["name"] for entry in OLD[:-1]),
        "process ksoftirqd/1 ()",
    ]


def test_a_downgrade_restores_the_labels(bare):
    store_old_plan(bare, HOST)
    schema.upgrade(bare)
    schema.downgrade(bare, "0007")
    assert stored(bare)[:-1] == OLD[:-1]
    assert stored(bare)[-1]["name"] == "process ksoftirqd/1 (3)"
