"""The caches of level 2 and higher, as sysfs has them."""

from support.roots import CPU, two_nodes, write

from pinner.host.hardware.sysfs import read_caches, read_topology


def index(cpu, number, level, size, shared, type_="Unified"):
    folder = f"{CPU}/cpu{cpu}/cache/index{number}"
    names = {"level": level, "size": size, "shared_cpu_list": shared, "type": type_}
    return {f"{folder}/{name}": f"{value}\n" for name, value in names.items() if value is not None}


def found(root):
    return [(cache.level, cache.size_kib, str(cache.cpus)) for cache in read_caches(root)]


def test_each_cache_is_listed_once(tmp_path):
    files = {}
    for cpu in range(7):
        pair = ",".join(map(str, sorted({cpu % 4, cpu % 4 + 4})))
        files |= index(cpu, 0, 1, "32K", pair, "Data")
        files |= index(cpu, 1, 1, "32K", pair, "Instruction")
        files |= index(cpu, 2, 2, "1280K", pair)
        files |= index(cpu, 3, 3, "28160K", "0-7")
    root = two_nodes(tmp_path, files)
    assert found(root) == [(2, 1280, "0,4"), (2, 1280, "1,5"), (2, 1280, "2,6"), (2, 1280, "3"), (3, 28160, "0-6")]
    assert read_topology(root).caches == read_caches(root)


def test_unknown_sizes_and_masks(tmp_path):
    files = (
        index(0, 0, 2, None, None)
        | index(1, 0, 2, "lots", "1-2")
        | index(3, 0, 3, "2M", "0-1")
        | index(4, 0, None, "1K", "4")
    )
    files[f"{CPU}/cpu0/cache/index0/shared_cpu_map"] = "00000001\n"
    assert found(two_nodes(tmp_path, files)) == [(2, 0, "0"), (2, 0, "1-2")]


def test_caches_are_read_again_when_other_cpus_are_online(tmp_path):
    root = two_nodes(tmp_path, index(0, 0, 2, "1M", "0,4") | index(4, 0, 2, "1M", "0,4"))
    assert found(root) == [(2, 1024, "0,4")]
    write(root, {f"{CPU}/online": "0-3\n"})
    assert found(root) == [(2, 1024, "0")]


def test_a_machine_without_caches(tmp_path):
    assert found(two_nodes(tmp_path)) == []
