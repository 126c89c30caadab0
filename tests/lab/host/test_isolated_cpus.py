"""CPUs that boot parameters isolate from the kernel's load balancing: no thread may float over them."""

import re

import pytest
from support.system.lab import guests, plan

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid


@pytest.fixture(scope="module")
def isolated_host(lab_host):
    host = lab_host("isolated-boot")
    with guests(host):
        yield host


@pytest.mark.fault(30)
@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"emulator": "4-5"}, "4-5 are isolated from the kernel's scheduler"),
        ({"housekeeping": "12"}, "12 is isolated from the kernel's scheduler"),
        ({"strategy": "numa-local", "emulator": "2,4"}, "4 is isolated"),
        ({"strategy": "isolated", "emulator": "12-13"}, "12-13 are isolated"),
    ],
)
def test_roles_on_isolated_cpus_are_refused(isolated_host, parameters, why):
    with pytest.raises(Invalid, match=re.escape(why)):
        plan(isolated_host, **parameters)


@pytest.mark.fault(28)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_no_pool_has_isolated_cpus(isolated_host, strategy):
    isolated = CpuSet.parse("4-7,12-15")
    new_plan = plan(isolated_host, strategy)
    assert new_plan.wanted
    assert not [want for want in new_plan.wanted if want.cpus & isolated]


@pytest.mark.fault(29)
def test_a_plan_warns_of_threads_that_share_a_nohz_full_cpu(lab_host):
    host = lab_host("two-socket", "nohz_full=4-7,12-15")
    warnings = plan(host, "shared-pool").warnings
    assert any(re.search(r"^CPUs \S+ are nohz_full, .*tick does not stop", warning) for warning in warnings), warnings
