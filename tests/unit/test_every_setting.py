"""What every kind of setting promises: one row of the table of kinds, one case, the same tests for all."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, vcpu
from support.made_up.setting_cases import CASES, Case
from support.values import NOON, make_run

from pinner import codec
from pinner.apply import executor, steps
from pinner.apply.recover import recover
from pinner.model.change import Target, group_of
from pinner.model.errors import ApplyFailed, Gone, Invalid, Refused, StalePlan
from pinner.model.kinds import INSIDE, KINDS, SETTINGS
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.states import PartitionState
from pinner.model.text import before_and_after
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.planning.request.processes import pruned
from pinner.planning.settings.inside.misfits import misfits
from pinner.render import shell, text
from pinner.store.journal.journal import StoredJournal

FOREIGN = PartitionState("isolated", CASES["irq"].after)
"""A state of no setting."""


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def test_every_setting_of_the_table_has_a_case_here():
    assert set(CASES) == set(SETTINGS)


# In a plan


def test_a_plan_gives_the_state_and_a_second_plan_changes_nothing(case):
    made = case.plan()
    assert (str(case.target), case.change.before, case.change.after) == (case.words, case.before, case.after)
    assert case.plan(case.applied(made, case.after)).changes == ()
    unasked = case.plan(request=Request())
    assert [each for each in unasked.changes if each.target.kind == case.kind] == []


def test_plans_and_snapshots_are_the_same_after_json(case):
    made = case.plan()
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(case.taken)) == case.taken


def test_the_commands_and_the_texts_say_so(case):
    made = case.plan()
    script = shell.render(made)
    assert f"\n{case.do}\n" in script
    assert f"\n# {case.undo}\n" in script
    before, after = before_and_after(case.change)
    assert f"{case.words}: {before} -> {after} (a setting of" in text.render(made)


def test_a_snapshot_without_the_setting_is_a_clear_error_and_other_plans_are_what_they_were(case):
    old, field = case.host(None), KINDS[case.kind].module
    with pytest.raises(Invalid, match=f"with: '{case.remedy}' is not valid.*new"):
        case.plan(old)
    assert f'"{field}"'.encode() not in codec.dump(old)
    assert planner.plan(old, "s", Request()) == planner.plan(case.taken, "s", Request())
    assert getattr(pruned(case.taken, Request(), None), field) is None
    assert getattr(pruned(case.taken, case.request, None), field) == case.field


def test_a_policy_finds_the_state_in_place_and_sets_it_again_after_another_program(case):
    made = case.plan()
    placement, placed = record(made, case.taken, None), case.applied(made, case.after)
    assert planner.plan_from_placement(placed, "s2", case.request, placement).changes == ()
    seen = case.applied(made, case.before)
    (drift,) = drifts(planner.plan_from_placement(seen, "s2", case.request, placement), placement, seen)
    assert (drift.target, drift.states, drift.cause) == (case.target, (case.before, case.after), "unknown")


# Before the agent


def permit(made: Plan, taken: Snapshot) -> frozenset[Target]:
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


def test_the_agent_admits_the_planners_changes_and_skips_a_target_that_is_another_now(case):
    assert permit(case.plan(), case.taken) == frozenset()
    assert permit(case.plan(), case.host(case.another)) == {case.target}


def test_the_agent_refuses_other_states_and_what_nobody_asked_for(case):
    made = case.plan()

    def forged(**more):
        return replace(made, changes=(replace(case.change, **more),))

    for why, state in case.bad.items():
        if case.kind in INSIDE:
            assert why in misfits(forged(after=state), case.taken)[case.target]
            continue
        with pytest.raises(Refused, match=why):
            permit(forged(after=state), case.taken)
    with pytest.raises(Refused, match="does not ask for"):
        permit(replace(forged(), request=Request()), case.taken)
    for end in ("before", "after"):
        with pytest.raises(Refused, match=f"a {case.kind} has no state of this form"):
            permit(forged(**{end: FOREIGN}), case.taken)


# In a run


@pytest.fixture
def journal(tmp_path):
    journal = StoredJournal(tmp_path)
    yield journal
    journal.close()


@pytest.fixture
def host(case):
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.states[case.target] = case.before
    return host


def apply(case, host, journal, run="run-1", **more):
    plan = host.plan(case.change, host.change(vcpu(0), "2"))
    return executor.apply(plan, make_run(run, **more), host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, undoes="run-1"):
    undo = make_run("run-9", kind="rollback", plan="plan-1" if undoes else "", undoes=undoes)
    return executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)


def test_each_target_is_a_group_beside_those_of_guests(case):
    assert group_of(case.target) not in (group_of(vcpu(0)), group_of(Target("process", "1", 1, "it")))
    assert not steps.resets_masks(case.change)


@pytest.mark.parametrize("undoes", ["run-1", ""])
def test_it_is_set_beside_threads_and_undo_gives_the_first_value_back(case, host, journal, undoes):
    before = host.kernel()
    assert apply(case, host, journal).state == "applied"
    assert host.states[case.target] == case.after
    # Only the vCPU gets another mask.
    assert [what for what, _ in host.writes if what.isdigit()] == []
    assert rollback(host, journal, undoes).state == "rolled_back"
    assert (host.states[case.target], host.kernel()) == (case.before, before)


def test_the_journal_has_the_first_value_before_the_host_gets_the_new_one(case, host, journal):
    recorded = []
    host.before_write = lambda write: recorded.append([entry.change for entry in journal.entries("run-1")])
    apply(case, host, journal)
    assert case.change in recorded[0]


def test_a_value_of_another_program_stays_and_is_reported(case, host, journal):
    apply(case, host, journal)
    host.states[case.target] = FOREIGN
    run = rollback(host, journal)
    assert (run.state, host.states[case.target]) == ("rolled_back_partly", FOREIGN)
    assert f"{case.words} was set to '{FOREIGN}' by another program or a later run, and stays so" in run.error


def test_a_refused_change_fails_alone(case, host, journal):
    def refuse(write):
        if write[0] == case.words:
            raise ApplyFailed(case.words, "the kernel refuses it: Read-only file system")

    host.before_write = refuse
    run = apply(case, host, journal)
    assert (run.state, host.states[case.target], str(host.threads[vcpu(0)][0].cpus)) == (
        "applied_partly",
        case.before,
        "2",
    )
    assert "Read-only file system" in run.error


def test_a_value_that_the_kernel_changes_leaves_the_first_one(case, host, journal):
    real = host.set_state

    def rounding(target, state):
        real(target, FOREIGN if state == case.after else state)
        if host.states[target] != state:
            raise ApplyFailed(str(target), f"asked for {state}, the kernel says {host.states[target]}")

    host.set_state = rounding
    assert apply(case, host, journal).state == "applied_partly"
    assert host.states[case.target] == case.before


def test_a_plan_for_another_value_is_stale_or_fails_inside_a_guest(case, host, journal):
    host.states[case.target] = FOREIGN
    plan = host.plan(case.change)
    try:
        run = executor.apply(plan, make_run("run-1"), host, journal, lambda: NOON, lambda entry, total: None)
        why = run.error if run.state == "undone" else ""
    except StalePlan as stale:
        why = str(stale)
    assert (f"'{FOREIGN}', no longer '{case.before}'" in why, host.writes) == (True, [])
    assert ("another program changed it just now" in why) == (case.kind in INSIDE)


def test_a_target_that_has_ended_is_gone_and_delays_nothing(case, host, journal):
    apply(case, host, journal)
    del host.states[case.target]
    assert rollback(host, journal).state == "rolled_back_partly"
    entries = {entry.change.target: entry for entry in journal.entries("run-1")}
    assert (entries[case.target].state, entries[case.target].error) == ("gone", str(Gone(case.words)))
    assert entries[vcpu(0)].state == "undone"


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("point", range(3))
@pytest.mark.parametrize("made", [False, True])
def test_a_run_that_was_killed_at_any_point_is_undone_or_finished(case, host, journal, point, made, policy):
    """The process dies before or after each write."""

    class Killed(BaseException):
        pass

    def dying(act):
        def write(*args, **more):
            if len(host.writes) == point:
                if made:
                    act(*args, **more)
                raise Killed
            act(*args, **more)

        return write

    def die(*_, **__):
        raise Killed

    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(host, "set_state", dying(host.set_state))
        dead.setattr(host, "pin", dying(host.pin))
        dead.setattr(journal, "end", die)
        dead.setattr(steps, "undo", die)
        with pytest.raises(Killed):
            apply(case, host, journal)
    journal._notes.clear()  # they died with the process
    run = recover(host, journal, policy, lambda: NOON)
    expected = ("undone", case.before) if policy == "back" else ("applied", case.after)
    assert (run.state, host.states[case.target]) == expected
