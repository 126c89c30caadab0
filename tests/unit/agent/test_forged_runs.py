"""The agent believes nothing of what a run claims."""

import logging
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.fakes.empty_machine import agent_of, current, results
from support.fakes.in_memory_host import InMemoryHost
from support.system.own_snapshot import snapshot_of
from support.values import NOON, cpus, make_change, make_plan, make_run

from pinner.agent import limits
from pinner.agent.local import LocalAgent
from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.errors import (
    Busy,
    Invalid,
    Refused,
    RunConflict,
    StalePlan,
    Unanswered,
)
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.plan import GuestMemory, Plan, Purpose, Wanted
from pinner.model.plan.request import Request, RequestedPin
from pinner.model.run.journal import Run
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.fault(41)


@pytest.mark.parametrize(
    ("run", "field"),
    [
        ({"run": "../../../etc/cron.d/x"}, "run id"),
        ({"run": "run\n1"}, "run id"),
        ({"run": ""}, "run id"),
        ({"run": "r" * 65}, "run id"),
        ({"run": "٣"}, "run id"),
        ({"host": "another"}, "run host"),
        ({"kind": "rollback"}, "run kind"),
        ({"kind": "release"}, "run kind"),
        ({"undoes": "run-7"}, "run undoes"),
        ({"plan": "plan-2"}, "run plan"),
    ],
)
def test_a_forged_run_is_refused_and_nothing_is_journaled(
    trusted_by_nobody: LocalAgent, journal: StoredJournal, run: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        trusted_by_nobody.apply(make_plan(), make_run(**run), lambda *_: None)  # type: ignore[arg-type]
    assert refused.value.details["field"] == field
    assert journal.interrupted() is None
    assert [result for _, result in results(journal)] == ["refused: invalid"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"plan": "p\0"}, "run plan"),
        ({"undoes": "../x"}, "run undoes"),
        ({"undoes": " "}, "run undoes"),
        ({"kind": "apply"}, "run kind"),
        ({"host": "another"}, "run host"),
    ],
)
def test_a_forged_rollback_is_refused(trusted_by_nobody: LocalAgent, more: dict[str, object], field: str) -> None:
    values = {"kind": "rollback", "undoes": "run-1"} | more
    with pytest.raises(Invalid) as refused:
        trusted_by_nobody.rollback(make_run("run-2", **values), lambda *_: None)  # type: ignore[arg-type]
    assert refused.value.details["field"] == field


def test_the_agent_sets_what_it_knows_itself(trusted_by_nobody: LocalAgent, journal: StoredJournal) -> None:
    forged = make_run(
        actor="a\0b",
        origin="x" * 5000,
        state="applied",
        error="x",
        recovered="y",
        started_at=datetime(1999, 1, 1, tzinfo=UTC),
    )
    trusted_by_nobody.apply(current(make_plan()), replace(forged, ended_at=NOON), lambda *_: None)
    run = journal.run("run-1")
    assert (run.state, run.started_at, run.error, run.recovered) == ("applied", NOON, "", "")
    assert (run.actor, len(run.origin), run.origin[-4:]) == ("a\\x00b", limits.MAX_TEXT, "x...")
    assert run.peer.endswith(f"(uid {os.geteuid()}), pid {os.getpid()}")


def test_a_refused_run_claims_a_long_text(trusted_by_nobody: LocalAgent, journal: StoredJournal) -> None:
    forged = make_run("r" * 10_000, actor="a\0b", plan="p" * 10_000)
    with pytest.raises(Invalid):
        trusted_by_nobody.apply(make_plan(), replace(forged, peer="eve (uid 7), pid 1"), lambda *_: None)
    (record,) = journal.chain.records(1, 1000)
    assert (len(record.run), len(record.target), record.actor) == (limits.MAX_TEXT, limits.MAX_TEXT, "a\\x00b")
    assert record.peer == "eve (uid 7), pid 1"


def test_an_id_is_used_once(trusted_by_nobody: LocalAgent, journal: StoredJournal) -> None:
    trusted_by_nobody.apply(current(make_plan()), make_run(), lambda *_: None)
    with pytest.raises(RunConflict, match="an id that no run has"):
        trusted_by_nobody.apply(current(make_plan()), make_run(), lambda *_: None)
    assert results(journal)[-1] == ("run.apply", "refused: run_conflict")


TEXT = "x" * (limits.MAX_TEXT + 1)
LONG = (
    Request(strategy=TEXT),
    Request(guests=(TEXT,)),
    Request(excluded_processes=("x", TEXT)),
    Request(placement=(RequestedPin(TEXT, "all", cpus("0")),)),
    Request(irq_cpus={TEXT: "0"}, remedies=("irqs",)),
)


@pytest.mark.parametrize(
    "plan",
    [
        replace(make_plan(), changes=(make_change(),) * (limits.MAX_CHANGES + 1)),
        replace(make_plan(), changes=(make_change(threads=limits.MAX_THREADS + 1),)),
        replace(make_plan(), changes=(replace(make_change(), reason="x" * 5000),)),
        replace(make_plan(), changes=(replace(make_change(), target=Target("process", "1", 2**70, "x")),)),
        replace(make_plan(), changes=(replace(make_change(), target=Target("vcpu", "../x", 1, "x")),)),
        replace(make_plan(), purpose="release"),
        replace(make_plan(), request=Request(processes=("x",) * (limits.MAX_NAMES + 1))),
        replace(make_plan(), request=Request(excluded_guests=("x",) * (limits.MAX_NAMES + 1))),
        replace(
            make_plan(),
            request=Request(
                placement=tuple(RequestedPin("g", "vcpu", cpus("0"), n) for n in range(limits.MAX_NAMES + 1))
            ),
        ),
        *(replace(make_plan(), request=request) for request in LONG),
        replace(make_plan(), blocked=TEXT),
        replace(make_plan(), wanted=(Wanted(Target("vcpu", "u", 0, TEXT), cpus("0"), "so"),)),
        replace(make_plan(), memory=(GuestMemory(Target("memory", "u", 7, TEXT), {}, 0, 0, 0),)),
        replace(make_plan(), basis=replace(make_plan().basis, cpu_limits={"u": (CpuLimit(TEXT, cpus("0")),)})),
        make_plan(host="another"),
    ],
)
def test_a_plan_beyond_any_host_is_refused(trusted_by_nobody: LocalAgent, plan: Plan) -> None:
    with pytest.raises(Invalid):
        trusted_by_nobody.apply(plan, make_run(), lambda *_: None)


@pytest.mark.parametrize(
    ("purpose", "run", "words"),
    [
        ("release", make_run(kind="release", persist=True), "false for a release"),
        ("release", make_run(kind="release", migrate_memory=True), "false for a release"),
        ("place", make_run(kind="release"), "run kind"),
        ("place", make_run(plan="another"), "run plan"),
        ("place", make_run(undoes="run-0"), "run undoes"),
    ],
)
def test_a_run_that_does_not_fit_its_plan_is_refused(
    trusted_by_nobody: LocalAgent, purpose: Purpose, run: Run, words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        trusted_by_nobody.apply(replace(make_plan(), purpose=purpose), run, lambda *_: None)


def test_a_refused_plan_is_a_failed_run_and_changes_nothing(journal: StoredJournal) -> None:
    """As the API's user would: any process, any mask. Here it is this process, which is pinner itself."""
    mask = os.sched_getaffinity(0)
    own = snapshot_of([os.getpid()])
    mine = replace(own, processes=tuple(replace(each, immovable_reason="pinner") for each in own.processes))
    (process,) = mine.processes
    before = tuple(ThreadMask(thread.tid, thread.started, thread.affinity) for thread in process.threads)
    change = AffinityChange(
        Target("process", str(process.pid), process.started, "x"), before, cpus(str(min(mask))), "so"
    )
    host = InMemoryHost()
    host.threads[replace(change.target, name=process.name)] = list(before)
    agent = agent_of(journal, host, lambda _: mine)
    plan = replace(make_plan(changes=(change,)), basis=replace(make_plan().basis, fingerprint=host.fingerprint()))
    with pytest.raises(Refused, match="pinner itself"):
        agent.apply(plan, make_run(), lambda *_: None)
    assert host.writes == []
    assert (journal.run("run-1").state, journal.entries("run-1")) == ("failed", ())
    begin, end = results(journal)
    assert begin == ("run.apply", "started")
    assert end[0] == "run.end"
    assert end[1].startswith("failed: ")
    assert "pinner itself" in end[1]


def test_the_log_names_a_refused_run(journal: StoredJournal, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    agent = agent_of(journal, InMemoryHost())
    with pytest.raises(Invalid):
        agent.apply(make_plan(), make_run(host="another"), lambda *_: None)
    assert "refused run run-1, claimed by 'ann'" in caplog.text


def test_the_start_of_a_process_cannot_be_foreseen(journal: StoredJournal) -> None:
    """A plan that names a process which starts after the agent's snapshot does not change it."""
    host = InMemoryHost()
    change = make_change(pid=4242)
    host.threads[change.target] = list(change.before)
    agent = agent_of(journal, host)
    run = agent.apply(current(make_plan(changes=(change,))), make_run(), lambda *_: None)
    assert run.state == "applied"
    assert [entry.state for entry in journal.entries("run-1")] == ["gone"]
    assert host.writes == []


def test_errors_have_their_own_types() -> None:
    assert {Refused.code, Busy.code, StalePlan.code, Unanswered.code} == {
        "refused",
        "busy",
        "stale_plan",
        "host_unreachable",
    }
