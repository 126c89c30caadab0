"""Faults that need several nodes or cgroup v2: what pinner promises then."""

from contextlib import ExitStack, contextmanager

import pytest
from support.lab import apply, daemon, guests, masks, plan, rollback, served, wrong

from pinner.model.errors import Invalid, StalePlan

CPUS = "/sys/devices/system/cpu"


@pytest.fixture(scope="module")
def plain(lab_host):
    """A two-socket host with guests and a busy daemon."""
    host = lab_host("two-socket")
    with guests(host), daemon(host, "busy"):
        yield host


@contextmanager
def offline(host, cpu):
    """A CPU that is switched off meanwhile."""
    with ExitStack() as undo:
        undo.callback(host.run, f"echo 1 > {CPUS}/cpu{cpu}/online")
        host.run(f"echo 0 > {CPUS}/cpu{cpu}/online")
        yield


@pytest.mark.fault(1)
def test_an_offline_cpu_is_refused_beforehand(plain):
    with offline(plain, 6):
        with pytest.raises(Invalid, match="6 is offline"):
            plan(plain, emulator="4-6")
        assert all(6 not in want.cpus for want in plan(plain, "shared-pool").wanted)


@pytest.mark.fault(1)
def test_a_cpu_that_goes_offline_before_the_apply_makes_the_plan_stale(plain):
    made = plan(plain, "numa-local")
    before = masks(plain)
    with offline(plain, 6), pytest.raises(StalePlan):
        apply(plain, made)
    assert wrong(before, masks(plain)) == []


@pytest.mark.fault(3)
def test_a_pinned_cpu_that_goes_offline_and_returns_is_no_reason_to_roll_back(plain):
    """Guests, which their cpuset holds, are as planned again; what Linux 6.1 forgets is found by the next plan."""
    before = masks(plain)
    made = plan(plain, "numa-local")
    run, state = apply(plain, made)
    assert state == "applied"
    victim = max(next(want.cpus for want in made.wanted if want.target.kind == "vcpu"))
    with offline(plain, victim):
        assert all(victim not in want.cpus for want in plan(plain, "numa-local").wanted)
    now = masks(plain)
    for change in made.changes:
        if change.target.kind != "process":
            live = [key for thread in change.before if (key := (thread.tid, thread.started)) in now]
            assert {now[key][1] for key in live} == {change.after}
    misplaced = [
        change.target
        for change in made.changes
        if change.target.name == "python3" and change.after != now[change.before[0].tid, change.before[0].started][1]
    ]
    assert set(misplaced) <= {change.target for change in plan(plain, "numa-local").changes}
    assert rollback(plain, run) == "rolled_back"
    assert wrong(before, masks(plain)) == []


@pytest.mark.fault(1)
def test_an_undo_onto_a_cpu_that_went_offline_is_told_and_done_when_it_is_back(plain):
    before = masks(plain)
    made = plan(plain, "numa-local")
    run, state = apply(plain, made)
    assert state == "applied"
    victim = max(next(want.cpus for want in made.wanted if want.target.kind == "vcpu"))
    with offline(plain, victim):
        state = rollback(plain, run)
        assert state.startswith("rolled_back_partly")
        assert "changes could not be undone" in state
        assert f"CPUs {victim} are not online" in state
        assert "another program" not in state
    assert rollback(plain, run) == "rolled_back"
    assert wrong(before, masks(plain)) == []


@pytest.mark.fault(4)
def test_a_slice_that_is_confined_undoes_the_apply(plain):
    """machine.slice has AllowedCPUs: no pin outside them holds, whatever libvirt says."""
    try:
        plain.run("systemctl set-property --runtime machine.slice AllowedCPUs=0-3")
        before = masks(plain)
        made = plan(plain, "numa-local")
        run, state = apply(plain, made)
        assert state.startswith("undone")
        states = {entry.state for entry in served(plain).entries(run)}
        assert "undone" in states
        assert "stuck" not in states
        assert wrong(before, masks(plain)) == []
    finally:
        plain.run("systemctl set-property --runtime machine.slice AllowedCPUs=")


@pytest.mark.fault(7)
@pytest.mark.parametrize("allowed", ["2-3", "0,2"], ids=["none of them", "some of them"])
def test_a_daemon_whose_unit_is_confined_is_not_half_moved(plain, allowed):
    """Left alone by itself; asked for by name, its cpuset and what the kernel grants are named."""
    with daemon(plain, "confined", properties=f"AllowedCPUs={allowed}"):
        pid = plain.run("systemctl show -p MainPID --value confined").out.strip()
        assert any(pid in left.name for left in plan(plain).skipped)
        before = masks(plain)
        made = plan(plain, processes=(pid,), housekeeping="0-1")
        run, state = apply(plain, made)
        assert state.startswith("undone")
        assert "confined.service confines the thread" in state
        assert "stuck" not in {entry.state for entry in served(plain).entries(run)}
        assert wrong(before, masks(plain)) == []
