"""pinner tournament: its plans, the ranking, and the exit status."""

import json
from dataclasses import replace

import pytest

from pinner.model.outcome.outcome import MAX_PLANS, TOURNAMENT_WINDOWS

STRATEGIES = ("shared-pool", "numa-local", "isolated")


@pytest.fixture
def plans(pinner, cli):
    for name in STRATEGIES:
        cli("plan", "create", "--strategy", name)
    return list(pinner.stored)


def test_it_shows_the_ranking_and_what_is_compared(cli, plans):
    result = cli("tournament", *plans, "--yes")
    assert result.status == 0
    assert "[ 1/48] shared-pool drops 0.0" in result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert ["winner", "shared-pool", "wins"] in lines
    assert ["1", "shared-pool", plans[0], "current,", "numa-local,", "isolated"] in lines
    assert [line[:2] for line in lines].count(["2", "current"]) == 1
    (pair,) = [line for line in lines if line[:3] == ["shared-pool", "current", "drops"]]
    assert pair[-1] == "better"
    assert next(line[:7] for line in lines if line[:2] == ["isolated", "numa-local"]) == [
        "isolated",
        "numa-local",
        "-",
        "-",
        "-",
        "-",
        "-",
    ]


def test_strategies_give_the_plans_from_one_snapshot(pinner, cli):
    answer = json.loads(cli("tournament", "--strategy", ",".join(STRATEGIES), "--yes", "--json").out)
    assert answer["arms"] == ["current", *STRATEGIES]
    made = [pinner.stored[plan] for plan in answer["plans"]]
    assert [plan.request.strategy for plan in made] == list(STRATEGIES)
    assert len({plan.basis.snapshot for plan in made}) == 1
    assert len(answer["order"]) == 4 * TOURNAMENT_WINDOWS


@pytest.mark.parametrize("names", ["shared-pool,no-such", "shared-pool,numa-local,shared-pool"])
def test_a_strategy_that_is_unknown_or_named_twice_is_refused_before_a_plan_is_stored(pinner, cli, names):
    refused = cli("tournament", "--strategy", names, "--yes")
    assert (refused.status, names.rpartition(",")[2] in refused.err) == (2, True)
    assert (pinner.stored, pinner.snapshots) == ({}, {})


def test_the_question_has_the_changes_and_the_time(pinner, cli, plans, monkeypatch):
    asked = []
    monkeypatch.setattr("pinner.cli.commands.probes.require_answer", lambda *, yes: None)
    monkeypatch.setattr("pinner.cli.commands.probes.agreed", lambda question, *, yes: asked.append(question))
    assert cli("tournament", *plans).status == 0
    changes = " + ".join(str(len(pinner.stored[plan].changes)) for plan in plans)
    assert asked == [f"Make and undo these {changes} changes up to 12 times in 28 min?"]
    assert pinner.probes == {}


def test_the_winner_is_kept_if_asked(cli, plans):
    assert "kept" not in cli("tournament", *plans, "--yes").out
    result = cli("tournament", *plans, "--keep", "--yes")
    assert (result.status, ["kept", "run", "run-9"] in [line.split() for line in result.out.splitlines()]) == (0, True)


@pytest.mark.parametrize(
    "ends", [{"kept": ""}, {"state": "failed", "ranking": None, "kept": "", "why": "plan plan-2 is stale"}]
)
def test_a_winner_that_is_not_kept_and_a_failure_end_with_status_1(pinner, cli, plans, monkeypatch, ends):
    made = pinner.probe
    monkeypatch.setattr(pinner, "probe", lambda *given, **named: replace(made(*given, **named), **ends))
    result = cli("tournament", *plans, "--keep", "--yes")
    assert (result.status, ends.get("why", "") in result.out) == (1, True)


def test_without_a_winner_the_status_is_1_and_the_missing_windows_are_named(cli, plans):
    result = cli("tournament", *plans, "--windows", "2", "--yes")
    assert result.status == 1
    assert "no placement is better than the current one" in result.out
    assert "windows of each placement" in result.out


@pytest.mark.parametrize(
    ("missing", "shown"),
    [
        ({"shared-pool": 3, "numa-local": 91}, "about 3 windows of each placement: try --windows 16"),
        ({"shared-pool": 0, "numa-local": 39}, "more windows of each placement than the 50 that a probe may have"),
        ({"shared-pool": 0, "numa-local": 0}, ""),
    ],
)
def test_only_windows_that_can_be_asked_for_and_could_find_a_winner_are_missing(pinner, cli, plans, missing, shown):
    cli("tournament", *plans, "--yes")
    probe = pinner.probes["probe-1"]

    def lacking(pair):
        count = missing.get(pair.second, 0) if pair.first == "current" else 80
        return replace(pair, outcome=replace(pair.outcome, missing=count))

    pairs = tuple(lacking(pair) for pair in probe.ranking.pairs)
    pinner.probes["probe-1"] = replace(probe, ranking=replace(probe.ranking, winner="", pairs=pairs))
    lines = [line.split() for line in cli("outcome", "probe-1").out.splitlines()]
    assert [" ".join(line[1:]) for line in lines if line[:1] == ["missing"]] == ([shown] if shown else [])


@pytest.mark.parametrize(
    "given",
    [
        ["plan-1"],
        [],
        [f"plan-{number}" for number in range(10)],
        ["--strategy", "shared-pool"],
        ["--strategy", ",".join(f"s{number}" for number in range(10))],
        ["--strategy", "shared-pool,no-such"],
        ["plan-1", "plan-2"],
    ],
    ids=["one plan", "none", "ten plans", "one strategy", "ten strategies", "unknown strategy", "unknown plans"],
)
def test_bad_input_has_status_2(pinner, cli, given):
    refused = cli("tournament", *given, "--yes")
    assert (refused.status, refused.err.count("\n"), pinner.probes) == (2, 1, {})
    if len(given) == 10:
        assert f"2 to {MAX_PLANS}" in refused.err


def test_plans_and_strategies_together_are_refused(pinner, cli, plans):
    assert cli("tournament", *plans, "--strategy", "shared-pool,numa-local", "--yes").status == 2
    assert cli("tournament", *plans).status == 2, "nobody can answer"
    assert pinner.probes == {}


def test_a_host_beside_plans_and_an_odd_number_of_windows_are_refused_before_a_plan_is_stored(pinner, cli, plans):
    stored = dict(pinner.stored)
    refused = cli("tournament", *plans, "--host", "h9", "--yes")
    assert (refused.status, "no --host beside ids of plans" in refused.err) == (2, True)
    refused = cli("tournament", "--strategy", ",".join(STRATEGIES), "--windows", "5", "--yes")
    assert (refused.status, "'5' is not a multiple of 2" in refused.err) == (2, True)
    assert (pinner.stored, pinner.probes) == (stored, {})


def test_a_measure_that_is_not_judged_is_named(pinner, cli, plans):
    cli("tournament", *plans, "--yes")
    assert "not judged" not in cli("outcome", "probe-1").out
    first, *others = pinner.probes["probe-1"].windows
    first = replace(first, values=dict(first.values) | {"pressure": 1.0})
    pinner.probes["probe-1"] = replace(pinner.probes["probe-1"], windows=(first, *others))
    lines = [" ".join(line.split()) for line in cli("outcome", "probe-1").out.splitlines()]
    assert "not judged pressure (known in 1 of 48 windows)" in lines


def test_its_outcome_is_shown_again_with_all_windows_and_drawn(cli, plans, tmp_path):
    cli("tournament", *plans, "--yes")
    file = tmp_path / "ranking.svg"
    lines = [line.split() for line in cli("outcome", "probe-1", "--output", file).out.splitlines()]
    assert ["winner", "shared-pool", "wins"] in lines
    assert ["1", "shared-pool", "0.0"] in lines
    assert "shared-pool\xa0wins" in file.read_text().replace("&#160;", "\xa0")
