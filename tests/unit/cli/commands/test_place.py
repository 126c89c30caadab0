"""pinner place: a plan by hand is shown, confirmed and applied; what is wrong is one line, and status 2."""

import json
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import timedelta

import pytest
from data.field.documented import EVEN, documented_host
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.fakes.local_service import compose_service
from support.hosts import cpus, guest

from pinner.cli.frame import context
from pinner.model.guest.guest import OperatorPin


@pytest.fixture
def host(tmp_path, store, monkeypatch):
    """The documented host, with a guest g3 whose vCPU an operator pinned; the command opens its service."""
    found = documented_host()
    pinned = guest(3, 1, found.topology.online, pins=("9",), memory={})
    pinned = replace(pinned, operator_pins=(OperatorPin("vcpu", 0, cpus("9"), "live"),))
    clock = Clock(timedelta(seconds=1))
    agent = HostedAgent(tmp_path / "agent", replace(found, host="h1", guests=(*found.guests, pinned)), clock)
    agent.host.has_metadata = True
    with closing(agent.journal), closing(compose_service(agent, store, clock)) as parts:
        monkeypatch.setattr(context, "open_pinner", lambda *_: nullcontext(parts.service))
        yield agent.host


def masks(host):
    return {str(target): str(threads[0].cpus) for target, threads in host.threads.items()}


def test_a_guest_is_placed_shown_and_undone(host, cli):
    before = host.kernel()
    result = cli("place", "g1", "--vcpu", "0=6", "--vcpu", "1=7", "--emulator", "5", "--iothread", "1=5", "--yes")
    assert result.status == 0
    assert result.out.index("strategy      manual") < result.out.index("OBJECTIVE") < result.out.index("applied")
    placed = masks(host)
    assert [placed[f"guest g1 {part}"] for part in ("vcpu 0", "vcpu 1", "emulator", "iothread 1")] == [*"6755"]
    assert placed["guest g2 vcpu 0"] == "0-39"
    assert cli("rollback", result.err.split()[-1], "--yes").status == 0
    assert host.kernel() == before


def test_the_last_stage_of_the_documented_case(host, cli):
    pids = [word for pid in range(300, 900, 100) for word in ("--process", pid)]
    assert cli("place", "g2", "--all", EVEN, *pids, "--cpus", "0,2,4,6", "--yes").status == 0
    placed = masks(host)
    assert {placed[target] for target in placed if " g2 " in target} == {str(cpus(EVEN))}
    assert {placed[target] for target in placed if target.startswith("process")} == {"0,2,4,6"}


def test_several_vcpus_get_the_same_cpus(host, cli):
    assert cli("place", "g2", "--vcpu", "0-2=8,10", "--yes").status == 0
    assert [masks(host)[f"guest g2 vcpu {number}"] for number in range(4)] == ["8,10"] * 3 + ["0-39"]


def test_a_pinned_guest_is_adopted_once(host, cli):
    before = host.kernel()
    done = json.loads(cli("place", "g3", "--adopt", "--yes", "--json").out)
    assert (done["run"]["state"], host.kernel()) == ("applied", before)
    assert [str(pin.cpus) for names in host.names.values() for pin in names] == ["9"]
    again = cli("place", "g3", "--adopt", "--yes")
    assert (again.status, again.err) == (
        2,
        "pinner: error: --adopt: 'g3' is not valid: a guest with a pin that pinner did not make; this one has none\n",
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "GUEST: '' is not valid: a guest with the CPUs of its parts, or --process with --cpus"),
        (["g1"], "GUEST: 'g1' is not valid: a guest with --vcpu, --emulator, --iothread, --all or --adopt"),
        (["--emulator", "5"], "GUEST: '' is not valid: a guest with --vcpu"),
        (["--process", "300"], "--cpus: '' is not valid: CPUs, together with --process"),
        (["g1", "--emulator", "5", "--cpus", "5"], "--cpus: '5' is not valid: CPUs, together with --process"),
        (["g1", "--vcpu", "0"], "--vcpu: '0' is not NUMBERS=CPUS, such as 0=6 or 0-3=8-11"),
        (["g1", "--vcpu", "0="], "--vcpu: '' names no CPU"),
        (["g1", "--emulator", "x"], "--emulator: cpus: 'x' is not valid: a CPU list"),
        (["g1", "--vcpu", "0=6", "--vcpu", "0=7"], "placement: 'g1 vcpu 0=6' is not valid: each part once"),
        (["g1", "--all", "6", "--vcpu", "0=7"], "placement: 'g1 all=6' is not valid: all threads of a guest, or parts"),
        (["g1", "--adopt", "--emulator", "5"], "--adopt: 'g1' is not valid: given without --vcpu"),
        (["g1", "--vcpu", "2=6"], "placement: 'g1 vcpu 2=6' is not valid: a part that the guest has now"),
        (["g1", "--vcpu", "0=40"], "placement: 'g1 vcpu 0=40' is not valid: CPUs that this part may have"),
        (["g1", "--vcpu", "0=9"], "vCPUs of guest g3 have CPUs 9 to themselves"),
        (["g9", "--emulator", "5"], "guest: there is no 'g9'; known: g1, g2, g3"),
        (["g9", "--adopt"], "guest: there is no 'g9'"),
        (["--process", "99", "--cpus", "5"], "process: there is no '99'"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_and_status_2(host, cli, words, expected):
    before = host.kernel()
    result = cli("place", *words, "--yes")
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert expected in result.err
    assert host.kernel() == before


def test_without_a_terminal_an_answer_is_needed(host, cli):
    assert cli("place", "g1", "--emulator", "5").status == 2


def test_a_policy_can_keep_a_placement(host, cli):
    made = json.loads(cli("place", "g1", "--emulator", "5", "--yes", "--json").out)["run"]["plan"]
    shown = cli("policy", "set", "--plan", made, "--mode", "enforce", "--yes")
    assert shown.status == 0
    assert "placement           g1 emulator=5\n" in shown.out
    assert cli("drift").out == f"host h1: policy enforce, as plan {made} placed it: no drift\n"


def test_a_policy_keeps_no_placement_of_a_pid(host, cli):
    done = json.loads(cli("place", "--process", 300, "--cpus", "0,2", "--worse", "--yes", "--json").out)
    refused = cli("policy", "set", "--plan", done["run"]["plan"], "--yes")
    assert (refused.status, refused.out) == (2, "")
    assert "placement: '300 process=0,2' is not valid: a process by its name in a policy" in refused.err
