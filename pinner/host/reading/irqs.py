"""How often interrupts came (/proc/interrupts).

Source: the kernel's Documentation/filesystems/proc.rst (1.2.2).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import files
from pinner.host.settings.irqs import MAX_IRQS, name_of
from pinner.model.reading import IrqCounts

_CPU = re.compile(r"CPU(\d{1,5})")


class _Row(NamedTuple):
    counts: Mapping[int, int]
    text: str
    """The chip, the kind and the drivers' names."""


def read_irq_counts(root: Path) -> tuple[IrqCounts, ...]:
    """The counts of the interrupts with a number, ascending; none where the kernel does not list them."""
    rows = parse_interrupts(files.text(root / "proc/interrupts") or "")
    return tuple(
        IrqCounts(number, name_of(root, number) or _name(rows[number].text), rows[number].counts)
        for number in sorted(rows)[:MAX_IRQS]
    )


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
