"""Which CPUs are on slower cores, from the kernel's files."""

from pathlib import Path

import pytest
from support.machines import NAMES, root_of

from pinner.host.hardware.core_classes import contradictions, read_clusters, read_core_classes
from pinner.host.hardware.sysfs import read_topology
from pinner.model.cpuset import CpuSet

HYBRID = "20em64t-hybrid-1p6c2t+2ca4co1t"


def machine(root: Path, files: dict[str, str], cpus: int) -> dict[int, Path]:
    """The folders of so many CPUs, with these files below the root."""
    folders = {cpu: root / f"sys/devices/system/cpu/cpu{cpu}" for cpu in range(cpus)}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for name, content in files.items():
        (root / "sys/devices" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "sys/devices" / name).write_text(content)
    return folders


def values(name: str, *numbers: int) -> dict[str, str]:
    return {f"system/cpu/cpu{cpu}/{name}": f"{value}\n" for cpu, value in enumerate(numbers)}


UNITS = {"cpu_core/cpus": "0-1\n", "cpu_atom/cpus": "2-3\n"}
TWO, ONE = CpuSet.of([0, 1]), CpuSet.of([0])


@pytest.mark.parametrize(
    ("files", "threads", "expected"),
    [
        ({}, [1, 1], []),
        (values("cpu_capacity", 1024, 1024, 446, 446), [1, 1, 1, 1], [0, 0, 1, 1]),
        (values("cpu_capacity", 160, 498, 1024), [1, 1, 1], [2, 1, 0]),
        (values("cpu_capacity", 1024, 1000, 990), [1, 1, 1], []),
        (values("cpu_capacity", 1024, 1024), [1, 1], []),
        ({"cpu_core/cpus": "0-1\n", "cpu_atom/cpus": "2-3\n"}, [2, 2, 1, 1], [0, 0, 1, 1]),
        ({"cpu_atom/cpus": "0-3\n"}, [1, 1, 1, 1], []),
        (values("cpu_capacity", 1024, 971, 971, 971), [1, 1, 1, 1], []),
        (UNITS | values("cpu_capacity", 1024, 971, 950, 950), [1, 1, 1, 1], [0, 0, 1, 1]),
        (UNITS | values("cpu_capacity", 1024, 971, 598, 400), [1, 1, 1, 1], [0, 0, 1, 2]),
        (UNITS | values("cpu_capacity", 446, 446, 1024, 1024), [1, 1, 1, 1], [0, 0, 1, 1]),
        (UNITS | {"cpu_atom/cpus": "2\n", "cpu_lowpower/cpus": "3\n"}, [1, 1, 1, 1], [0, 0, 1, 2]),
        (values("cpufreq/base_frequency", 19, 19, 14, 14), [2, 2, 1, 1], [0, 0, 1, 1]),
        (values("cpufreq/base_frequency", 27, 27, 21, 21), [2, 2, 2, 2], []),
        (values("cpufreq/base_frequency", 27, 27, 21, 21), [1, 1, 1, 1], []),
    ],
    ids=[
        "nothing",
        "big-little",
        "three-clusters",
        "nearly-alike",
        "alike",
        "intel-units",
        "only-e-cores",
        "favoured-core",
        "fast-e-cores",
        "lp-e-cores",
        "contradiction",
        "lp-e-unit",
        "frequency",
        "speed-select",
        "speed-select-without-smt",
    ],
)
def test_slower_cores_are_found(tmp_path, files, threads, expected):
    folders = machine(tmp_path, files, len(threads))
    siblings = {cpu: TWO if count == 2 else ONE for cpu, count in enumerate(threads)}
    found = read_core_classes(tmp_path, folders, siblings, CpuSet())
    assert [found.get(cpu, 0) for cpu in folders] == (expected or [0] * len(folders))
    assert bool(found) == bool(expected)


@pytest.mark.skipif(HYBRID not in NAMES, reason="PINNER_MACHINES names no folder with this machine")
def test_the_captured_hybrid_machine_has_twelve_fast_and_eight_slow_cpus():
    top = read_topology(root_of(HYBRID))
    assert [str(cpus) for cpus in top.core_classes] == ["0-11", "12-19"]


def test_e_cores_without_the_l3_of_the_others_are_a_class(tmp_path):
    """Core Ultra 185H: CPUs 20-21 are on the SoC tile."""
    folders = machine(tmp_path, {"cpu_core/cpus": "0-11\n", "cpu_atom/cpus": "12-21\n"}, 22)
    siblings = {cpu: TWO if cpu < 12 else ONE for cpu in folders}
    classes = read_core_classes(tmp_path, folders, siblings, CpuSet.parse("0-19"))
    assert [[cpu for cpu in folders if classes[cpu] == rank] for rank in range(3)] == [
        list(range(12)),
        list(range(12, 20)),
        [20, 21],
    ]


CAPACITIES = values("cpu_capacity", 414, 414, 414, 414, 1024, 1024, 1024, 1024)
RK3588 = ("0-3", "0-3", "0-3", "0-3", "4-5", "4-5", "6-7", "6-7")


def topology_files(name: str, values: tuple[str, ...]) -> dict[str, str]:
    return {f"system/cpu/cpu{cpu}/topology/{name}": f"{value}\n" for cpu, value in enumerate(values)}


UNKNOWN = topology_files("cluster_cpus_list", tuple(map(str, range(8))))
"""The kernel gives a CPU without a cluster itself alone."""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (CAPACITIES | topology_files("cluster_cpus_list", RK3588), "0-3 4-5 6-7"),
        (CAPACITIES | UNKNOWN | topology_files("package_cpus_list", RK3588), "0-3 4-5 6-7"),
        (CAPACITIES | topology_files("core_siblings_list", RK3588), "0-3 4-5 6-7"),
        (CAPACITIES | UNKNOWN | topology_files("package_cpus_list", ("0-7",) * 8), "0-3 4-7"),
        (CAPACITIES, "0-3 4-7"),
        (topology_files("cluster_cpus_list", RK3588), ""),
        (values("cpu_capacity", *[1024] * 8) | topology_files("cluster_cpus_list", RK3588), ""),
        (CAPACITIES | {"cpu_core/cpus": "4-7\n", "cpu_atom/cpus": "0-3\n"}, ""),
    ],
    ids=["cluster", "package", "siblings", "one-package", "class", "alike", "alike-capacities", "intel"],
)
def test_the_clusters_of_big_little_are_found(tmp_path, files, expected):
    folders = {cpu: tmp_path / f"sys/devices/system/cpu/cpu{cpu}" for cpu in range(8)}
    for name, content in files.items():
        (tmp_path / "sys/devices" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/devices" / name).write_text(content)
    assert " ".join(map(str, read_clusters(tmp_path, folders, CpuSet.of(folders)))) == expected


@pytest.mark.parametrize(("capacities", "named"), [((446, 446, 1024, 1024), True), ((1024, 971, 598, 598), False)])
def test_capacities_that_contradict_the_units_are_named(tmp_path, capacities, named):
    folders = machine(tmp_path, UNITS | values("cpu_capacity", *capacities), 4)
    assert contradictions(tmp_path, folders) == (
        (
            "cpu_capacity contradicts cpu_core and cpu_atom: CPUs 2-3 of cpu_atom have up to 1024, CPUs 0-1 of "
            "cpu_core have 446; pinner takes those of cpu_core for the faster ones",
        )
        if named
        else ()
    )
