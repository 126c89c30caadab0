"""pinner's promises for faults that need several nodes or cgroup v2."""

from contextlib import ExitStack, contextmanager

import pytest
from support.system.lab import apply, daemon, guests, masks, plan, planned, rollback, server, wrong

from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, StalePlan

CPUS = "/sys/devices/system/cpu"


@pytest.fixture(scope="module")
def two_socket(lab_host):
    """A two-socket host with guests and a busy daemon."""
    host = lab_host("two-socket")
    with guests(host), daemon(host, "busy"):
        yield host


@contextmanager
def offline(host, cpu):
    """A CPU that is offline within the context."""
    with ExitStack() as undo:
        undo.callback(host.run, f"echo 1 > {CPUS}/cpu{cpu}/online")
        host.run(f"echo 0 > {CPUS}/cpu{cpu}/online")
        yield


@pytest.mark.fault(1)
def test_an_offline_cpu_is_refused_in_a_plan(two_socket):
    with offline(two_socket, 6):
        with pytest.raises(Invalid, match="6 is offline"):
            plan(two_socket, emulator="4-6")
        assert all(6 not in want.cpus for want in plan(two_socket, "shared-pool").wanted)


@pytest.mark.fault(1)
def test_a_cpu_that_goes_offline_before_the_apply_makes_the_plan_stale(two_socket):
    new_plan = plan(two_socket, "numa-local")
    before = masks(two_socket)
    with offline(two_socket, 6), pytest.raises(StalePlan):
        apply(two_socket, new_plan)
    assert wrong(before, masks(two_socket)) == []


@pytest.mark.fault(3)
def test_a_pinned_cpu_that_was_offline_causes_no_rollback(two_socket):
    """Guests are as planned again because of their cpusets; the next plan has the processes that Linux 6.1 resets."""
    before = masks(two_socket)
    new_plan = plan(two_socket, "numa-local")
    run, state = apply(two_socket, new_plan)
    assert state == "applied"
    victim = max(next(want.cpus for want in new_plan.wanted if want.target.kind == "vcpu"))
    with offline(two_socket, victim):
        assert all(victim not in want.cpus for want in plan(two_socket, "numa-local").wanted)
    now = masks(two_socket)
    for change in new_plan.changes:
        if change.target.kind != "process":
            live = [key for thread in change.before if (key := (thread.tid, thread.started)) in now]
            assert {now[key][1] for key in live} == {change.after}
    misplaced = [
        change.target
        for change in new_plan.changes
        if change.target.name == "python3" and change.after != now[change.before[0].tid, change.before[0].started][1]
    ]
    assert set(misplaced) <= {change.target for change in plan(two_socket, "numa-local").changes}
    assert rollback(two_socket, run) == "rolled_back"
    assert wrong(before, masks(two_socket)) == []


@pytest.mark.fault(1)
def test_a_rollback_names_an_offline_cpu_and_succeeds_once_the_cpu_is_online(two_socket):
    before = masks(two_socket)
    new_plan = plan(two_socket, "numa-local")
    run, state = apply(two_socket, new_plan)
    assert state == "applied"
    victim = max(next(want.cpus for want in new_plan.wanted if want.target.kind == "vcpu"))
    with offline(two_socket, victim):
        state = rollback(two_socket, run)
        assert state.startswith("rolled_back_partly")
        assert "changes could not be undone" in state
        assert f"CPUs {victim} are not online" in state
        assert "another program" not in state
    assert rollback(two_socket, run) == "rolled_back"
    assert wrong(before, masks(two_socket)) == []


def assert_undone_or_done(host, run):
    """Each change of the run is made, or has failed or is undone: then its threads have their masks of before."""
    entries, now = server(host).entries(run), masks(host)
    assert {"done", "failed"} <= {entry.state for entry in entries} <= {"done", "failed", "undone"}
    for entry in entries:
        is_undone = isinstance(entry.change, AffinityChange) and entry.state != "done"
        for thread in entry.change.before if is_undone else ():
            _, mask = now.get((thread.tid, thread.started), ("", thread.cpus))
            assert mask == thread.cpus, f"{entry.change.target} is on {mask}"


@pytest.mark.fault(4)
def test_a_plan_stays_inside_the_allowed_cpus_of_a_slice(two_socket):
    """The kernel ignores pins outside of AllowedCPUs=, although libvirt reports success."""
    limit = "systemctl set-property --runtime machine.slice AllowedCPUs="
    try:
        two_socket.run(f"{limit}2-5")
        before = masks(two_socket)
        new_plan = plan(two_socket)
        of_guests = [want for want in new_plan.wanted if want.target.kind != "process"]
        assert of_guests
        assert not new_plan.unplaced
        for want in of_guests:
            assert want.cpus <= CpuSet.parse("2-5")
            assert "cgroup machine.slice allows CPUs 2-5" in want.reason
        two_socket.run(f"{limit}2-4")
        with pytest.raises(StalePlan, match=r"cgroup machine\.slice allows CPUs 2-4, no longer 2-5"):
            apply(two_socket, new_plan)
        two_socket.run(f"{limit}2-5")
        run, state = apply(two_socket, new_plan)
        assert state == "applied"
        assert wrong(planned(before, new_plan), masks(two_socket)) == []
        assert rollback(two_socket, run) == "rolled_back"
        assert wrong(before, masks(two_socket)) == []
    finally:
        two_socket.run(limit)


@pytest.mark.fault(7)
@pytest.mark.parametrize("allowed", ["2-3", "0,2"], ids=["none of them", "some of them"])
def test_a_daemon_with_allowed_cpus_is_not_moved_partly(two_socket, allowed):
    """The daemon is skipped by default; where the request names it, the error names its cpuset."""
    with daemon(two_socket, "confined", properties=f"AllowedCPUs={allowed}"):
        pid = two_socket.run("systemctl show -p MainPID --value confined").out.strip()
        assert any(skipped.target.owner == pid for skipped in plan(two_socket).skipped)
        before = masks(two_socket)
        new_plan = plan(two_socket, processes=(pid,), housekeeping="0-1")
        run, state = apply(two_socket, new_plan)
        assert state.startswith("applied_partly")
        assert f"confined.service allows CPUs {allowed}" in state
        assert_undone_or_done(two_socket, run)
        assert rollback(two_socket, run) == "rolled_back"
        assert wrong(before, masks(two_socket)) == []
