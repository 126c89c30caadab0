"""Faults that need several nodes or cgroup v2: what pinner promises then."""

import json
from contextlib import ExitStack, contextmanager

import pytest
from support.lab import apply, daemon, guests, masks, pinner, plan, planned, rollback, wrong

from pinner.model.cpuset import CpuSet

CPUS = "/sys/devices/system/cpu"


@pytest.fixture(scope="module")
def plain(lab_host):
    """A two-socket host with guests and a busy daemon."""
    host = lab_host("two-socket")
    with guests(host), daemon(host, "busy"):
        yield host


@pytest.fixture(scope="module")
def isolating(lab_host):
    host = lab_host("isolated-boot")
    with guests(host):
        yield host


@contextmanager
def offline(host, cpu):
    """A CPU that is switched off meanwhile."""
    with ExitStack() as undo:
        undo.callback(host.run, f"echo 1 > {CPUS}/cpu{cpu}/online")
        host.run(f"echo 0 > {CPUS}/cpu{cpu}/online")
        yield


def test_an_offline_cpu_is_refused_beforehand(plain):
    with offline(plain, 6):
        refused = pinner(plain, "plan", "--emulator", "4-6", "--sample-seconds", "0", check=False)
        assert refused.status == 2
        assert "6 is offline" in refused.err
        assert all(6 not in want.cpus for want in plan(plain, "shared-pool").wanted)


def test_a_cpu_that_goes_offline_before_the_apply_makes_the_plan_stale(plain):
    made = plan(plain, "numa-local")
    before = masks(plain)
    with offline(plain, 6):
        refused = pinner(plain, "apply", made.id, "--yes", check=False)
    assert refused.status == 1
    assert "is stale" in refused.err
    assert wrong(before, masks(plain)) == []


def test_a_pinned_cpu_that_goes_offline_and_returns_harms_no_rollback(plain):
    before = masks(plain)
    made = plan(plain, "numa-local")
    run, state = apply(plain, made)
    assert state == "applied"
    victim = max(next(want.cpus for want in made.wanted if want.target.kind == "vcpu"))
    with offline(plain, victim):
        assert all(victim not in want.cpus for want in plan(plain, "numa-local").wanted)
    assert wrong(planned(before, made), masks(plain)) == []
    assert rollback(plain, run) == "rolled_back"
    assert wrong(before, masks(plain)) == []


def test_a_slice_that_is_confined_undoes_the_apply(plain):
    """machine.slice has AllowedCPUs: no pin outside them holds, whatever libvirt says."""
    try:
        plain.run("systemctl set-property --runtime machine.slice AllowedCPUs=0-3")
        before = masks(plain)
        made = plan(plain, "numa-local")
        run, state = apply(plain, made)
        assert state.startswith("undone")
        entries = json.loads(pinner(plain, "run", "show", run, "--json").out)["entries"]
        assert "undone" in {entry["state"] for entry in entries}
        assert not [entry for entry in entries if entry["state"] == "stuck"]
        assert wrong(before, masks(plain)) == []
    finally:
        plain.run("systemctl set-property --runtime machine.slice AllowedCPUs=")


def test_housekeeping_that_the_first_guest_undid_is_asserted_again(lab_host):
    """Linux 6.1: the first guest turns the cpuset controller on, which sets every affinity back to all CPUs."""
    host = lab_host("two-socket", "lab.use=first-guest")
    with daemon(host, "busy"):
        before = masks(host)
        made = plan(host, "shared-pool")
        first, state = apply(host, made)
        assert state == "applied"
        busy = next(change for change in made.changes if change.target.kind == "process")
        with guests(host):
            now = masks(host)
            reset = [thread for thread in busy.before if now[thread.tid, thread.started][1] != busy.after]
            assert reset, "the kernel left the daemon alone"
            again = plan(host, "shared-pool")
            second, state = apply(host, again)
            assert state == "applied"
            assert wrong(planned(now, again), masks(host)) == []
            assert {t.tid for t in busy.before} <= {t.tid for change in again.changes for t in change.before}
            assert rollback(host, second) == "rolled_back"
            assert wrong(now, masks(host)) == []
        assert first != second
        assert before


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--emulator", "4-5"), "4-5 are isolated from the kernel's scheduler"),
        (("--housekeeping", "12"), "12 is isolated from the kernel's scheduler"),
        (("--strategy", "numa-local", "--emulator", "2,4"), "4 is isolated"),
        (("--strategy", "isolated", "--emulator", "12-13"), "12-13 are isolated"),
    ],
)
def test_nothing_floats_where_the_kernel_does_not_balance(isolating, options, why):
    refused = pinner(isolating, "plan", "--sample-seconds", "0", *options, check=False)
    assert refused.status == 2
    assert why in refused.err


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_no_pool_holds_isolated_cpus(isolating, strategy):
    isolated = CpuSet.parse("4-7,12-15")
    made = plan(isolating, strategy)
    assert made.wanted
    assert not [want for want in made.wanted if want.cpus & isolated]
