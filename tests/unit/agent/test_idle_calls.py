"""Calls that do nothing are errors, or bounded."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.fakes.empty_machine import agent_of, current, results
from support.fakes.in_memory_host import InMemoryHost
from support.values import NOON, cpus, make_change, make_plan, make_run, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import WINDOW_SECONDS, AgentTrailFile, CallLimit, RefusalLimit
from pinner.model.change import StateChange, Target
from pinner.model.errors import (
    Busy,
    Invalid,
    NotFound,
    StalePlan,
)
from pinner.model.plan.request import Request
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.fault(41)

ABSENT = (
    StateChange(Target("irq", "", 4711, "4711"), cpus("0-3"), cpus("0"), "so"),
    StateChange(Target("ring", "eth7", None, "eth7"), Number(64), Number(512), "so"),
)

SWAPPINESS = StateChange(SYSCTLS["vm.swappiness"].target, Number(60), Number(1), "so")


@pytest.mark.fault(69)
@pytest.mark.parametrize("others", [(), (make_change(4711),)], ids=["alone", "beside a process that has ended"])
def test_settings_that_do_not_exist_are_an_error_before_the_run(journal: StoredJournal, others) -> None:
    host = InMemoryHost()
    agent = agent_of(journal, host)
    records = results(journal)
    with pytest.raises(Invalid, match=r"4711") as refused:
        agent.apply(current(make_plan(changes=(*others, *ABSENT))), make_run(), lambda *_: None)
    assert refused.value.details["field"] == "plan changes"
    assert refused.value.details["value"] == [str(change.target) for change in ABSENT]
    with pytest.raises(NotFound):
        journal.run("run-1")
    assert host.writes == []
    assert results(journal) == [*records, ("run.apply", "refused: invalid")]


def test_a_run_with_one_setting_that_exists_makes_it_without_the_others(journal: StoredJournal) -> None:
    host = InMemoryHost()
    host.states[SWAPPINESS.target] = Number(60)
    agent = agent_of(journal, host, lambda _: replace(make_snapshot(), sysctls={"vm.swappiness": 60}))
    plan = make_plan(changes=(*ABSENT, SWAPPINESS))
    agent.apply(current(replace(plan, request=Request(fix=("host-swapping",)))), make_run(), lambda *_: None)
    states = {entry.change.target.kind: entry.state for entry in journal.entries("run-1")}
    assert states == {"irq": "gone", "ring": "gone", "sysctl": "done"}


@pytest.mark.fault(69)
def test_runs_that_are_refused_after_their_begin_are_bounded(journal: StoredJournal, tmp_path: Path) -> None:
    """Each is a durable run with two records of the trail."""
    seconds = [1000.0]
    agent = agent_of(journal, InMemoryHost(), idle_limit=CallLimit(lambda: seconds[0], 3))
    other_host = replace(make_plan(), basis=replace(make_plan().basis, fingerprint="another"))
    for number in range(3):
        with pytest.raises(StalePlan):
            agent.apply(other_host, make_run(f"run-{number}"), lambda *_: None)
        assert journal.run(f"run-{number}").state == "failed"
    with pytest.raises(Busy, match="3 calls of the last 60 s did nothing"):
        agent.apply(make_plan(), make_run("run-more"), lambda *_: None)
    with pytest.raises(NotFound):
        journal.run("run-more")


IDLE = {
    "a run is closed that nobody began": lambda agent, n: agent.close_run(make_run(f"run-{n}")),
    "all runs of an idle host are rolled back": lambda agent, n: agent.rollback(
        make_run(f"run-{n}", kind="rollback", plan=""), lambda *_: None
    ),
    "a plan changes processes that have ended": lambda agent, n: agent.apply(
        make_plan(changes=(make_change(4711),)), make_run(f"run-{n}"), lambda *_: None
    ),
    "a plan changes nothing": lambda agent, n: agent.apply(make_plan(), make_run(f"run-{n}"), lambda *_: None),
}


@pytest.mark.fault(69)
@pytest.mark.parametrize("call", IDLE.values(), ids=IDLE)
def test_calls_that_do_nothing_are_bounded_like_refusals(journal: StoredJournal, tmp_path: Path, call) -> None:
    seconds = [1000.0]
    key = SigningKey(tmp_path / "signing.key")
    trail = AgentTrailFile("h1", journal.chain, key, lambda: NOON, RefusalLimit(lambda: seconds[0]))
    agent = LocalAgent(
        lambda _: make_snapshot(), InMemoryHost(), journal, lambda: NOON, HostEventQueue(lambda: NOON), trail,
        name="h1", idle_limit=CallLimit(lambda: seconds[0], 3),
    )  # fmt: skip
    for number in range(3):
        call(agent, number)
    with pytest.raises(Busy, match="3 calls of the last 60 s did nothing"):
        call(agent, "more")
    with pytest.raises(NotFound):
        journal.run("run-more")
    seconds[0] += WINDOW_SECONDS
    call(agent, "later")
