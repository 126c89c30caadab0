"""pinner apply and pinner rollback: progress, questions, exit statuses, and Ctrl-C."""

import io
import json
import sys
from dataclasses import replace

import pytest
from support.values import NOON

from pinner.model.errors import TooFewMeasures
from pinner.model.outcome.outcome import Watch
from pinner.model.policy import Policy


class Terminal(io.StringIO):
    """Standard input or standard error that is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def answering(monkeypatch):
    """Makes standard input and error a terminal, with a user who answers the question: answering("y")."""

    def answer(word):
        monkeypatch.setattr("sys.stdin", Terminal(f"{word}\n"))
        monkeypatch.setattr("sys.stderr", Terminal())

    return answer


def end_badly(pinner):
    """Let the last change of the next run fail after all others were made, so that the run ends undone."""

    def finish(run):
        *others, last = pinner.journal[run]
        done = tuple(replace(other, state="done") for other in others)
        pinner.journal[run] = (*done, replace(last, state="undone", error="the kernel refused"))
        pinner.run_list[run] = replace(pinner.run_list[run], state="undone", error="a change failed")

    pinner.finish = finish


def test_the_progress_of_each_change_goes_to_stderr(pinner, cli):
    result = cli("apply", "--yes", "--json")
    assert result.status == 0
    assert result.err.splitlines() == [
        "[1/3] done   process busy (110)  0-3 -> 1",
        "[2/3] done   process busy (120)  0-3 -> 2",
        "[3/3] done   process busy (130)  0-3 -> 3",
        "to undo: pinner rollback run-1",
    ]
    assert json.loads(result.out)["run"]["state"] == "applied"


def test_the_plan_is_shown_before_it_is_applied(pinner, cli):
    out = cli("apply", "--yes", "--strategy", "isolated").out
    assert out.index("strategy      isolated") < out.index("state       applied")


@pytest.mark.parametrize(
    ("command", "kind"), [(["apply", "--yes"], "apply"), (["rollback", "run-1", "--yes"], "rollback")]
)
def test_a_run_that_does_not_succeed_is_status_1(applied, cli, command, kind):
    end_badly(applied)
    result = cli(*command)
    assert result.status == 1
    assert "[3/3] undone process busy (130)  3 -> 0-3: the kernel refused" in result.err
    assert "to undo" not in result.err
    assert "2 done, 1 undone" in result.out
    assert "a change failed" in result.out
    assert json.loads(cli(*command, "--json").out)["run"]["kind"] == kind


@pytest.fixture
def placing_partly(pinner):
    """The in-memory service, where the last change of each run fails alone."""
    finish = pinner.finish

    def finish_partly(run):
        finish(run)
        *done, last = pinner.journal[run]
        pinner.journal[run] = (*done, replace(last, state="failed", error="no answer from libvirt"))
        error = "1 of 3 guests and processes are not placed: process busy (130): no answer from libvirt"
        pinner.run_list[run] = replace(pinner.run_list[run], state="applied_partly", error=error)

    pinner.finish = finish_partly
    return pinner


def test_a_run_that_places_some_targets_is_status_1_and_can_be_undone(placing_partly, cli):
    result = cli("apply", "--yes")
    assert result.status == 1
    assert "applied_partly" in result.out
    assert "1 of 3 guests and processes are not placed" in result.out
    assert "2 done, 1 failed" in result.out
    assert result.err.endswith("to undo: pinner rollback run-1\n")
    assert not placing_partly.run_list["run-1"].all_or_nothing


def test_the_watch_of_a_run_that_places_some_targets_is_waited_for(placing_partly, cli):
    result = cli("apply", "--yes", "--watch", "30s")
    assert (result.status, result.err.splitlines()[-1]) == (1, "watched: worse than before the run: drops")


def test_all_or_nothing_is_an_option(pinner, cli):
    assert cli("apply", "--yes", "--all-or-nothing").status == 0
    assert pinner.run_list["run-1"].all_or_nothing


def test_an_apply_without_changes_says_so_and_cannot_be_rolled_back(pinner, cli):
    finish = pinner.finish

    def finish_without_changes(run):
        pinner.journal[run] = ()
        finish(run)

    pinner.finish = finish_without_changes
    result = cli("apply", "--yes")
    assert (result.status, "to undo" in result.err) == (0, False)
    assert "the host is as planned already, so this run cannot be rolled back" in result.err
    undo = cli("rollback", "run-1", "--yes")
    assert undo.status == 1
    assert "run run-1 is applied: it changed nothing, so there is nothing to roll back" in undo.err


def test_a_run_is_rolled_back_only_once(applied, cli):
    assert cli("rollback", "run-1", "--yes").status == 0
    assert cli("rollback", "run-2", "--yes").status == 1


@pytest.mark.fault(59)
def test_all_runs_are_rolled_back_in_one_command(applied, cli):
    applied.policies["h1"] = Policy(mode="enforce")
    refused = cli("rollback", "--all", "--yes")
    assert refused.status == 1
    assert "its policy is enforced and would undo the rollback of all runs; first delete the policy" in refused.err
    assert cli("rollback", "--all", "--delete-policy", "--yes").status == 0
    assert applied.policies == {}
    assert cli("rollback", "--all", "--delete-policy", "--yes").status == 0, "the host has no policy any more"
    assert "all runs" in cli("run", "list").out


@pytest.mark.parametrize("words", [("run-1", "--host", "h1"), ("run-1", "--delete-policy"), ("run-1", "--all"), ()])
def test_a_rollback_is_of_one_run_or_of_all(applied, cli, words):
    runs = len(applied.run_list)
    assert cli("rollback", *words, "--yes").status == 2
    assert len(applied.run_list) == runs


@pytest.mark.parametrize(("word", "status", "runs"), [("y", 0, 1), ("Yes", 0, 1), ("", 0, 0), ("n", 0, 0)])
def test_apply_asks_at_a_terminal(pinner, cli, answering, word, status, runs):
    answering(word)
    assert cli("apply").status == status
    assert ("nothing was changed" in sys.stderr.getvalue()) == (runs == 0)
    assert len(pinner.run_list) == runs


def test_yes_skips_the_question(pinner, cli, answering):
    answering("n")
    assert cli("apply", "--yes").status == 0


def test_a_plan_without_changes_is_applied_without_a_question_unless_memory_moves(pinner, cli, answering, monkeypatch):
    answering("n")
    plan = pinner.plan
    monkeypatch.setattr(
        pinner, "plan", lambda *arguments: store(pinner, replace(plan(*arguments), changes=(), unplaced=()))
    )
    result = cli("apply")
    assert result.status == 0
    assert "nothing to do" in result.out
    cli("apply", "--migrate-memory")
    assert [run.migrate_memory for run in pinner.run_list.values()] == [False]


def test_a_plan_that_leaves_guests_out_is_not_nothing_to_do(pinner, cli, monkeypatch):
    plan = pinner.plan
    monkeypatch.setattr(pinner, "plan", lambda *arguments: store(pinner, replace(plan(*arguments), changes=())))
    result = cli("apply", "--yes")
    assert "no changes: 1 guest without a place, everything else is where this plan wants it" in result.out
    assert "nothing to do" not in result.out


def store(pinner, plan):
    pinner.stored[plan.id] = plan
    return plan


def interrupt(pinner, monkeypatch):
    """Press Ctrl-C after the first change of the next run; the run itself continues."""
    follow = pinner.follow

    def once(run):
        monkeypatch.setattr(pinner, "follow", follow)
        yield next(follow(run))
        raise KeyboardInterrupt

    monkeypatch.setattr(pinner, "follow", once)


def test_ctrl_c_waits_for_the_end_of_a_local_run(pinner, cli, monkeypatch):
    interrupt(pinner, monkeypatch)
    result = cli("apply", "--yes")
    assert result.status == 130
    assert result.err.splitlines()[-2:] == [
        "interrupted; run run-1 is brought to its end first",
        "pinner: interrupted; run run-1 has ended applied (see it: pinner run show run-1)",
    ]


def test_after_ctrl_c_the_run_of_a_server_continues(pinner, cli, monkeypatch):
    interrupt(pinner, monkeypatch)
    result = cli("apply", "--yes", "--url", "http://one:1")
    assert result.status == 130
    assert result.err.splitlines()[-1] == (
        "pinner: interrupted; run run-1 goes on at http://one:1 (see it: pinner run show run-1)"
    )


@pytest.mark.parametrize("method", ["apply", "hosts"])
def test_ctrl_c_before_the_run_has_an_id(pinner, cli, monkeypatch, method):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pinner, method, stop)
    result = cli("apply", "--yes")
    assert result.status == 130
    assert result.err.splitlines()[-1].startswith("pinner: interrupted")
    assert ("run list" in result.err) == (method == "apply")


def test_a_watch_that_finds_a_run_worse_ends_with_status_1(pinner, cli):
    result = cli("apply", "--yes", "--watch", "30s")
    assert (result.status, result.err.splitlines()[-1]) == (1, "watched: worse than before the run: drops")
    assert pinner.run_list["run-1"].watch_seconds == 30


def test_a_watch_says_at_its_begin_what_it_does_not_see(pinner, cli, monkeypatch):
    blind = (
        "the guests are watched for 30 s; not watched, because steps before the run are missing: run_delay (9 of 80)"
    )
    ended = pinner.outcome
    states = iter([Watch("watching", NOON, blind)])
    monkeypatch.setattr(
        pinner, "outcome", lambda run: replace(ended(run), watch=next(states, Watch("not_worse", NOON, "as before")))
    )
    monkeypatch.setattr("pinner.cli.frame.follow.WATCH_POLL_SECONDS", 0)
    result = cli("apply", "--yes", "--watch", "30s")
    lines = result.err.splitlines()
    assert (result.status, lines.index(f"run run-1: {blind}") < lines.index("watched: as before")) == (0, True)


def test_an_undo_needs_no_time_of_the_watch(pinner, cli):
    cli("apply", "--yes", "--undo-if-worse")
    assert pinner.run_list["run-1"].undo_if_worse


@pytest.mark.parametrize("time", ["0s", "14s", "5m", "241s", "30", "1h", "\u0663\u0660s"])
def test_a_watch_has_a_time_with_a_unit(pinner, cli, time):
    result = cli("apply", "--yes", "--watch", time)
    assert (result.status, pinner.run_list) == (2, {})
    assert f"--watch: {time!r} is not a time such as 30s or 2m, from 15s to 4m" in result.err


@pytest.mark.parametrize(("time", "seconds"), [("15s", 15), ("4m", 240), ("240s", 240)])
def test_a_watch_lasts_from_15_seconds_to_4_minutes(pinner, cli, time, seconds):
    cli("apply", "--yes", "--watch", time)
    assert pinner.run_list["run-1"].watch_seconds == seconds


def test_a_watch_that_could_undo_nothing_says_when_it_can(pinner, cli, monkeypatch):
    def refuse(*_):
        raise TooFewMeasures("not watched, because steps before the run are missing: run_delay (9 of 80)", 45)

    monkeypatch.setattr(pinner, "apply", refuse)
    result = cli("apply", "--yes", "--undo-if-worse")
    assert result.status != 0
    assert "run_delay (9 of 80); try again in 45 s" in result.err


def test_the_help_names_the_longest_watch_and_what_it_needs(cli):
    text = " ".join(cli("apply", "--help").out.split())
    assert "for a time such as 30s or 2m, up to 4m" in text
    assert "before the run that is ten times as long as the watch" in text


def test_a_plan_that_makes_the_objective_worse_is_marked_and_refused(pinner, cli, monkeypatch):
    plan = pinner.plan
    why = "tier 6 17.30 -> 18.00; leave the host as it is"

    def worse(*given):
        made = replace(plan(*given), worse=why)
        pinner.stored[made.id] = made
        return made

    monkeypatch.setattr(pinner, "plan", worse)
    shown = cli("plan")
    assert f"worse than now: {why}" in shown.out + shown.err
    assert shown.err.endswith(" --worse\n")
    assert f"WORSE THAN NOW: {why}" in cli("plan", "--format", "text").out
    assert f"# worse than now: {why}" in cli("plan", "--format", "shell").out
    for word in ("--yes", "--json"):
        refused = cli("apply", "--yes", word)
        assert refused.status == 1
        assert f"makes the objective worse: {why}" in refused.err
    assert pinner.run_list == {}
    assert cli("apply", "--yes", "--worse").status == 0
    compared = cli("compare")
    assert f"only with --worse: {why[:12]}" in compared.out
    assert compared.out.count("best by the objective: as now") == 1
