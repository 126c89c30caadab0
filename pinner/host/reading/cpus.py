"""Idle states, pressure, interrupts, times of CPUs and threads (admin-guide/pm/cpuidle.rst, accounting/psi.rst,
scheduler/sched-stats.rst, filesystems/proc.rst 1.2.2)."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files, procfs
from pinner.host.settings.irqs import MAX_IRQS, name_of
from pinner.model.reading import IdleState, IrqCounts, ThreadTimes

_RESOURCES = ("cpu", "memory", "io")


def read_idle(root: Path) -> tuple[IdleState, ...]:
    """Empty without cpuidle."""
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
    """Milliseconds without a thread (/proc/stat): idle, waiting for disks, in interrupts, stolen."""
    found = {}
    for line in (files.text(root / "proc/stat") or "").splitlines():
        name, *times = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = sum(map(int, times[3:8])) * 1000 // procfs.HERTZ
    return found


def read_pressure(root: Path, mount: Path) -> Mapping[str, float]:
    """Stall of the last ten seconds in per cent, by resource and kind; empty without PSI. ``mount`` is cgroup v2's."""
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
    """Ended threads, and all without schedstat, are left out."""
    found = {}
    for tid in tids:
        try:
            # /proc/TID is there for each thread, though it is not listed.
            times = procfs.parse_schedstat(files.read(f"{root}/proc/{tid}/schedstat"))
        except OSError:
            continue
        if times:
            found[tid] = ThreadTimes(*times)
    return found


def read_swapped(root: Path, pids: Collection[int]) -> Mapping[int, int]:
    """KiB (VmSwap); ended processes are left out."""
    found = {}
    for pid in pids:
        for line in (files.text(root / "proc" / str(pid) / "status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "VmSwap" and value.split()[:1] and value.split()[0].isdecimal():
                found[pid] = int(value.split()[0])
    return found


_CPU = re.compile(r"CPU(\d{1,5})")


class _Row(NamedTuple):
    counts: Mapping[int, int]
    text: str
    """Chip, kind and drivers' names."""


def read_irq_counts(root: Path) -> tuple[IrqCounts, ...]:
    """Interrupts with a number, ascending."""
    rows = parse_interrupts(files.text(root / "proc/interrupts") or "")
    return tuple(
        IrqCounts(number, name_of(root, number) or _name(rows[number].text), rows[number].counts)
        for number in sorted(rows)[:MAX_IRQS]
    )


def parse_interrupts(text: str) -> dict[int, _Row]:
    """Rows of /proc/interrupts with a number. The heading names the online CPUs; ids may have gaps."""
    lines = text.splitlines()
    cpus = [int(match[1]) for match in _CPU.finditer(lines[0])] if lines else []
    return {number: row for line in lines[1:] for number, row in _row(line, cpus)}


def _row(line: str, cpus: list[int]) -> Iterator[tuple[int, _Row]]:
    label, colon, rest = line.partition(":")
    words = rest.split(None, len(cpus))
    counts = words[: len(cpus)]
    if colon and label.strip().isdecimal() and len(counts) == len(cpus) and all(map(str.isdecimal, counts)):
        taken = {cpu: int(count) for cpu, count in zip(cpus, counts, strict=True) if count != "0"}
        yield int(label), _Row(taken, words[len(cpus)].strip() if len(words) > len(cpus) else "")


def _name(text: str) -> str:
    """The words after the chip, the hardware's number and the kind of trigger."""
    return " ".join(text.split()[2:])
