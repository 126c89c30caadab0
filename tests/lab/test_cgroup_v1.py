"""A host on cgroup v1, where a CPU that was offline stays out of the guests' cpusets when it is online again."""

import pytest
from support.lab import apply, guests, masks, plan, rollback, server, wrong

from pinner.model.cpuset import CpuSet

LEGACY = "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
CPU = 6


@pytest.mark.fault(2)
def test_a_cpu_that_is_online_again_is_refused_with_the_name_of_the_parent_cpuset(lab_host):
    host = lab_host("two-socket", LEGACY)
    with guests(host):
        new_plan = plan(host)
        run, state = apply(host, new_plan)
        assert state == "applied"
        assert rollback(host, run) == "rolled_back"
        for value in (0, 1):
            host.run(f"echo {value} > /sys/devices/system/cpu/cpu{CPU}/online")
        lost = CpuSet.parse(host.run("cat /sys/fs/cgroup/cpuset/machine.slice/cpuset.cpus").out)
        assert CPU not in lost
        before = masks(host)
        second_plan = plan(host)
        assert any(CPU in want.cpus for want in second_plan.wanted)
        run, state = apply(host, second_plan)
        assert state.startswith("undone")
        assert "machine.slice" in state
        assert "stuck" not in {entry.state for entry in server(host).entries(run)}
        assert wrong(before, masks(host)) == []
