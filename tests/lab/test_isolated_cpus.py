"""CPUs that this boot took from the kernel's load balancing: threads are pinned there one by one, and never float."""

import re

import pytest
from support.lab import guests, plan

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid


@pytest.fixture(scope="module")
def isolating(lab_host):
    host = lab_host("isolated-boot")
    with guests(host):
        yield host


@pytest.mark.fault(30)
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"emulator": "4-5"}, "4-5 are isolated from the kernel's scheduler"),
        ({"housekeeping": "12"}, "12 is isolated from the kernel's scheduler"),
        ({"strategy": "numa-local", "emulator": "2,4"}, "4 is isolated"),
        ({"strategy": "isolated", "emulator": "12-13"}, "12-13 are isolated"),
    ],
)
def test_nothing_floats_where_the_kernel_does_not_balance(isolating, asked, why):
    with pytest.raises(Invalid, match=re.escape(why)):
        plan(isolating, **asked)


@pytest.mark.fault(28)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_no_pool_holds_isolated_cpus(isolating, strategy):
    isolated = CpuSet.parse("4-7,12-15")
    made = plan(isolating, strategy)
    assert made.wanted
    assert not [want for want in made.wanted if want.cpus & isolated]


@pytest.mark.fault(29)
def test_threads_that_share_a_cpu_without_a_tick_are_warned_of(lab_host):
    host = lab_host("two-socket", "nohz_full=4-7,12-15")
    warnings = plan(host, "shared-pool").warnings
    assert any(re.search(r"^CPUs \S+ are nohz_full: .*tick comes back", warning) for warning in warnings), warnings
