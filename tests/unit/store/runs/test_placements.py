"""Placements are read as they were stored, at most one for each host."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import NOON, make_run

from pinner.model.plan.request import Request
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.store.runs.runs import Placements, Runs

HOST = snapshot(plain(8), [guest(1, 2, cpus("0-7"))], [process(500, 50.0, "0-7", name="daemon")])
PLACEMENT = record(planner.plan_from_placement(HOST, "s", Request(), None), HOST, None)


@pytest.fixture
def placements(engine):
    return Placements(engine)


def test_a_placement_is_read_as_it_was_stored(placements):
    assert placements.get("h1") is None
    placements.put(PLACEMENT, NOON, 3)
    placements.put(PLACEMENT, NOON - timedelta(hours=1), 4)
    assert placements.get(PLACEMENT.host) == (PLACEMENT, 4)
    assert placements.get("h2") is None


@pytest.mark.parametrize(
    ("undone", "also", "is_kept"), [("early", (), False), ("late", ("late",), False), ("late", (), True)]
)
def test_the_rollback_of_all_runs_deletes_the_placement_of_each_run_that_it_undid(
    engine, placements, undone, also, is_kept
):
    runs, host = Runs(engine), PLACEMENT.host
    back = make_run("back", host, kind="rollback", plan="")
    for run in (make_run("early", host, state="applied"), back, make_run("late", host, state="applied")):
        runs.add(run)
    placements.put(PLACEMENT, NOON, runs.number(undone))
    assert runs.end(replace(back, state="rolled_back", ended_at=NOON), also=also)
    assert (placements.get(host) is not None) == is_kept
