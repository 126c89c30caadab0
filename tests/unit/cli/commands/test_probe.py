"""pinner probe: progress, verdict, exit status, and Ctrl-C."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pinner.cli.commands import probes as command
from pinner.model.outcome.outcome import Probe
from pinner.outcome import verdict


@pytest.fixture
def plan(pinner, cli):
    cli("plan", "create")
    return next(iter(pinner.stored))


def test_a_probe_shows_its_windows_and_the_table_of_measures(cli, plan):
    result = cli("probe", plan, "--windows", "6", "--yes")
    assert result.status == 0
    assert "[ 1/12] planned drops 0.0" in result.err
    assert "does not count: guest web" in result.err
    assert "12 count, 1 do not" in result.out
    for part in ("drops", "packets/s", "-50.0", "better"):
        assert part in result.out


def test_traffic_has_short_numbers_and_the_direction_that_is_better(pinner, cli, plan):
    cli("probe", plan, "--windows", "6", "--yes")
    probe = pinner.probes["probe-1"]
    values = {"planned": {"packets_in": 500_000.0, "ping": 2.0}, "current": {"packets_in": 250_000.0, "ping": 2.0}}
    windows = tuple(replace(window, values=window.values | values[window.arm]) for window in probe.windows[:-1])
    pinner.probes["probe-1"] = replace(probe, windows=windows, outcome=verdict.outcome(windows))
    lines = [line.split() for line in cli("outcome", "probe-1").out.splitlines()]
    (packets,) = [line for line in lines if line[:1] == ["packets_in"]]
    assert packets[:6] == ["packets_in", "packets/s", "higher", "250k", "500k", "+250k"]
    heads = [line for line in lines if line[:1] == ["WINDOW"]]
    assert [head[2:] for head in heads] == [["DROPS", "DOES", "NOT", "COUNT"], ["PACKETS", "IN"], ["PING"]]


def test_the_progress_is_read_until_the_end(pinner, cli, plan, monkeypatch):
    pinner.instant = False
    waits = []
    monkeypatch.setattr(command.time, "sleep", waits.append)
    assert cli("probe", plan, "--windows", "6", "--yes").status == 0
    assert len(waits) == 1


def test_too_few_windows_end_with_status_1(cli, plan):
    result = cli("probe", plan, "--windows", "2", "--yes")
    assert result.status == 1
    assert "inconclusive" in result.out
    assert "not bounded" in result.out
    assert "about 2 windows of each placement" in result.out


def test_an_unbounded_interval_is_null_in_json(cli, plan):
    measure = json.loads(cli("probe", plan, "--windows", "2", "--yes", "--json").out)["outcome"]["measures"][0]
    assert (measure["low"], measure["high"]) == (None, None)


def test_a_worse_plan_ends_with_status_1(pinner, cli, plan, monkeypatch):
    made = pinner.probe

    def worse(*arguments, **options):
        found = made(*arguments, **options)
        flipped = {"planned": "current", "current": "planned"}
        windows = tuple(replace(each, arm=flipped[each.arm]) for each in found.windows)
        return replace(found, windows=windows, outcome=verdict.outcome(windows))

    monkeypatch.setattr(pinner, "probe", worse)
    result = cli("probe", plan, "--windows", "6", "--yes")
    assert (result.status, "worse" in result.out) == (1, True)


def test_a_failed_probe_names_the_run_that_is_still_in_place(pinner, cli, plan, monkeypatch):
    made = pinner.probe
    ends = {"state": "failed", "why": "the agent broke", "outcome": None, "left": "run-7"}
    monkeypatch.setattr(pinner, "probe", lambda *given, **named: replace(made(*given, **named), **ends))
    result = cli("probe", plan, "--yes")
    assert result.status == 1
    for part in ("the agent broke", "run run-7"):
        assert part in result.out


def test_ctrl_c_cancels_the_probe_and_waits_for_its_end(pinner, cli, plan, monkeypatch):
    pinner.instant = False
    cancelled = []

    def interrupt(_):
        raise KeyboardInterrupt

    def cancel(name, caller) -> Probe:
        cancelled.append(name)
        pinner.probes[name] = replace(pinner.probes[name], state="cancelled", outcome=None)
        return pinner.probes[name]

    monkeypatch.setattr(command.time, "sleep", interrupt)
    monkeypatch.setattr(pinner, "cancel_probe", cancel)
    result = cli("probe", plan, "--yes")
    assert (result.status, cancelled) == (130, ["probe-1"])
    assert "probe probe-1 is cancelled" in result.err


def test_ctrl_c_after_the_end_names_the_run_that_is_kept(pinner, cli, plan, monkeypatch):
    pinner.instant = False

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", interrupt)
    result = cli("probe", plan, "--keep", "--yes")
    assert "probe probe-1 is ended; run run-9 keeps planned" in result.err


@pytest.fixture
def running(pinner, cli, plan, monkeypatch):
    """A probe whose terminal is gone; its states after it is cancelled."""
    cli("probe", plan, "--windows", "6", "--yes")
    ended, states = pinner.probes["probe-1"], []
    pinner.probes["probe-1"] = replace(ended, state="running", ended_at=None, outcome=None)

    def put_back(_=None):
        pinner.probes["probe-1"] = replace(pinner.probes["probe-1"], **states.pop(0))

    def cancel(name, _caller):
        put_back()
        return pinner.probes[name]

    monkeypatch.setattr(pinner, "cancel_probe", cancel)
    monkeypatch.setattr(command.time, "sleep", put_back)
    return states


def test_a_probe_whose_terminal_is_gone_is_cancelled_by_its_id(cli, running):
    running += [{"state": "running"}, {"state": "running"}, {"state": "cancelled", "why": "cancelled by ann"}]
    result = cli("probe", "--cancel", "probe-1", "--yes")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert (result.status, running) == (0, [])
    assert {"state cancelled", "why cancelled by ann"} <= {*lines}


@pytest.mark.parametrize(
    "ends", [{"state": "ended"}, {"state": "cancelled", "left": "run-7"}, {"state": "failed"}], ids=str
)
def test_a_probe_that_is_not_cancelled_or_not_put_back_ends_with_status_1(cli, running, ends):
    running += [ends]
    result = cli("probe", "--cancel", "probe-1", "--yes")
    assert (result.status, ends.get("left", ends["state"]) in result.out) == (1, True)


def test_a_cancelled_probe_that_nobody_puts_back_is_not_awaited_for_ever(cli, running):
    running += [{}] * (command.MOST_POLLS + 1)
    result = cli("probe", "--cancel", "probe-1", "--yes")
    assert (result.status, running) == (1, [])
    assert "not yet" in result.out


@pytest.mark.parametrize(
    "given",
    [["probe-1"], ["no-such", "--yes"], ["probe-1", "plan-1", "--yes"], ["probe-1", "--keep", "--yes"],
     ["probe-1", "--windows", "9", "--yes"]],
)  # fmt: skip
def test_a_wrong_cancel_has_status_2_and_cancels_nothing(pinner, cli, running, given):
    running += [{"state": "cancelled"}]
    assert cli("probe", "--cancel", *given).status == 2
    assert pinner.probes["probe-1"].state == "running"


def test_a_probe_needs_a_plan_or_the_id_of_a_probe(cli):
    assert cli("probe", "--yes").status == 2


@pytest.mark.parametrize(
    ("option", "value"), [("windows", "1"), ("windows", "51"), ("seconds", "14"), ("seconds", "x")]
)
def test_impossible_windows_are_refused(pinner, cli, plan, option, value):
    assert cli("probe", plan, f"--{option}", value, "--yes").status == 2
    assert pinner.probes == {}


def test_without_yes_and_a_terminal_nothing_is_probed(pinner, cli, plan):
    assert cli("probe", plan).status == 2
    assert pinner.probes == {}


def test_the_outcome_of_a_probe_shows_its_verdict_and_all_windows(cli, plan):
    cli("probe", plan, "--windows", "6", "--yes")
    lines = cli("outcome", "probe-1").out.splitlines()
    assert any(line.split()[:2] == ["verdict", "better"] for line in lines)
    header = next(number for number, line in enumerate(lines) if line.startswith("WINDOW"))
    assert lines[header].split() == ["WINDOW", "PLACEMENT", "DROPS", "DOES", "NOT", "COUNT"]
    assert lines[header + 1].split() == ["1", "planned", "0.0"]
    assert lines[header + 13].split()[:4] == ["13", "planned", "-", "guest"]


def test_the_verdict_of_a_probe_is_drawn(cli, plan, tmp_path):
    cli("probe", plan, "--windows", "6", "--yes")
    file = tmp_path / "verdict.svg"
    plain = cli("outcome", "probe-1").out
    assert cli("outcome", "probe-1", "--output", file).out == plain
    texts = [each.text for each in ElementTree.fromstring(file.read_bytes()).iter("{http://www.w3.org/2000/svg}text")]
    assert "h1:\xa0better\xa0(probe-1)" in texts
    assert any("DOES\xa0NOT\xa0COUNT" in text for text in texts)
    assert "https:" not in file.read_text()


@pytest.mark.parametrize(
    "options, right",
    [(["-o", "verdict.png"], "a name that ends with .svg"), (["--series", "drops"], "no series")],
    ids=["png", "series"],
)
def test_a_picture_of_a_probe_is_an_svg_of_all_measures(cli, plan, options, right):
    cli("probe", plan, "--windows", "6", "--yes")
    refused = cli("outcome", "probe-1", *options)
    assert (refused.status, refused.err.count("\n"), right in refused.err) == (2, 1, True)


def test_the_outcome_of_an_unknown_probe_is_not_found(pinner, cli):
    refused = cli("outcome", "probe-7")
    assert (refused.status, "probe-7" in refused.err) == (2, True)
