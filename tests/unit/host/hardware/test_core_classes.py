"""Which CPUs are on slower cores, from the kernel's files."""

from pathlib import Path

import pytest
from support.machines import NAMES, root_of

from pinner.host.hardware.sysfs import read_core_classes, read_topology
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
        "frequency",
        "speed-select",
        "speed-select-without-smt",
    ],
)
def test_slower_cores_are_found(tmp_path, files, threads, expected):
    folders = machine(tmp_path, files, len(threads))
    siblings = {cpu: TWO if count == 2 else ONE for cpu, count in enumerate(threads)}
    found = read_core_classes(tmp_path, folders, siblings)
    assert [found.get(cpu, 0) for cpu in folders] == (expected or [0] * len(folders))
    assert bool(found) == bool(expected)


@pytest.mark.skipif(HYBRID not in NAMES, reason="PINNER_MACHINES names no folder with this machine")
def test_the_captured_hybrid_machine_has_twelve_fast_and_eight_slow_cpus():
    top = read_topology(root_of(HYBRID))
    assert [str(cpus) for cpus in top.core_classes] == ["0-11", "12-19"]
