"""The first guest after a boot, which on Linux 6.1 undoes every affinity: it turns the cpuset controller on."""

import pytest
from support.lab import apply, daemon, guests, masks, plan, planned, rollback, wrong


@pytest.mark.fault(6)
def test_housekeeping_is_asserted_again(smaller):
    host = smaller
    enabled = host.run("cat /sys/fs/cgroup/cgroup.subtree_control").out.split()
    assert "cpuset" not in enabled, "a guest has run here already"
    with daemon(host, "busy"):
        made = plan(host, "shared-pool")
        assert apply(host, made)[1] == "applied"
        busy = next(change for change in made.changes if change.target.name == "python3")
        with guests(host):
            before = masks(host)
            assert all(before[thread.tid, thread.started][1] != busy.after for thread in busy.before)
            again = plan(host, "shared-pool")
            run, state = apply(host, again)
            assert state == "applied"
            after = masks(host)
            assert wrong(planned(before, again), after) == []
            assert all(after[thread.tid, thread.started][1] == busy.after for thread in busy.before)
            assert rollback(host, run) == "rolled_back"
            assert wrong(before, masks(host)) == []
