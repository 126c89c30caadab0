import pytest
from data.field.packages import OPTERON_6272, UNNUMBERED
from support.roots import CPU, NODE, two_nodes, write

from pinner.host.hardware.sysfs import overlaps, read_fingerprint, read_topology
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.topology import HugePages


def strings(sets):
    return [str(cpus) for cpus in sets]


def cpu(topology, id_):
    return next(cpu for cpu in topology.cpus if cpu.id == id_)


def test_ids_are_those_of_the_kernel(tmp_path):
    topology = read_topology(two_nodes(tmp_path))
    assert [(node.id, str(node.cpus), dict(node.distances)) for node in topology.nodes] == [
        (0, "0,2,4,6", {0: 10, 2: 21}),
        (2, "1,3,5", {0: 21, 2: 10}),
    ]
    assert [(node.memory_kib, node.free_kib) for node in topology.nodes] == [(2048, 1024)] * 2
    five = cpu(topology, 5)
    assert (five.node, five.socket, five.die, five.core, five.l3, str(five.siblings)) == (2, 1, None, 0, None, "1,5")
    assert (str(topology.online), str(topology.offline)) == ("0-6", "7")
    assert (topology.kernel.release, topology.kernel.command_line) == ("6.1.0-13-amd64", "quiet isolcpus=3")


def test_an_offline_cpu_has_no_node_or_core(tmp_path):
    seven = cpu(read_topology(two_nodes(tmp_path)), 7)
    assert (seven.online, seven.node, seven.socket, seven.core, str(seven.siblings)) == (False, None, None, None, "7")


def topology_files(cpu: int, **values: object) -> dict[str, str]:
    return {f"{CPU}/cpu{cpu}/topology/{name}": f"{value}\n" for name, value in values.items()}


@pytest.mark.parametrize("name", UNNUMBERED)
@pytest.mark.parametrize("file", ["core_siblings", "core_siblings_list", "package_cpus_list"])
def test_packages_without_numbers_are_those_of_lscpu(tmp_path, name, file):
    case, online = UNNUMBERED[name], CpuSet.parse(UNNUMBERED[name].online)
    files = {f"{CPU}/online": case.online}
    for siblings in map(CpuSet.parse, case.siblings):
        content = siblings if file.endswith("list") else f"{siblings.bits:x}"
        for id_ in siblings & online:
            files |= topology_files(id_, physical_package_id=-1, core_id=id_) | topology_files(id_, **{file: content})
    sockets = read_topology(write(tmp_path, files)).sockets
    assert sorted(set(sockets.values())) == list(range(case.packages))
    for number, siblings in enumerate(map(CpuSet.parse, case.siblings)):
        assert {sockets[id_] for id_ in siblings & online} == {number}


def test_a_package_without_a_number_gets_none_of_another(tmp_path):
    files = topology_files(0, physical_package_id=3, core_siblings_list=0)
    files |= topology_files(1, physical_package_id=-1, core_siblings_list=1) | topology_files(2, core_id=0)
    assert dict(read_topology(write(tmp_path, files)).sockets) == {0: 3, 1: 4}


def test_the_two_cores_of_a_module_are_cores_and_siblings(tmp_path):
    files = {}
    for id_, (package, core, siblings) in OPTERON_6272.items():
        files |= topology_files(id_, physical_package_id=package, core_id=core, thread_siblings_list=siblings)
    topology = read_topology(write(tmp_path, files))
    assert (topology.core_count, len(set(topology.online_cores.values()))) == (64, 32)


def test_isolated_cpus_nohz_full_and_governor(tmp_path):
    topology = read_topology(
        two_nodes(
            tmp_path,
            {
                f"{CPU}/isolated": "3\n",
                f"{CPU}/nohz_full": "(null)\n",
                f"{CPU}/cpu2/cpufreq/scaling_governor": "performance\n",
            },
        )
    )
    assert (str(topology.isolated), str(topology.nohz_full)) == ("3", "")
    assert [cpu.governor for cpu in topology.cpus] == [None, None, "performance", *[None] * 5]


def test_masks_are_read_where_older_kernels_have_no_lists(tmp_path):
    for id_, mask in ((0, "00000000,00000005"), (2, "00000000,00000005"), (1, "00000002")):
        write(tmp_path, {f"{CPU}/cpu{id_}/topology/thread_siblings": mask, f"{CPU}/cpu{id_}/online": "1\n"})
    write(tmp_path, {f"{CPU}/cpu1/online": "0\n", f"{NODE}/node5/cpumap": "7\n"})
    topology = read_topology(tmp_path)
    assert (str(topology.online), str(topology.offline)) == ("0,2", "1")
    assert strings(cpu.siblings for cpu in topology.cpus) == ["0,2", "1", "0,2"]
    assert [(node.id, str(node.cpus), node.memory_kib) for node in topology.nodes] == [(5, "0,2", 0)]


def test_a_level_3_cache_is_found_by_level_and_not_by_index(tmp_path):
    files = {}
    for id_ in range(7):
        files[f"{CPU}/cpu{id_}/cache/index0/level"] = "1\n"
        files[f"{CPU}/cpu{id_}/cache/index2/level"] = "3\n"
        files[f"{CPU}/cpu{id_}/cache/index2/shared_cpu_map"] = "000000a5\n" if id_ in (0, 2, 5) else "0000005a\n"
    topology = read_topology(two_nodes(tmp_path, files))
    assert strings(topology.l3_domains) == ["0,2,5", "1,3-4,6"]
    assert [cpu.l3 for cpu in topology.cpus] == [0, 1, 0, 1, 1, 0, 1, None]


def test_no_cpu_is_in_two_level_3_domains(tmp_path):
    files = {}
    for id_, shared in ((0, "0-3"), (4, "2-6")):
        files[f"{CPU}/cpu{id_}/cache/index3/level"] = "3"
        files[f"{CPU}/cpu{id_}/cache/index3/shared_cpu_list"] = shared
    assert strings(read_topology(two_nodes(tmp_path, files)).l3_domains) == ["0-3", "4-6"]


@pytest.mark.parametrize("wrong", ["256", "9" * 30, "9" * 5000, "\u0669", "-1"])
def test_a_distance_that_no_kernel_has_is_not_known(tmp_path, wrong):
    """A snapshot with such a number was saved, and could not be read again."""
    topology = read_topology(two_nodes(tmp_path, {f"{NODE}/node0/distance": f"10 {wrong}\n"}))
    assert dict(topology.nodes[0].distances) == {}


@pytest.mark.fault(40)
def test_nodes_without_cpus_or_memory_and_huge_pages(tmp_path):
    topology = read_topology(
        two_nodes(
            tmp_path,
            {
                f"{NODE}/node9/cpulist": "\n",
                f"{NODE}/node9/meminfo": "Node 9 MemTotal:       4096 kB\nNode 9 MemFree:  4095 kB\n",
                f"{NODE}/node9/hugepages/hugepages-2048kB/nr_hugepages": "2\n",
                f"{NODE}/node9/hugepages/hugepages-2048kB/free_hugepages": "1\n",
                f"{NODE}/node9/hugepages/hugepages-1048576kB/nr_hugepages": "broken\n",
                f"{NODE}/node9/hugepages/elsewhere/nr_hugepages": "5\n",
                f"{NODE}/node10/cpulist": "\n",
                f"{NODE}/node10/meminfo": "Node 10 MemTotal: 0 kB\n",
            },
        )
    )
    nine, ten = topology.nodes[2:]
    assert (nine.id, nine.cpus, nine.memory_kib, nine.free_kib) == (9, CpuSet(), 4096, 4095)
    assert nine.hugepages == (HugePages(2048, 2, 1),)
    assert (ten.id, ten.cpus, ten.memory_kib, ten.distances) == (10, CpuSet(), 0, {})
    # The rows of nodes 0 and 2 have two values for four nodes, so the values cannot be assigned to nodes.
    assert [dict(node.distances) for node in topology.nodes] == [{}] * 4


def test_a_cpu_belongs_to_the_first_node_that_lists_it(tmp_path):
    root = two_nodes(tmp_path, {f"{NODE}/node2/cpulist": "0-1,3,5\n"})
    topology = read_topology(root)
    assert strings(node.cpus for node in topology.nodes) == ["0,2,4,6", "1,3,5"]
    assert overlaps(root) == ("node 2 lists CPUs 0 of node 0; pinner uses the first node that lists a CPU",)


def test_a_kernel_without_numa_has_one_node(tmp_path):
    write(tmp_path, {f"{CPU}/cpu0/online": "1", f"{CPU}/cpu3/online": "1"})
    write(tmp_path, {"proc/meminfo": "MemTotal:  500 kB\nMemFree:  20 kB\nHugePages_Total: 0\n"})
    write(tmp_path, {f"sys/kernel/mm/hugepages/hugepages-2048kB/{name}_hugepages": "4" for name in ("nr", "free")})
    (node,) = read_topology(tmp_path).nodes
    assert (node.id, str(node.cpus), node.memory_kib, node.free_kib, node.distances) == (0, "0,3", 500, 20, {})
    assert node.hugepages == (HugePages(2048, 4, 4),)


@pytest.mark.parametrize("files", [{}, {"proc/cpuinfo": "x"}, {f"{CPU}/online": "0-3"}, {f"{CPU}/present": "0-3"}])
def test_a_root_without_cpus_is_refused(tmp_path, files):
    with pytest.raises(Invalid, match="cpu0") as error:
        read_topology(write(tmp_path, files))
    assert error.value.details["field"] == "root"
    assert error.value.details["value"] == str(tmp_path)


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe\0", b"junk\n", b"-7\n", b"9" * 30, b"0-8192\n", b"ff,zz\n"])
def test_malformed_files_are_unknown_values(tmp_path, junk):
    root = two_nodes(tmp_path)
    for path in sorted((root / "sys").rglob("*")):
        if path.is_file():
            path.write_bytes(junk)
    topology = read_topology(root)
    assert len(topology.cpus) == 8
    assert [node.id for node in topology.nodes] == [0, 2]
    assert topology.fingerprint


def test_devices_have_their_nodes(tmp_path):
    root = two_nodes(tmp_path)
    card = "sys/devices/pci0000:00/0000:3b:00.0"
    write(root, {f"{card}/class": "0x020000\n", f"{card}/vendor": "0x8086\n", f"{card}/device": "0x1572\n"})
    write(root, {f"{card}/numa_node": "2\n", "sys/devices/pci0000:00/0000:00:1f.0/numa_node": "-1\n"})
    pci, net = root / "sys/bus/pci/devices", root / "sys/class/net"
    pci.mkdir(parents=True)
    for address in ("0000:3b:00.0", "0000:00:1f.0"):
        (pci / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    (root / card / "net/eth0").mkdir(parents=True)
    (root / card / "net/eth0/device").symlink_to("../..")
    net.mkdir(parents=True)
    (net / "eth0").symlink_to("../../devices/pci0000:00/0000:3b:00.0/net/eth0")
    write(root, {"sys/class/net/<b>\x1b[31m\n/address": "x", "sys/class/net/bonding_masters": "file, no interface"})
    write(root, {"sys/class/net/lo/address": "00:00"})
    found = [(device.kind, device.name, device.node, device.description) for device in read_topology(root).devices]
    assert found == [
        ("pci", "0000:00:1f.0", None, ""),
        ("pci", "0000:3b:00.0", 2, "0200 8086:1572"),
        ("net", "<b>\x1b[31m\n", None, ""),
        ("net", "eth0", 2, "0000:3b:00.0"),
        ("net", "lo", None, ""),
    ]


def test_the_interface_of_a_virtio_card_has_the_address_and_the_node_of_its_pci_function(tmp_path):
    root = two_nodes(tmp_path)
    card = "sys/devices/pci0000:00/0000:00:04.0"
    write(root, {f"{card}/numa_node": "2\n", f"{card}/virtio3/net/eth0/mtu": "1500\n"})
    links = {
        "sys/bus/pci/devices/0000:00:04.0": "../../../devices/pci0000:00/0000:00:04.0",
        "sys/class/net/eth0": "../../devices/pci0000:00/0000:00:04.0/virtio3/net/eth0",
        f"{card}/virtio3/net/eth0/device": "../../../virtio3",
    }
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    (eth0,) = (device for device in read_topology(root).devices if device.kind == "net")
    assert (eth0.name, eth0.node, eth0.description) == ("eth0", 2, "0000:00:04.0")


def test_read_fingerprint_equals_the_fingerprint_of_the_topology(tmp_path):
    root = two_nodes(tmp_path)
    assert read_fingerprint(root) == read_topology(root).fingerprint


@pytest.mark.parametrize(
    ("cpulist", "cpumap"),
    [
        (b"1,3,5\n\0", b"0000002a\n\0"),  # as Linux 5.15-rc writes them
        (b"1,3\0,5\n", b"0000002a\n"),
        (b"\0", b"0000002a\n"),
        (b"1,3,", b"0000002a\n"),
        (b"\xff\xfe", b"0000002a\n"),
    ],
)
def test_a_cpu_list_with_a_nul_or_garbage_is_read_by_its_mask(tmp_path, cpulist, cpumap):
    files = {f"{NODE}/node2/cpulist": cpulist, f"{NODE}/node2/cpumap": cpumap}
    for name, folder in (("core_cpus", "topology"), ("shared_cpu", "cache/index3")):
        suffixes = ("_list", "") if name == "core_cpus" else ("_list", "_map")
        files |= {
            f"{CPU}/cpu1/{folder}/{name}{suffix}": content
            for suffix, content in zip(suffixes, (cpulist, cpumap), strict=True)
        }
    files[f"{CPU}/cpu1/cache/index3/level"] = b"3\n"
    read = read_topology(two_nodes(tmp_path, files))
    (node,) = (node for node in read.nodes if node.id == 2)
    assert str(node.cpus) == "1,3,5"
    assert str(read.cpus[1].siblings) == "1,3,5"
    assert [str(domain) for domain in read.l3_domains] == ["1,3,5"]


def test_a_nul_at_the_end_of_online_is_no_cpu(tmp_path):
    read = read_topology(two_nodes(tmp_path, {f"{CPU}/online": b"0-6\n\0", f"{CPU}/present": b"0-7\n\0"}))
    assert (str(read.online), str(read.offline)) == ("0-6", "7")
