"""The CPUs that Nova's own accounting gives to one guest alone are those that pinner takes out of its pools.

Nova's code chooses the CPUs for each flavor and image, and writes the definition. pinner reads nothing else.
"""

import re
from itertools import product

import pytest
from support.hosts import guest as made_up
from support.hosts import plain, snapshot
from support.roots import two_nodes

from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, cell_pins, pinned_by_nova
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import nova_cpus, shared_vcpus
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

UUID = "00000000-0000-4000-8000-000000000001"
WIDE = ("2-3,10-11", "0-1,4-9,12-15")
NARROW = ("0,8", "1-7,9-15")
"""One shared CPU on each node."""
DEDICATED, MIXED = {"hw:cpu_policy": "dedicated"}, {"hw:cpu_policy": "mixed"}
ISOLATE, SHARE = {"hw:emulator_threads_policy": "isolate"}, {"hw:emulator_threads_policy": "share"}
REALTIME, CELLS = {"hw:cpu_realtime": "yes"}, {"hw:numa_nodes": "2"}
UNEVEN = CELLS | {"hw:numa_cpus.0": "3", "hw:numa_mem.0": "256", "hw:numa_cpus.1": "0-2", "hw:numa_mem.1": "768"}
PINNED = {
    "dedicated": (DEDICATED, {}),
    "dedicated, two cells": (DEDICATED | CELLS, {}),
    "dedicated, uneven cells": (DEDICATED | UNEVEN, {}),
    "dedicated, huge pages": (DEDICATED | {"hw:mem_page_size": "2MB"}, {}),
    "dedicated, isolate": (DEDICATED | ISOLATE, {}),
    "dedicated, share": (DEDICATED | SHARE, {}),
    "dedicated, two cells, isolate": (DEDICATED | CELLS | ISOLATE, {}),
    "dedicated, threads isolate": (DEDICATED | CELLS | {"hw:cpu_thread_policy": "isolate"}, {}),
    "dedicated, threads require": (DEDICATED | {"hw:cpu_thread_policy": "require"}, {}),
    "dedicated, threads prefer, isolate": (DEDICATED | {"hw:cpu_thread_policy": "prefer"} | ISOLATE, {}),
    "dedicated, no hyperthreads": (DEDICATED | CELLS | {"trait:HW_CPU_HYPERTHREADING": "forbidden"}, {}),
    "dedicated, realtime": (DEDICATED | REALTIME | {"hw:cpu_realtime_mask": "^0"}, {}),
    "dedicated, all realtime": (DEDICATED | REALTIME | ISOLATE, {}),
    "dedicated, mask of the image": (DEDICATED | REALTIME, {"hw_cpu_realtime_mask": "^0-1"}),
    "mixed": (MIXED | {"hw:cpu_dedicated_mask": "0-2"}, {}),
    "mixed, without": (MIXED | {"hw:cpu_dedicated_mask": " ^3"}, {}),
    "mixed, two cells": (MIXED | CELLS | {"hw:cpu_dedicated_mask": "^0"}, {}),
    "mixed, isolate": (MIXED | ISOLATE | {"hw:cpu_dedicated_mask": "0-2"}, {}),
    "mixed, share": (MIXED | SHARE | {"hw:cpu_dedicated_mask": "1,2,3"}, {}),
    "mixed, uneven cells": (MIXED | UNEVEN | {"hw:cpu_dedicated_mask": "1-3"}, {}),
    "mixed, realtime": (MIXED | REALTIME | {"hw:cpu_realtime_mask": "^0-1"}, {}),
    "PCPU": ({"resources:PCPU": "4"}, {}),
    "PCPU of a group": ({"resources12:PCPU": "4"}, {}),
    "PCPU, isolate": ({"resources:PCPU": "5"} | ISOLATE, {}),
    "policy of the image": ({}, {"hw_cpu_policy": "dedicated"}),
    "policy and threads of the image": (CELLS, {"hw_cpu_policy": "dedicated", "hw_cpu_thread_policy": "isolate"}),
    "mixed policy of the image": ({"hw:cpu_dedicated_mask": "^0-1"}, {"hw_cpu_policy": "mixed"}),
    "dedicated, against the image": (DEDICATED, {"hw_cpu_policy": "shared"}),
    "PCI devices on any node": (DEDICATED | {"hw:pci_numa_affinity_policy": "preferred"}, {}),
}
FLOATING = {
    "no extra specs": ({}, {}),
    "shared": ({"hw:cpu_policy": "shared"}, {}),
    "shared, of the image": ({}, {"hw_cpu_policy": "shared"}),
    "VCPU": ({"resources:VCPU": "4"}, {}),
    "no PCPU": ({"resources:PCPU": "0"}, {}),
    "two cells": (CELLS, {}),
    "uneven cells": (UNEVEN, {}),
    "cells of the image": ({}, {"hw_numa_nodes": "2"}),
    "two cells, share": (CELLS | SHARE, {}),
    "huge pages": (CELLS | {"hw:mem_page_size": "large"}, {}),
    "persistent memory": (CELLS | {"hw:pmem": "4GB"}, {}),
    "locked memory": (CELLS | {"hw:mem_page_size": "small", "hw:locked_memory": "true"}, {}),
    "PCI devices on the same node": (CELLS | {"hw:pci_numa_affinity_policy": "required"}, {}),
}


def active(xml):
    found = domain_xml.parse(xml)
    return ActiveDomain(UUID, "i-1", "running", found, found)


def guest_of(domain, *, dedicated):
    """The guest as pinner reads it, whose threads have the affinities of their pins."""
    xml = domain.xml
    pins = [str(xml.vcpu_pins[vcpu]) for vcpu in xml.vcpus] if xml.vcpu_pins else []
    numa = GuestNuma(xml.cells, xml.memory, pins=cell_pins(domain))
    shared = shared_vcpus(xml.nova, len(xml.vcpus))
    more = {"nova": xml.nova, "numa": numa, "dedicated": dedicated, "shared_vcpus": shared}
    return made_up(1, len(xml.vcpus), CpuSet.parse("0-15"), pins=pins, **more)


@pytest.mark.parametrize(("specs", "properties"), PINNED.values(), ids=PINNED)
def test_pinner_takes_the_cpus_that_nova_counts_for_the_guest(defined, tmp_path, specs, properties):
    root, fitting = two_nodes(tmp_path), 0
    for sets, threads in product((WIDE, NARROW), (1, 2)):
        made = defined(4, specs, properties, *sets, threads)
        if made.get("refusal") == "NovaException: the guest does not fit":
            continue
        fitting += 1
        (found,) = pinned_by_nova(root, [active(made["xml"])])
        assert made["owned"]
        assert sorted(found.cpus) == made["owned"]
    assert fitting


@pytest.mark.parametrize(("specs", "properties"), FLOATING.values(), ids=FLOATING)
def test_no_cpu_of_another_guest_is_its_own(defined, tmp_path, specs, properties):
    made = defined(4, specs, properties, "2-5,10-13", "0-1,6-9,14-15")
    assert made["owned"] == []
    assert list(pinned_by_nova(two_nodes(tmp_path), [active(made["xml"])])) == []


def test_a_shared_cpu_of_a_mixed_guest_stays_in_the_pool(defined):
    """Its shared vCPU is pinned to one CPU, as if it had this CPU for itself."""
    specs, properties = PINNED["mixed, two cells"]
    made = defined(4, specs, properties, *NARROW)
    guest = guest_of(active(made["xml"]), dedicated=True)
    assert sorted(nova_cpus(guest, CpuSet.parse("0-15"))) == made["owned"]
    shared, dedicated = map(CpuSet.parse, NARROW)
    other = made_up(2, 1, CpuSet.parse("0-15"))
    host = snapshot(plain(16, 2), [guest, other], shared=shared, dedicated=dedicated)
    wanted = [want.cpus for want in plan(host, "s", Request()).wanted if want.target.kind == "vcpu"]
    assert wanted == [shared]


def test_before_nova_32_only_the_pins_tell(defined, tmp_path):
    """Then a single shared CPU of the node cannot be told from a dedicated one, and counts as one."""
    for name in ("dedicated", "dedicated, isolate", "mixed, isolate", "dedicated, realtime"):
        made = defined(4, *PINNED[name], *WIDE)
        newer = r"<nova:extraSpecs>.*?</nova:extraSpecs>|<nova:properties.*?(/>|</nova:properties>)"
        old = re.sub(newer, "", made["xml"], flags=re.DOTALL)
        assert "extraSpec" not in old
        (found,) = pinned_by_nova(two_nodes(tmp_path), [active(old)])
        assert sorted(found.cpus) == made["owned"], name
