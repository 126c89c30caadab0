"""Idle states, pressure and the times of threads.

Sources: the kernel's Documentation/admin-guide/pm/cpuidle.rst, accounting/psi.rst and scheduler/sched-stats.rst.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from pinner.host.kernel import files, procfs
from pinner.model.reading import IdleState, ThreadTimes

_RESOURCES = ("cpu", "memory", "io")


def read_idle(root: Path) -> tuple[IdleState, ...]:
    """The idle states of all CPUs; none where the kernel has no cpuidle."""
    folder = root / "sys/devices/system/cpu"
    return tuple(
        IdleState(
            cpu=cpu,
            number=number,
            name=files.text(state / "name") or state.name,
            latency_us=files.number(state / "latency") or 0,
            is_disabled=bool(files.number(state / "disable")),
            time_us=files.number(state / "time") or 0,
        )
        for cpu, path in files.numbered(folder, "cpu").items()
        for number, state in files.numbered(path / "cpuidle", "state").items()
    )


def read_spare(root: Path) -> Mapping[int, int]:
    """The milliseconds in which each CPU ran no thread (/proc/stat): idle, waiting for disks, in interrupts, stolen."""
    found = {}
    for line in (files.text(root / "proc/stat") or "").splitlines():
        name, *times = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = sum(map(int, times[3:8])) * 1000 // procfs.HERTZ
    return found


def read_pressure(root: Path, mount: Path) -> Mapping[str, float]:
    """The stall of the last ten seconds in per cent, by resource and kind; empty without PSI.

    ``mount`` is that of cgroup v2, where the host's services have a slice.
    """
    files_of = {resource: root / "proc/pressure" / resource for resource in _RESOURCES}
    files_of |= {"system.slice.cpu": mount / "system.slice/cpu.pressure"}
    found = {}
    for name, path in files_of.items():
        for line in (files.text(path) or "").splitlines():
            words = line.split()
            try:
                found[f"{name}.{words[0]}"] = float(words[1].removeprefix("avg10="))
            except (IndexError, ValueError):
                continue
    return found


def read_times(root: Path, tids: Collection[int]) -> Mapping[int, ThreadTimes]:
    """The times of these threads. A thread that has ended, and a kernel without schedstat, give none."""
    found = {}
    for tid in tids:
        try:
            # /proc/TID is there for each thread, though it is not listed.
            words = files.read(f"{root}/proc/{tid}/schedstat").split()
            found[tid] = ThreadTimes(int(words[0]), int(words[1]))
        except (OSError, ValueError, IndexError):
            continue
    return found


def read_swapped(root: Path, pids: Collection[int]) -> Mapping[int, int]:
    """The swapped KiB of these processes (VmSwap); a process that has ended is left out."""
    found = {}
    for pid in pids:
        for line in (files.text(root / "proc" / str(pid) / "status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "VmSwap" and value.split()[:1] and value.split()[0].isdecimal():
                found[pid] = int(value.split()[0])
    return found
