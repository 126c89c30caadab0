"""What hosts in the field have wrong, and which lines end it."""

import pytest
from data.field.named import (
    automatic_cells,
    floats_outside,
    irqaffinity,
    migration,
    remote_gpu,
    siblings,
    split_core,
    squeezed_osds,
    topology,
)
from data.field.remedies import crowded, nova_sets, strict_memory
from support.hosts import applied, cpus
from support.made_up.readings import findings

from pinner.cli.commands.host.guests import guests
from pinner.model.plan.request import Request
from pinner.model.reading import HostReading
from pinner.planning import planner

PLAN = "as root, then pinner apply PLAN_ID"


def found(host, code):
    return [each for each in findings(HostReading(host)) if each.code == code]


def one(host, code):
    """The finding, its evidence by name, and its lines."""
    (finding,) = found(host, code)
    return finding, {each.name: each.value for each in finding.evidence}, [each.line for each in finding.remedies]


def planned(host, **parameters):
    """The host after the plan of a remedy."""
    return applied(host, planner.plan(host, "", Request(**parameters)), by_hand=True)


def test_a_core_of_the_host_and_of_the_shared_set():
    finding, facts, lines = one(split_core.HOST, "nova-core-split")
    assert facts["the host and cpu_shared_set"] == split_core.SPLIT
    assert (finding.severity, facts["cores"], lines) == ("warning", 4, [f"cpu_shared_set = {split_core.RIGHT}"])
    assert not found(split_core.WHOLE, "nova-core-split")


def test_a_split_core_without_a_set_that_would_be_left():
    _, facts, lines = one(split_core.DEDICATED, "nova-core-split")
    assert facts["the host and cpu_dedicated_set"] == "10-15,26-31"
    assert lines == []


@pytest.mark.parametrize(
    ("host", "subject", "what"),
    [
        (siblings.EMULATOR, "g2", "emulator threads of guest g2"),
        (siblings.DAEMON, "ceph-osd (900)", "ceph-osd (60 % of a CPU)"),
        (siblings.SERVICES, "compute1", "every service"),
    ],
)
def test_work_on_the_sibling_of_a_cpu_of_a_guest(host, subject, what):
    finding, facts, _ = one(host, "smt-shared-core")
    assert (finding.subject.name, what in finding.message) == (subject, True)
    assert facts == {"shared CPUs": "20", "guests": 1}


def test_the_emulator_leaves_the_cores_of_the_guest():
    _, _, (line,) = one(siblings.EMULATOR, "smt-shared-core")
    before, uuid, wanted, live = line.rsplit(" ", 3)
    assert (before, uuid[-1], live) == ("virsh emulatorpin", "2", "--live")
    assert not cpus(wanted) & cpus("4,6,20,22")
    assert not found(siblings.APART, "smt-shared-core")


@pytest.mark.parametrize("code", ["emulator-on-vcpus", "realtime-starves-emulator", "smt-shared-core"])
def test_the_emulator_stays_in_the_cgroup_of_its_guest(code):
    """machine.slice allows CPUs 4-11,20-27, of which 4, 6, 20 and 22 are the cores of the guests' own CPUs."""
    _, _, (line,) = one(siblings.LIMITED, code)
    assert cpus(line.split()[-2]) <= cpus("5,7-11,21,23-27")


def test_a_device_on_another_node_than_its_guest():
    finding, facts, lines = one(remote_gpu.HOST, "guest-device-remote")
    assert (finding.severity, facts[remote_gpu.GPU], facts["nodes of the vCPUs"]) == ("warning", "node 1", "0")
    assert facts["distance"] == 20
    assert lines == ["pinner plan --strategy numa-local"]
    assert not found(planned(remote_gpu.HOST, strategy="numa-local"), "guest-device-remote")


@pytest.mark.parametrize("host", [remote_gpu.NEAR, remote_gpu.FLOATING, remote_gpu.NO_MEMORY])
def test_a_device_as_near_as_can_be(host):
    assert not found(host, "guest-device-remote")


@pytest.mark.parametrize("host", [remote_gpu.DEDICATED, remote_gpu.FAR_MEMORY], ids=["of Nova", "far memory"])
def test_no_plan_moves_the_guest_to_its_device(host):
    _, _, lines = one(host, "guest-device-remote")
    assert lines == []


@pytest.mark.parametrize(
    ("host", "fact", "line"),
    [
        (topology.APART, ("cores of the guest on several cores of the host", 2), None),
        (
            topology.TOGETHER,
            ("cores of the host that are several of the guest", 2),
            "<topology sockets='1' cores='2' threads='2'/>",
        ),
        (topology.SOCKETS, ("sockets of the guest on several nodes", 2), None),
    ],
)
def test_a_guest_sees_other_cores_than_it_has(host, fact, line):
    _, facts, lines = one(host, "guest-topology-contradicts")
    assert fact in facts.items()
    assert lines == ([line] if line else [])


@pytest.mark.parametrize("host", [topology.ALIKE, topology.ALONE, topology.UNKNOWN])
def test_a_guest_sees_the_cores_that_it_has(host):
    assert not found(host, "guest-topology-contradicts")


def test_a_cell_on_several_nodes():
    both = found(topology.CROSSED, "guest-cells-contradict")
    assert [each.message for each in both] == [
        f"cell {number} of guest g1 has vCPUs on nodes 0,1, and memory of any node" for number in (0, 1)
    ]
    assert not found(topology.STRAIGHT, "guest-cells-contradict")


def test_a_guest_outside_the_shared_set():
    finding, facts, lines = one(floats_outside.HOST, "nova-guest-outside-shared")
    assert (finding.severity, facts["vCPUs"], facts["CPUs outside"]) == ("warning", 4, floats_outside.OUTSIDE)
    assert lines == ["pinner plan --strategy numa-local"]
    assert not found(planned(floats_outside.HOST, strategy="numa-local"), "nova-guest-outside-shared")


def test_a_guest_outside_the_shared_set_on_cpus_of_pinned_guests_is_critical():
    finding, facts, _ = one(floats_outside.ON_DEDICATED, "nova-guest-outside-shared")
    assert (finding.severity, facts["CPUs of cpu_dedicated_set"]) == ("critical", "12-15,28-31")


@pytest.mark.parametrize("host", [floats_outside.INSIDE, floats_outside.OTHER])
def test_a_guest_inside_the_shared_set_or_not_of_nova(host):
    assert not found(host, "nova-guest-outside-shared")


@pytest.mark.parametrize(("host", "wrong"), [(irqaffinity.HOST, "4-5"), (irqaffinity.INSIDE, "4-7")])
def test_irqaffinity_has_isolated_cpus(host, wrong):
    _, facts, lines = one(host, "irqaffinity-isolated")
    assert (facts["CPUs of both"], lines) == (wrong, ["irqaffinity=0-3"])
    assert not found(irqaffinity.APART, "irqaffinity-isolated")


def test_processes_have_too_few_cpus():
    finding, facts, lines = one(squeezed_osds.HOST, "processes-squeezed")
    assert "6 threads of ceph-osd" in finding.message
    assert (facts["load"], facts["CPUs"]) == (594.0, "1")
    assert lines == ["pinner plan --process ceph-osd", "pinner plan --strategy numa-local --process ceph-osd"]
    assert not found(planned(squeezed_osds.HOST, processes=("ceph-osd",)), "processes-squeezed")


@pytest.mark.parametrize("host", [squeezed_osds.ALONE, squeezed_osds.ROOMY, squeezed_osds.ANYWHERE])
def test_processes_have_cpus_enough(host):
    assert not found(host, "processes-squeezed")


def test_threads_of_a_migration_are_shown_with_the_emulator():
    (row,) = guests(migration.HOST.guests).rows
    assert (row[4].text, row[-1].text) == ("2-3", "5 migration threads")


def test_nova_can_make_the_cells_of_a_flavor_line():
    host = automatic_cells.EIGHT_NODES
    lines = {each.subject.name: each.remedies for each in found(host, "guest-without-cells")}
    cells = {name: [line.line for line in of if line.line.startswith("hw:")] for name, of in lines.items()}
    assert cells == {name: [f"hw:numa_nodes={n}"] if n else [] for name, n in automatic_cells.RIGHT.items()}
    assert one(automatic_cells.TWO_NODES, "guest-without-cells")[2][0] == "hw:numa_nodes=1"


def test_a_plan_instead_of_lines_that_crowd_the_emulators_of_many_guests():
    lines = {
        str(each.subject): [line.line for line in each.remedies] for each in found(crowded.HOST, "smt-shared-core")
    }
    assert lines == {f"guest g{n}": ["pinner plan"] for n in range(2, 7)}
    after = planned(crowded.HOST)
    assert found(after, "smt-shared-core") == []
    assert not planner.plan(crowded.HOST, "", Request()).roles.emulator & cpus("26-29")


def test_isolated_cpus_of_vcpu_pin_set_are_right_for_pinned_guests_alone():
    assert found(nova_sets.PINS_ALONE, "nova-shared-isolated") == []
    (floats,) = found(nova_sets.FLOATS, "nova-shared-isolated")
    (old,) = found(nova_sets.PINS_ALONE, "nova-old-option")
    for finding in (floats, old):
        assert all(line.where.endswith(", since Nova 20.0 (Train)") for line in finding.remedies), finding.remedies


def test_the_line_of_an_emulator_names_the_node_of_strict_memory():
    _, _, lines = one(strict_memory.HOST, "emulator-on-vcpus")
    assert lines == [f"virsh emulatorpin {strict_memory.FIREWALL.uuid} 3,39 --live"]
