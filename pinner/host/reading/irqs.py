"""Interrupts: their counts, their CPUs and their devices.

Sources: the kernel's Documentation/core-api/irq/irq-affinity.rst, and Documentation/filesystems/proc.rst (1.2.2).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files
from pinner.host.settings.interrupts import MAX_IRQS, devices_by_irq, is_managed, name_of
from pinner.model.cpuset import CpuSet
from pinner.model.reading import Irq

_CPU = re.compile(r"CPU(\d{1,5})")


class _Row(NamedTuple):
    counts: Mapping[int, int]
    text: str
    """The chip, the kind and the drivers' names."""


def read_irqs(root: Path) -> tuple[Irq, ...]:
    """The interrupts with a number, ascending; none where the kernel does not list them."""
    rows = parse_interrupts(files.text(root / "proc/interrupts") or "")
    devices = devices_by_irq(root)
    found = []
    for number in sorted(rows)[:MAX_IRQS]:
        folder = root / "proc/irq" / str(number)
        cpus = files.cpu_list(folder / "smp_affinity_list")
        if cpus is None:
            continue
        effective = files.cpu_list(folder / "effective_affinity_list") or CpuSet()
        row = rows[number]
        name = name_of(root, number) or _name(row.text)
        found.append(Irq(number, name, devices.get(number, ""), cpus, effective, row.counts, is_managed(root, number)))
    return tuple(found)


def parse_interrupts(text: str) -> dict[int, _Row]:
    """The rows of /proc/interrupts that have a number. The heading names the online CPUs; ids may have gaps."""
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
    """The drivers' names: the words after the chip, the hardware's number and the kind of trigger."""
    return " ".join(text.split()[2:])
