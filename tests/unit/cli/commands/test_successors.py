"""pinner apply of a stale plan: it is planned once more, and goes on with the confirmed changes."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, Refused, StalePlan
from pinner.model.plan.plan import GuestMemory


@pytest.fixture
def stale(pinner, cli):
    """The id of a stale plan. The plan that follows it has the same changes."""
    cli("plan")
    (plan,) = pinner.stored
    pinner.stale.add(plan)
    return plan


def narrowed(pinner, plan, **fields):
    """The stored plan had fewer changes than its successor will have, or others."""
    pinner.stored[plan] = replace(pinner.stored[plan], **fields)


def test_a_stale_plan_is_planned_once_more_and_goes_on_with_the_confirmed_changes(pinner, cli, stale):
    result = cli("apply", stale, "--yes")
    successor = next(plan for plan in pinner.stored if plan != stale)
    assert (result.status, pinner.run_list["run-1"].plan) == (0, successor)
    assert result.err.splitlines()[1:3] == [
        f"warning: plan {stale} is stale, make a new one: process 90 is gone",
        f"plan {successor} replaces it: its 2 changes are among the confirmed ones",
    ]
    assert pinner.replaced == {successor: stale}


def test_a_plan_that_the_agent_refuses_is_planned_once_more(pinner, cli, stale, monkeypatch):
    start = pinner.apply

    def apply(plan, options, caller):
        if plan == stale:
            raise Refused("process busy (300)", "CPUs 1", "1 is in the restricted affinity of process python (500)")
        return start(plan, options, caller)

    monkeypatch.setattr(pinner, "apply", apply)
    result = cli("apply", stale, "--yes")
    assert (result.status, len(pinner.run_list)) == (0, 1)
    assert "restricted affinity of process python (500)" in result.err


def test_a_plan_that_was_applied_before_and_is_stale_now_has_no_successor(pinner, cli, stale, monkeypatch):
    error = Invalid("replaces", stale, "a plan that was not applied")
    monkeypatch.setattr(pinner, "plan", Mock(side_effect=error))
    result = cli("apply", stale, "--yes")
    assert (result.status, pinner.run_list) == (1, {})
    assert f"plan {stale} is stale, make a new one: process 90 is gone" in result.err
    assert "replaces" not in result.err


def test_a_successor_with_other_changes_waits_for_its_user(pinner, cli, stale):
    narrowed(pinner, stale, changes=pinner.stored[stale].changes[:1])
    result = cli("apply", stale, "--yes")
    successor = next(plan for plan in pinner.stored if plan != stale)
    assert (result.status, pinner.run_list) == (1, {})
    assert f"plan {stale} is stale, make a new one: process 90 is gone" in result.err
    assert (
        f"plan {successor} replaces it, and 1 of its 2 changes is not confirmed: pinner apply {successor}" in result.err
    )


@pytest.mark.parametrize("field", ["after", "before"])
def test_a_change_of_the_same_target_to_other_cpus_is_another_change(pinner, cli, stale, field):
    first, second = pinner.stored[stale].changes
    masks = CpuSet.parse("2") if field == "after" else tuple(replace(m, cpus=CpuSet.parse("2")) for m in first.before)
    narrowed(pinner, stale, changes=(replace(first, **{field: masks}), second))
    assert (cli("apply", stale, "--yes").status, pinner.run_list) == (1, {})


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--migrate-memory",), 1)])
def test_another_home_of_memory_that_moves_is_another_change(pinner, cli, stale, monkeypatch, options, status):
    home = GuestMemory(Target("memory", "uuid", None, "g1"), {0: 4}, 0, 4, 1)
    plan = pinner.plan

    def with_memory(*arguments, **more):
        made = plan(*arguments, **more)
        pinner.stored[made.id] = replace(made, memory=(home,))
        return pinner.stored[made.id]

    monkeypatch.setattr(pinner, "plan", with_memory)
    narrowed(pinner, stale, memory=(replace(home, home=0),))
    assert cli("apply", stale, "--yes", *options).status == status


def test_a_successor_that_is_stale_too_is_refused(pinner, cli, stale, monkeypatch):
    def apply(plan, *_):
        raise StalePlan(plan, ("process 90 is gone",))

    monkeypatch.setattr(pinner, "apply", apply)
    result = cli("apply", stale, "--yes")
    assert (result.status, len(pinner.stored), pinner.run_list) == (1, 2, {})


def test_a_stale_release_is_refused(pinner, cli, stale):
    """Nobody asked for it in a request that can be planned again."""
    narrowed(pinner, stale, purpose="release")
    assert (cli("apply", stale, "--yes").status, len(pinner.stored)) == (1, 1)
