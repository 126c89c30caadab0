"""The CPUs of Open vSwitch with DPDK: in no set of a plan, and compared with Nova's sets."""

from dataclasses import replace

import pytest
from data.field import dpdk
from support.hosts import applied, cpus, guest, plain, process, snapshot
from support.made_up.readings import findings

from pinner import codec
from pinner.checks.common import housekeeping
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.guest import OperatorPin
from pinner.model.guest.nova import Listening
from pinner.model.plan.request import Request
from pinner.model.reading import HostReading
from pinner.model.snapshot import OvsDpdk, OvsMasks, Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement
from pinner.planning.questions import nova_check
from pinner.planning.questions.capacity import capacity
from pinner.planning.request.processes import remedy_roles

HOST = plain(16, 2)
ISOLATED = plain(16, 2, isolated="4-7,12-15")
OVS = OvsDpdk(OvsMasks(cpus("2-3"), cpus("0")), cpus("12"))


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_no_strategy_uses_its_cpus(strategy: str) -> None:
    top = ISOLATED if strategy == "isolated" else HOST
    host = snapshot(top, [guest(1, 2, top.online)], [process(90, 60.0, str(top.online))], ovs=OVS)
    made = plan(host, "s", Request(strategy))
    assert made.wanted
    assert not union(want.cpus for want in made.wanted) & OVS.cpus
    assert not made.roles.cpus & OVS.cpus
    pools = [node.cpus for each in capacity(host, Request(strategy)).strategies for node in each.nodes]
    assert pools
    assert not union(pools) & OVS.cpus


def test_idle_threads_and_a_small_node_give_nothing_of_them_back() -> None:
    """The minimum of a role sets other restricted affinities aside, but not these."""
    host = snapshot(plain(4), [guest(1, 1, cpus("0-3"))], ovs=OvsDpdk(OvsMasks(cpus("1-3"))))
    made = plan(host, "s", Request())
    assert str(made.roles.cpus) == "0"
    with pytest.raises(NoFit, match=r"Open vSwitch \(DPDK\) 0-3"):
        plan(replace(host, ovs=OvsDpdk(OvsMasks(cpus("0-3")))), "s", Request())


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_lcores_are_the_hosts_and_may_be_novas_shared_set(strategy: str) -> None:
    roles = plan(dpdk.HOST, "s", Request(strategy)).roles
    assert {str(roles.housekeeping), str(roles.emulator), str(roles.vcpu)} == {dpdk.LCORES}
    assert found(dpdk.HOST) == []
    assert not findings(HostReading(dpdk.HOST))


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
@pytest.mark.parametrize(
    ("claims", "housekeeping"),
    [
        ({"restriction": cpus("4,20")}, "1,4,17,20"),
        ({"operator_pins": (OperatorPin("vcpu", 0, cpus("4"), "definition"),), "pins": ["4"]}, "0-1,16-17,20"),
    ],
)
def test_a_claim_on_an_lcore_sends_no_other_guest_there(claims, housekeeping, strategy) -> None:
    """PLAIN's lcores are the core 4,20. A pin on CPU 4 leaves half a core, too little for a set."""
    claimant = guest(1, 1, claims.get("restriction", cpus("0-31")), **claims)
    made = plan(replace(dpdk.PLAIN, guests=(claimant, *dpdk.PLAIN.guests)), "s", Request(strategy))
    assert not made.roles.vcpu & cpus("4,20")
    assert str(made.roles.housekeeping) == housekeeping


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_housekeeping_takes_the_lcores_first(strategy: str) -> None:
    roles = plan(dpdk.PLAIN, "s", Request(strategy)).roles
    assert str(roles.housekeeping) == "1,4,17,20"
    assert not roles.cpus & cpus(dpdk.PMDS)


def test_isolated_lcores_are_for_no_vcpu() -> None:
    host = snapshot(ISOLATED, [guest(1, 2, cpus("0-3"))], ovs=OvsDpdk(OvsMasks(cpus("6"), cpus("4-5"))))
    assert str(plan(host, "s", Request("isolated")).roles.vcpu) == "7,12-15"


def test_a_recorded_placement_leaves_cpus_that_it_takes_later() -> None:
    host = snapshot(HOST, [guest(1, 2, HOST.online)])
    made = plan(host, "s", Request())
    after = replace(applied(host, made), ovs=OvsDpdk(polling=cpus("6-7")))
    again = plan_from_placement(after, "s", Request(), record(made, host, None))
    assert not again.roles.cpus & cpus("6-7")
    assert again.changes


def test_a_literal_set_with_its_cpus_is_refused() -> None:
    with pytest.raises(Invalid, match=r"2 is in the restricted affinity of Open vSwitch \(DPDK\)"):
        plan(snapshot(HOST, ovs=OVS), "s", Request(housekeeping="1-2"))


def found(host: Snapshot) -> list[tuple[str, str]]:
    return [(each.what, each.remedy) for each in nova_check.report(host, Listening()).findings]


def test_sets_that_overlap_are_reported() -> None:
    host = snapshot(HOST, dedicated=cpus("2-7"), shared=cpus("0,12-15"), ovs=OVS)
    assert found(host) == [
        ("pmd-cpu-mask", "systemctl restart ovs-vswitchd.service"),
        ("cpu_dedicated_set", "cpu_dedicated_set = 4-7"),
        ("cpu_shared_set", "cpu_shared_set = 0,13-15"),
    ]


def test_the_mask_grows_by_no_cpu_of_nova() -> None:
    host = snapshot(HOST, shared=cpus("14-15"), ovs=OvsDpdk(OvsMasks(cpus("2-3")), cpus("12,14")))
    assert ("pmd-cpu-mask", "ovs-vsctl set Open_vSwitch . other_config:pmd-cpu-mask=0x100c") in found(host)


def test_no_remedy_gives_them_to_the_host() -> None:
    reading = HostReading(dpdk.PLAIN, roles=remedy_roles(dpdk.PLAIN))
    assert not housekeeping(reading) & cpus(dpdk.PMDS)


def test_a_guest_of_nova_on_its_cpus_and_a_database_that_cannot_be_read() -> None:
    pinned = guest(1, 1, HOST.online, pins=["3"], dedicated=True)
    host = snapshot(HOST, [pinned], dedicated=cpus("4-7"), ovs=OvsDpdk(OvsMasks(cpus("2-3"), error="it hangs")))
    named = [what for what, _ in found(host)]
    assert "ovsdb" in named
    assert named.count("guest g1") == 2
    assert found(snapshot(HOST, dedicated=cpus("4-7"), ovs=OvsDpdk(OvsMasks(cpus("2-3"))))) == []


@pytest.mark.parametrize(
    ("sets", "lines"),
    [
        ({"dedicated": cpus("0,4-7")}, ["cpu_dedicated_set = 4-7"]),
        ({"shared": cpus("2-3,12")}, ["cpu_shared_set = 4-7,10-11,13-15"]),
        ({"dedicated": cpus("2-3")}, ["#cpu_dedicated_set"]),
    ],
    ids=["lcores are no CPUs of pinned guests", "those of a plan's vCPUs", "nothing is left"],
)
def test_a_remedy_names_a_set_that_nova_can_have(sets: dict[str, CpuSet], lines: list[str]) -> None:
    """Nova starts with no empty set, and the host, the emulators and Open vSwitch keep their CPUs."""
    host = snapshot(HOST, ovs=OvsDpdk(OvsMasks(cpus("2-3,12"), cpus("0"))), **sets)
    assert [line for _, line in found(host)] == lines
    assert [remedy.line for each in findings(HostReading(host)) for remedy in each.remedies] == lines


def test_the_remedies_of_a_guest_on_its_cpus_give_nova_none_of_them() -> None:
    pinned = guest(1, 1, HOST.online, pins=["3"], dedicated=True)
    host = snapshot(HOST, [pinned], dedicated=cpus("4-7"), ovs=OvsDpdk(OvsMasks(cpus("2-3"))))
    assert found(host) == [("guest g1", f"openstack server migrate {pinned.uuid}")] * 2


def test_a_snapshot_keeps_it() -> None:
    host = snapshot(HOST, ovs=OVS)
    assert codec.load(Snapshot, codec.dump(host)) == host
    stored = codec.plain(host)
    del stored["ovs"]
    assert codec.read(Snapshot, stored).ovs is None
