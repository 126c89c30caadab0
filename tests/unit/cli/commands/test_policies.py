"""The policy of a host, and its drift, on the command line."""

import json
from dataclasses import replace

from support.values import NOON, cpus

from pinner import codec
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.policy import Drift, DriftReport, Policy, Setback, ShownPolicy
from pinner.model.settings.cards import RpsQueue
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number


def test_request_from_options(pinner, cli):
    result = cli(
        *("plan", "--strategy", "isolated", "--housekeeping", "0", "--emulator", "1"),
        *("--busy-threshold", "7.5", "--smt", "isolate", "--process", "ovs", "--process", "12", "--json"),
        *("--minimum-cores", "1", "--weight", "extra_l3=2", "--weight", "shared_cores=0.5"),
        *("--moves", "0"),
    )
    assert result.status == 0
    request = codec.load(Plan, result.out).request
    assert (request.strategy, request.housekeeping, request.emulator) == ("isolated", "0", "1")
    assert (request.busy_threshold, request.smt, request.processes) == (7.5, "isolate", ("ovs", "12"))
    assert request.minimum_cores == 1
    assert request.moves == 0
    assert request.weights == {"extra_l3": 2.0, "shared_cores": 0.5}
    for text, why in (
        ("extra_l3=1e7", "--weight: 'extra_l3=1e7' is not TERM=NUMBER with a number from 0 to 1000000"),
        ("extra_l3=-1", "--weight: 'extra_l3=-1' is not TERM=NUMBER"),
        ("extra_l3=nan", "--weight: 'extra_l3=nan' is not TERM=NUMBER"),
        ("extra_l3", "--weight: 'extra_l3' is not TERM=NUMBER"),
        ("caches=1", "weights: 'caches' is not valid: the name of a term: unplaced_guests,"),
    ):
        refused = cli("plan", f"--weight={text}")
        assert refused.status != 0
        assert why in " ".join(refused.err.split())
    wrong = cli("plan", "--minimum-cores", "0")
    assert wrong.status == 2
    assert "--minimum-cores: '0' is not a number of cores from 1 to 8192" in " ".join(wrong.err.split())


def test_a_policy_keeps_the_values_of_options_that_are_not_given(pinner, cli):
    assert cli("policy", "show").status == 2
    cli("policy", "set", "--yes", "--strategy", "numa-local", "--exclude-guest", "g1", "--exclude-guest", "g2")
    assert pinner.policies["h1"] == Policy(Request("numa-local", excluded_guests=("g1", "g2")), "observe")
    more = ("--exclude-process", "sshd.service", "--release-cpuset", "g3")
    shown = cli("policy", "set", "--yes", "--mode", "enforce", *more, "--json").out
    request = Request(
        "numa-local", released_guests=("g3",), excluded_guests=("g1", "g2"), excluded_processes=("sshd.service",)
    )
    assert codec.load(Policy, shown) == pinner.policies["h1"] == Policy(request, "enforce")
    cli("policy", "set", "--yes", "--reset", "--mode", "propose")
    assert pinner.policies["h1"] == Policy(mode="propose")


def test_a_policy_with_interrupts(pinner, cli):
    shown = cli("policy", "set", "--yes", "--with", "rps", "--with", "irqs", "--irq-cpus", "ens1=0-1").out
    assert pinner.policies["h1"].request.remedies == ("irqs", "rps")
    assert pinner.policies["h1"].request.irq_cpus == {"ens1": "0-1"}
    assert "irq cpus            ens1=0-1" in shown
    assert "with                irqs, rps" in shown
    assert "--with: invalid choice: 'fans'" in cli("policy", "set", "--yes", "--with", "fans").err


def test_a_policy_that_cures_findings(pinner, cli):
    shown = cli("policy", "set", "--yes", "--fix", "softnet-drops", "--fix", "irq-off-node").out
    assert pinner.policies["h1"].request.fix == ("irq-off-node", "softnet-drops")
    assert "fix                 irq-off-node, softnet-drops" in shown
    refused = cli("policy", "set", "--yes", "--fix", "ksm-merging")
    assert refused.status == 2
    assert "fix: 'ksm-merging' is not valid: one of: cpu-deep-idle, cpu-slow-governor, " in refused.err


def test_a_drift_of_a_sysctl(pinner, cli, monkeypatch):
    found = Drift(SYSCTLS["vm.swappiness"].target, cpus(""), (), "unknown", states=(Number(60), Number(1)))
    monkeypatch.setattr(pinner, "drift", lambda host: DriftReport(host, NOON, None, "plan-1", (found,)))
    row = cli("drift").out.splitlines()[-1].split()
    assert row == ["vm.swappiness", "sysctl", "1", "60", "unknown"]


def test_a_drift_of_rps_that_was_switched_on(pinner, cli, monkeypatch):
    target = RpsQueue("ens1", 2, 0, cpus("4-7")).target
    found = Drift(target, cpus(""), (), "unknown", states=(cpus("4-7"), cpus("")))
    monkeypatch.setattr(pinner, "drift", lambda host: DriftReport(host, NOON, None, "plan-1", (found,)))
    row = cli("drift").out.splitlines()[-1].split()
    assert row == ["ens1", "rps", "rx-0", "none", "4-7", "unknown"]


def test_a_policy_keeps_a_choice_until_an_option_ends_it(pinner, cli):
    cli("policy", "set", "--yes", "--undo-if-worse")
    assert pinner.policies["h1"] == Policy(undo_if_worse=True)
    shown = cli("policy", "set", "--yes", "--mode", "enforce").out
    assert pinner.policies["h1"] == Policy(mode="enforce", undo_if_worse=True)
    assert "undo if worse True" in " ".join(shown.split())
    cli("policy", "set", "--yes", "--no-undo-if-worse")
    assert pinner.policies["h1"] == Policy(mode="enforce")


def test_a_plan_with_the_request_of_the_policy(pinner, cli):
    pinner.policies["h1"] = Policy(Request("numa-local", housekeeping="0"))
    made = codec.load(Plan, cli("plan", "--policy", "--rebalance", "--emulator", "1", "--json").out)
    assert made.request == Request("numa-local", housekeeping="0", emulator="1", rebalance=True)
    assert cli("plan", "--policy", "--root", "/nonexistent").status == 2


def test_drift_says_what_and_why(applied, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")
    out = cli("drift")
    assert "AllowedCPUs of web" in out.out
    assert "recurred 4 times" in out.out
    assert "no room" in out.out
    assert "to end it: pinner apply plan-2" in out.err
    report = codec.load(DriftReport, cli("drift", "--json").out)
    assert report == applied.drift("h1")
    monkeypatch.setattr(applied, "drift", lambda _: replace(report, mode="propose"))
    assert "found 4 times" in cli("drift").out
    by_guest = tuple(replace(drift, cause="guest") for drift in report.drifts)
    monkeypatch.setattr(applied, "drift", lambda _: replace(report, mode="enforce", drifts=by_guest))
    assert "found 4 times" in cli("drift").out
    setback = Setback("run-7", NOON, "worse than before the run, after 2 steps: run_delay")
    monkeypatch.setattr(applied, "drift", lambda _: replace(report, setback=setback))
    told = cli("drift").err
    assert "warning: the policy proposes and no longer enforces since 2" in told
    assert "because of run run-7: worse than before the run, after 2 steps: run_delay" in told


def test_a_policy_shows_why_it_enforces_no_longer(pinner, cli):
    cli("policy", "set", "--yes", "--mode", "propose")
    assert "setback" not in cli("policy", "show").out
    assert json.loads(cli("policy", "show", "--json").out)["setback"] is None
    pinner.setbacks["h1"] = Setback("run-7", NOON, "worse than before the run, after 2 steps: drops")
    shown = cli("policy", "show").out
    assert "because of run run-7: worse than before the run, after 2 steps: drops" in " ".join(shown.split())
    assert codec.load(ShownPolicy, cli("policy", "show", "--json").out).setback == pinner.setbacks["h1"]
    assert "setback" not in cli("policy", "set", "--yes", "--mode", "enforce").out


def test_drift_without_a_policy_and_a_placement(pinner, cli):
    assert cli("drift").out == "host h1: no policy and no recorded placement\n"
