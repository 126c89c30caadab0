from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.guest.guest import NovaIdentity, shared_vcpus
from pinner.model.guest.nova import Listening, NovaConf
from pinner.model.plan.request import Request
from pinner.planning.planner import plan
from pinner.planning.questions.nova_check import report


def identity(**specs: str) -> NovaIdentity:
    named = {f"hw:{name}": value for name, value in specs.items()}
    return NovaIdentity("i", "p", "u", "f", extra_specs=named, has_specs=True)


@pytest.mark.parametrize(
    ("nova", "shared"),
    [
        (identity(cpu_policy="mixed", cpu_dedicated_mask="0,2"), "1,3"),
        (identity(cpu_policy="mixed", cpu_dedicated_mask=" ^0"), "0"),
        (identity(cpu_policy="mixed", cpu_dedicated_mask="0-3"), ""),
        (identity(cpu_policy="mixed", cpu_dedicated_mask="all"), ""),
        (identity(cpu_policy="mixed", cpu_realtime="yes", cpu_realtime_mask="^0"), ""),
        (identity(cpu_policy="dedicated", cpu_dedicated_mask="0"), ""),
        (identity(cpu_dedicated_mask="0"), ""),
        (None, ""),
    ],
)
def test_only_the_mask_of_a_mixed_flavor_names_shared_vcpus(nova, shared):
    assert str(shared_vcpus(nova, 4)) == shared


def test_the_only_shared_cpu_of_a_node_stays_a_shared_one():
    """Nova pins the shared vCPU of a mixed guest to it, as if the vCPU had it for itself."""
    nova = identity(cpu_policy="mixed", cpu_dedicated_mask="1", numa_nodes="2")
    mixed = guest(1, 2, cpus("0-7"), pins=["0", "5"], dedicated=True, nova=nova, shared_vcpus=cpus("0"))
    conf = NovaConf(("nova.conf",), dedicated="1-3,5-7", shared="0,4")
    sets = {"shared": cpus("0,4"), "dedicated": cpus("1-3,5-7"), "nova": conf}
    host = snapshot(plain(8, 2), [mixed, guest(2, 1, cpus("0-7"))], **sets)
    assert [str(owned.cpus) for owned in host.nova_owns().guests] == ["5"]
    assert "guest g1" not in {finding.what for finding in report(host, Listening(())).findings}
    unknown = replace(host, guests=(replace(mixed, shared_vcpus=cpus("")), *host.guests[1:]))
    assert [str(owned.cpus) for owned in unknown.nova_owns().guests] == ["0,5"]
    assert [str(w.cpus) for w in plan(host, "s", Request()).wanted if w.target.kind == "vcpu"] == ["0,4"]
