"""Idle states, pressure and the times of threads.

Sources: the kernel's Documentation/admin-guide/pm/cpuidle.rst, accounting/psi.rst and scheduler/sched-stats.rst.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from pinner.host import files
from pinner.model.reading import IdleState, ThreadTimes

_RESOURCES = ("cpu", "memory", "io")


def read_idle(root: Path) -> tuple[IdleState, ...]:
    """The idle states of all CPUs; none where the kernel has no cpuidle."""
    folder = root / "sys/devices/system/cpu"
    return tuple(
        IdleState(
            cpu=cpu,
            name=files.text(state / "name") or state.name,
            latency_us=files.number(state / "latency") or 0,
            is_disabled=bool(files.number(state / "disable")),
            time_us=files.number(state / "time") or 0,
        )
        for cpu, path in files.numbered(folder, "cpu").items()
        for state in files.numbered(path / "cpuidle", "state").values()
    )


def read_pressure(root: Path) -> Mapping[str, float]:
    """The stall of the last ten seconds in per cent, by resource and kind; empty without PSI."""
    found = {}
    for resource in _RESOURCES:
        for line in (files.text(root / "proc/pressure" / resource) or "").splitlines():
            words = line.split()
            try:
                found[f"{resource}.{words[0]}"] = float(words[1].removeprefix("avg10="))
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
