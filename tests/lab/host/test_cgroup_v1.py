"""A host on cgroup v1: the weight of the guests, and a CPU that was offline, which stays out of the guests' cpusets."""

import pytest
from support.system.lab import apply, guests, masks, plan, rollback, wrong

from pinner.model.cpuset import CpuSet
from pinner.model.settings.cpu_weights import SLICE

LEGACY = "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
CPU = 6


def test_the_weight_of_the_guests_is_set_and_restored(lab_host):
    host = lab_host("two-socket", LEGACY)
    shares = f"cat /sys/fs/cgroup/cpu/{SLICE}/cpu.shares"
    with guests(host):
        before = host.run(shares).out
        run, state = apply(host, plan(host, remedies=("cpu-weights",)))
        assert state == "applied"
        assert (before, host.run(shares).out) == ("1024\n", "10240\n")
        assert rollback(host, run) == "rolled_back"
        assert host.run(shares).out == before


@pytest.mark.fault(2)
def test_a_cpu_that_is_online_again_stays_out_of_the_sets_of_the_guests_with_the_name_of_the_parent_cpuset(lab_host):
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
        of_guests = [want for want in second_plan.wanted if want.target.kind != "process"]
        assert of_guests
        for want in of_guests:
            assert CPU not in want.cpus
            assert f"cgroup machine.slice allows CPUs {lost}" in want.reason
        run, state = apply(host, second_plan)
        assert state == "applied"
        assert rollback(host, run) == "rolled_back"
        assert wrong(before, masks(host)) == []
