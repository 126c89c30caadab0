"""The drawing of a host, line for line."""

from dataclasses import replace

import pytest
from rich.text import Text
from support.hosts import GIB, interleaved, plain, topology

from pinner.cli.show.draw import DEDICATED, EMULATOR, HOUSEKEEPING, ISOLATED, OFFLINE, UNUSED, VCPU, drawing, shared
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Cache, Device, HugePages, Node

OVERLAP = shared([VCPU, HOUSEKEEPING, EMULATOR])


def detailed(made, *, lost=""):
    """The topology with an L3 domain per node, some memory in use, and no node and socket for the CPUs ``lost``."""

    def at(cpu):
        return replace(cpu, node=None, socket=None) if cpu.id in CpuSet.parse(lost) else replace(cpu, l3=cpu.node)

    nodes = tuple(replace(node, free_kib=12 * GIB) for node in made.nodes)
    return replace(made, cpus=tuple(map(at, made.cpus)), nodes=nodes, l3_domains=tuple(n.cpus for n in nodes))


def paint(topology, **sets):
    """The role of each CPU, such as ``housekeeping="0-3"``; all other CPUs are unused or offline."""
    roles = {"housekeeping": HOUSEKEEPING, "emulator": EMULATOR, "vcpu": VCPU, "overlap": OVERLAP}
    roles |= {"isolated": ISOLATED, "dedicated": DEDICATED}
    uses = {cpu.id: UNUSED if cpu.online else OFFLINE for cpu in topology.cpus}
    for name, cpus in sets.items():
        uses |= dict.fromkeys(CpuSet.parse(cpus), roles[name])
    return uses


def lines(topology, views, width=80):
    drawn = drawing(topology, views, width)
    assert all(isinstance(line, Text) for line in drawn)
    return "\n".join(line.plain for line in drawn)


TWO_CPUS = """\
h1 now

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  0* 1*

* housekeeping + emulator + vCPU    2  0-1"""


def test_two_cpus():
    host = detailed(plain(2))
    assert lines(host, [("h1 now", paint(host, overlap="0-1"))]) == TWO_CPUS


INTERLEAVED = """\
planned

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  [ 0H 16H] [ 2H 18H] [ 4E 20E] [ 6E 22E]
                 [ 8V 24V] [10V 26V] [12V 28V] [14V 30V]

node 1  64.0 GiB, 12.0 GiB free
  socket 1 L3 1  [ 1H 17H] [ 3H 19H] [ 5E 21E] [ 7E 23E]
                 [ 9V 25V] [11V 27V] [13V 29V] [15V 31V]

H housekeeping    8  0-3,16-19
E emulator        8  4-7,20-23
V vCPU           16  8-15,24-31"""


def test_32_cpus_interleaved_with_siblings():
    host = detailed(interleaved(16))
    uses = paint(host, housekeeping="0-3,16-19", emulator="4-7,20-23", vcpu="8-15,24-31")
    assert lines(host, [("planned", uses)]) == INTERLEAVED


OFFLINE_CPUS = """\
h1 now

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  [0H 4I] [1V]

node 1  64.0 GiB, 12.0 GiB free
  socket 1 L3 1  [2D] [3. 7.]

no node
  offline  [5x] [6x]

H housekeeping         1  0
V vCPU                 1  1
I isolated             1  4
D dedicated by Nova    1  2
. unused               2  3,7
x offline              2  5-6"""


def test_every_role_has_a_letter_and_offline_cpus_have_no_node():
    host = detailed(topology({0: [[0, 4], [1, 5]], 1: [[2, 6], [3, 7]]}, offline="5-6"), lost="5-6")
    uses = paint(host, housekeeping="0", vcpu="1", isolated="4", dedicated="2")
    assert lines(host, [("h1 now", uses)]) == OFFLINE_CPUS


MEMORY_LESS = """\
h1 now

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  0. 1.

node 1  no memory
  socket 1 L3 1  2. 3.

node 5  94.0 GiB, 94.0 GiB free, no CPUs
node 9  no memory, no CPUs

. unused    4  0-3"""


def test_nodes_without_memory_or_cpus():
    host = detailed(plain(4, 2))
    bare = replace(host.nodes[1], memory_kib=0, free_kib=0)
    far = Node(5, CpuSet(), 94 * GIB, 94 * GIB, {})
    host = replace(host, nodes=(host.nodes[0], bare, far, Node(9, CpuSet(), 0, 0, {})))
    assert lines(host, [("h1 now", paint(host))]) == MEMORY_LESS


BESIDE = """\
now                               planned

node 0  64.0 GiB, 12.0 GiB free   node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  0V 1V 2V 3V        socket 0 L3 0  0H 1E 2V 3V

V vCPU    4  0-3                  H housekeeping    1  0
                                  E emulator        1  1
                                  V vCPU            2  2-3"""


def test_two_views_are_drawn_side_by_side_if_they_fit():
    host = detailed(plain(4))
    views = [("now", paint(host, vcpu="0-3")), ("planned", paint(host, housekeeping="0", emulator="1", vcpu="2-3"))]
    assert lines(host, views, 110) == BESIDE
    below = lines(host, views, 80)
    assert below.index("planned") > below.index("V vCPU    4  0-3")


@pytest.mark.parametrize("width", [50, 80, 100, 160, 240])
@pytest.mark.parametrize(
    "host",
    [detailed(plain(2)), detailed(interleaved(128, 8)), detailed(plain(512, 8))],
    ids=["2", "256", "512"],
)
def test_fits_the_width_and_shows_every_cpu(host, width):
    views = [("now", paint(host, overlap="0-1")), ("planned", paint(host, housekeeping="0", vcpu="1"))]
    drawn = [line.plain for line in drawing(host, views, width)]
    assert max(len(line) for line in drawn) <= width
    cells = [word.strip("[]") for line in drawn for word in line.split()]
    assert cells.count(f"{host.cpus[-1].id}.") == (2 if len(host.cpus) > 2 else 0)


def test_small_l3_domains_share_a_line():
    host = detailed(plain(16, 4))
    one = replace(host.nodes[0], cpus=host.online)
    host = replace(host, nodes=(one,), cpus=tuple(replace(cpu, node=0, socket=0) for cpu in host.cpus))
    drawn = lines(host, [("now", paint(host))])
    assert "  socket 0 L3 0   0.  1.  2.  3.  socket 0 L3 1   4.  5.  6.  7." in drawn


def test_a_hostile_title_is_escaped():
    host = detailed(plain(2))
    assert "\x1b" not in lines(host, [("h\x1b[2J\n1 now", paint(host))])


def test_only_the_cells_and_the_letters_of_the_legend_are_coloured():
    host = detailed(plain(2))
    drawn = drawing(host, [("now", paint(host, housekeeping="0", vcpu="1"))], 80)
    coloured = [
        (line.plain[span.start : span.end], span.style)
        for line in drawn
        for span in line.spans
        if " on " in str(span.style)
    ]
    assert not [line for line in drawn[1:] if line.style]
    assert coloured == [
        ("0H", HOUSEKEEPING.style),
        ("1V", VCPU.style),
        ("H", HOUSEKEEPING.style),
        ("V", VCPU.style),
    ]


DETAILED = """\
h1 now

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  0. 1.
  caches  2 L2 of 1.25 MiB, 1 L3 of 24 MiB shared with other nodes
  hugepages  512 of 2 MiB (500 free), 4 of 1.0 GiB (0 free)
  devices  eth0 (0000:02:00.0), 0000:00:1f.2 (storage), 0000:05:00.0
           (accelerator)

node 1  64.0 GiB, 12.0 GiB free
  socket 1 L3 1  2. 3.
  caches  1 L2 of unknown size, 1 L3 of 24 MiB shared with other nodes

. unused    4  0-3"""


def test_caches_huge_pages_and_devices_of_each_node():
    host = detailed(plain(4, 2))
    pages = (HugePages(2048, 512, 500), HugePages(1024**2, 4, 0), HugePages(64, 0, 0))
    caches = [(2, 1280, "0"), (2, 1280, "1"), (2, 0, "2-3"), (3, 24576, "0-3")]
    devices = (
        Device("pci", "0000:00:00.0", 0, "0600 8086:3c00"),
        Device("pci", "0000:00:1f.2", 0, "0106 8086:1d02"),
        Device("pci", "0000:02:00.0", 0, "0200 8086:1521"),
        Device("pci", "0000:05:00.0", 0, "1200 8086:225c"),
        Device("pci", "0000:06:00.0", None, "0200 8086:1521"),
        Device("net", "eth0", 0, "0000:02:00.0"),
        Device("net", "lo", None, ""),
    )
    host = replace(
        host,
        nodes=(replace(host.nodes[0], hugepages=pages), host.nodes[1]),
        caches=tuple(Cache(level, size, CpuSet.parse(cpus)) for level, size, cpus in caches),
        devices=devices,
    )
    assert lines(host, [("h1 now", paint(host))]) == DETAILED
    narrow = lines(host, [("h1 now", paint(host)), ("planned", paint(host))], 110)
    assert max(len(line) for line in narrow.splitlines()) <= 110


MEMORY_ONLY = """\
h1 now

node 0  64.0 GiB, 12.0 GiB free
  socket 0 L3 0  0. 1.
  node 3  94.0 GiB, 94.0 GiB free, no CPUs, distance 17

node 1  64.0 GiB, 12.0 GiB free
  socket 1 L3 1  2. 3.
  node 2  94.0 GiB, 94.0 GiB free, no CPUs, distance 14
  hugepages  8 of 2 MiB (8 free)

node 4  no memory, no CPUs

. unused    4  0-3"""


def test_a_memory_only_node_is_beside_its_nearest_node():
    host = detailed(plain(4, 2))
    near = [{0: 10, 1: 21, 2: 24, 3: 17, 4: 12}, {0: 21, 1: 10, 2: 14, 3: 17, 4: 31}]
    populated = tuple(replace(node, distances=near[node.id]) for node in host.nodes)
    only = [Node(id_, CpuSet(), 94 * GIB, 94 * GIB, {}) for id_ in (2, 3)]
    only[0] = replace(only[0], hugepages=(HugePages(2048, 8, 8),))
    host = replace(host, nodes=(*populated, *only, Node(4, CpuSet(), 0, 0, {})))
    assert lines(host, [("h1 now", paint(host))]) == MEMORY_ONLY


def test_the_only_node_has_the_devices_without_a_node():
    devices = (Device("net", "lo", None, ""), Device("net", "eth0", None, "virtio0"))
    drawn = lines(replace(detailed(plain(2)), devices=devices), [("now", paint(plain(2)))])
    assert "  devices  eth0 (virtio0)" in drawn.splitlines()
    assert "eth0" not in lines(replace(detailed(plain(2, 2)), devices=devices), [("now", paint(plain(2, 2)))])
