"""The NUMA parts of guests' definitions as Nova's own code writes them: flavors to XML, and pinner's reading of it."""

import pytest
from support.hosts import guest as made_up
from support.hosts import plain, snapshot
from support.roots import two_nodes

from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, binding_pins, pinned_by_nova, without_recorded_pins
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.plan.request import Request
from pinner.model.run.journal import RecordedPins
from pinner.planning.planner import plan

UUID = "00000000-0000-4000-8000-000000000001"
TWO_CELLS = {"hw:numa_nodes": "2"}


@pytest.fixture
def define(defined):
    """The definition that Nova writes for a flavor, on a host of nodes 0-7 and 8-15 with these CPU sets."""

    def define(extra_specs: dict[str, str], *, vcpus: int = 4, shared: str = "", dedicated: str = "") -> str:
        return defined(vcpus, extra_specs, {}, shared, dedicated)["xml"]

    return define


def numa_of(xml: str) -> tuple[list[tuple[str, tuple[int, ...], str]], dict[int, str], bool]:
    """Each cell's vCPUs, nodes and mode; each vCPU's pin; whether huge pages back the memory."""
    domain = domain_xml.parse(xml)
    cells = [(str(cell.vcpus), cell.memory.nodes, cell.memory.mode) for cell in domain.cells]
    return cells, {vcpu: str(pin) for vcpu, pin in domain.vcpu_pins.items()}, domain.huge_pages


@pytest.mark.parametrize(
    ("shared", "specs", "cells", "pins", "huge"),
    [
        ("", {"hw:numa_nodes": "2"}, [("0-1", (0,)), ("2-3", (1,))], ["0-7", "0-7", "8-15", "8-15"], False),
        ("2-7,10-15", {"hw:numa_nodes": "2"}, [("0-1", (0,)), ("2-3", (1,))], ["2-7"] * 2 + ["10-15"] * 2, False),
        ("10-15", {"hw:numa_nodes": "1"}, [("0-3", (1,))], ["10-15"] * 4, False),
        ("10-15", {"hw:mem_page_size": "large"}, [("0-3", (1,))], ["10-15"] * 4, True),
        (
            "",
            {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_mem.0": "256"}
            | {"hw:numa_cpus.1": "1,2,3", "hw:numa_mem.1": "768", "hw:mem_page_size": "2048"},
            [("0", (0,)), ("1-3", (1,))],
            ["0-7", "8-15", "8-15", "8-15"],
            True,
        ),
    ],
    ids=["two cells", "shared set", "one cell", "huge pages", "uneven cells with huge pages"],
)
def test_pinner_reads_the_cells_that_nova_writes(define, shared, specs, cells, pins, huge):
    xml = define(specs, shared=shared)
    expected = [(vcpus, nodes, "strict") for vcpus, nodes in cells]
    assert numa_of(xml) == (expected, dict(enumerate(pins)), huge)
    domain = domain_xml.parse(xml)
    assert domain.memory.mode == "strict"
    assert set(domain.memory.nodes) == {node for _, nodes in cells for node in nodes}
    assert domain.emulator_pin == CpuSet.parse(",".join(pins))
    assert sum(cell.memory_kib for cell in domain.cells) == 1 << 20
    assert domain.nova.extra_specs == specs


def read(tmp_path, xml: str) -> Guest:
    """The guest as pinner reads it, with made-up threads that may use all CPUs of their nodes."""
    defined = domain_xml.parse(xml)
    active = ActiveDomain(UUID, "i-1", "running", defined, defined)
    assert list(pinned_by_nova(two_nodes(tmp_path), [active])) == []
    numa = GuestNuma(defined.cells, defined.memory, pins=defined.vcpu_pins)
    return made_up(1, 4, CpuSet.parse("0-15"), numa=numa, nova=defined.nova, persistent=True, memory={0: 1, 1: 1})


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_plan_keeps_the_cells_that_nova_placed(define, tmp_path, strategy):
    guest = read(tmp_path, define(TWO_CELLS))
    made = plan(snapshot(plain(16, 2), [guest]), "s", Request(strategy))
    assert [str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"] == ["2-7"] * 2 + ["10-15"] * 2


def test_a_pin_that_pinner_recorded_binds_no_vcpu_but_the_memory_does(define, tmp_path):
    guest = read(tmp_path, define(TWO_CELLS))
    own = RecordedPins(frozenset({guest.uuid}), frozenset({(guest.uuid, "vcpu", 0, CpuSet.parse("0-7"))}))
    assert sorted(binding_pins(guest, own)) == [1, 2, 3]
    made = plan(snapshot(plain(16, 2), [without_recorded_pins(guest, own)]), "s", Request())
    assert [str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"] == ["2-7"] * 2 + ["10-15"] * 2


@pytest.mark.parametrize(
    "specs", [{"hw:cpu_policy": "dedicated"}, {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0,2"}]
)
def test_a_guest_with_dedicated_cpus_stays_untouched_whatever_its_cells(define, tmp_path, specs):
    xml = domain_xml.parse(define(TWO_CELLS | specs, shared="2-3,10-11", dedicated="4-7,12-15"))
    (guest,) = pinned_by_nova(two_nodes(tmp_path), [ActiveDomain(UUID, "i-1", "running", xml, xml)])
    assert guest.cpus <= CpuSet.parse("4-7,12-15")


def test_a_flavor_without_cells_binds_nothing(define):
    domain = domain_xml.parse(define({}, shared="2-7"))
    assert (domain.cells, domain.memory, domain.huge_pages, domain.pins) == ((), None, False, {})
