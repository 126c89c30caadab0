"""A server that dies, or an agent that does not answer, delays the undo of a run that is worse, and loses nothing."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.watched_host import (
    HOST,
    UNDOING,
    applied_by_a_person,
    enforced,
    is_placed,
    killed_at,
    kinds,
    passes,
    records,
    runs,
    two_worse,
    unreachable,
)

from pinner.model.errors import HostUnreachable
from pinner.model.plan.request import Request


@pytest.mark.parametrize("late", [timedelta(), timedelta(hours=1), timedelta(days=3)])
def test_a_server_that_dies_between_setback_and_rollback_rolls_back_later(
    restart, store, clock, load, agent, monkeypatch, late
):
    load.worse_by = 200.0
    with restart() as parts:
        run = enforced(parts)
        killed_at(parts, clock, monkeypatch, parts.runs, "rollback")
        why = store.policies.setback(HOST).why
    assert (store.policies.get(HOST).mode, is_placed(agent)) == ("propose", True)
    clock.at += late
    load.is_known = not late  # the steps of that time are gone
    with restart() as parts:
        passes(parts, clock, 60)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.why, watch.rollback) == ("worse", why, runs(parts)[0].id)
        assert len(records(parts, "policy.set")) == 2


def test_a_server_that_dies_before_the_setback_finds_the_run_worse_again(
    restart, store, clock, load, agent, monkeypatch
):
    load.worse_by = 200.0
    with restart() as parts:
        enforced(parts)
        killed_at(parts, clock, monkeypatch, store.policies, "put")
    assert (store.policies.get(HOST).mode, is_placed(agent)) == ("enforce", True)
    with restart() as parts:
        passes(parts, clock, 60)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)


def test_a_server_that_dies_after_the_rollback_stores_its_cause_later(restart, store, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    with restart() as parts:
        run = enforced(parts)
        killed_at(parts, clock, monkeypatch, store.outcomes, "put_watch")
    clock.at += timedelta(days=3)
    with restart() as parts:
        passes(parts, clock, 60)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.why) == ("worse", store.policies.setback(HOST).why)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)


def test_an_agent_that_does_not_answer_is_asked_for_the_rollback_again(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0

    def refuse(*_):
        raise HostUnreachable(HOST, "its agent does not answer")

    enforced(parts)
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", refuse)
        passes(parts, clock, 60)
    assert (parts.service.policy(HOST).mode, is_placed(agent)) == ("propose", True)
    passes(parts, clock, 10)
    assert not is_placed(agent)
    assert len(records(parts, "policy.set")) == 2


def test_a_purged_run_leaves_the_setback(parts, store, clock, load):
    load.worse_by = 200.0
    run = enforced(parts)
    passes(parts, clock, 60)
    store.retention.purge_runs(clock.at + timedelta(days=1), lambda _: False)
    parts.outcomes.make_pass()
    assert parts.service.drift(HOST).setback.run == run.id


def test_two_worse_runs_of_an_agent_that_does_not_answer_for_long(parts, clock, load, agent, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", unreachable)
        first, second = two_worse(parts, clock, load, agent)
        passes(parts, clock, 50)
        clock.at += timedelta(hours=1)
        passes(parts, clock, 10)
    passes(parts, clock, 30)
    assert [parts.service.run(each.id).state for each in (first, second)] == ["rolled_back"] * 2


def test_a_worse_run_of_a_person_whose_rollback_is_refused_for_long(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", unreachable)
        run = applied_by_a_person(parts)
        passes(parts, clock, 50)
        clock.at += timedelta(hours=1)
        passes(parts, clock, 10)
    passes(parts, clock, 30)
    assert parts.service.run(run.id).state == "rolled_back"


@pytest.mark.parametrize("seconds", [0, 5])
def test_the_run_of_a_replaced_policy_does_not_set_the_new_one_back(parts, clock, load, seconds):
    load.worse_by = 200.0
    enforced(parts)
    passes(parts, clock, seconds)
    new = replace(UNDOING, request=Request(housekeeping="0-7"))
    enforced(parts, new)
    load.worse_by = 0.0
    passes(parts, clock, 60)
    assert parts.service.policy(HOST) == new
