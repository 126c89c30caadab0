"""The first guest after a boot, which on Linux 6.1 resets every affinity, as it enables the cpuset controller."""

import pytest
from support.system.lab import apply, daemon, guests, masks, plan, planned, rollback, wrong


@pytest.mark.fault(6)
def test_housekeeping_is_placed_again_after_the_first_guest(small_host):
    host = small_host
    enabled = host.run("cat /sys/fs/cgroup/cgroup.subtree_control").out.split()
    assert "cpuset" not in enabled, "a guest has run here already"
    with daemon(host, "busy"):
        new_plan = plan(host, "shared-pool")
        assert apply(host, new_plan)[1] == "applied"
        busy = next(change for change in new_plan.changes if change.target.name == "python3")
        with guests(host):
            before = masks(host)
            assert all(before[thread.tid, thread.started][1] != busy.after for thread in busy.before)
            second_plan = plan(host, "shared-pool")
            run, state = apply(host, second_plan)
            assert state == "applied"
            after = masks(host)
            assert wrong(planned(before, second_plan), after) == []
            assert all(after[thread.tid, thread.started][1] == busy.after for thread in busy.before)
            assert rollback(host, run) == "rolled_back"
            assert wrong(before, masks(host)) == []
