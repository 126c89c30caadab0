"""hwloc's lstopo, a program that reads the same machine independently of pinner."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from lxml import etree

from pinner.model.cpuset import CpuSet

OPTIONS = ("--disallowed", "--filter", "all", "--of", "xml")


class Lstopo:
    """lstopo's report of one machine: its objects by type, their CPU sets and the node distances."""

    def __init__(self, xml: bytes) -> None:
        self.tree = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, load_dtd=False))

    @classmethod
    def of(cls, root: Path) -> Self:
        """The report of a captured machine."""
        command = ["lstopo", "--input", str(root), "--if", "fsroot", *OPTIONS]
        done = subprocess.run(command, capture_output=True, check=True, env=os.environ | {"HWLOC_HIDE_ERRORS": "2"})
        return cls(done.stdout)

    def all(self, kind: str) -> list[etree._Element]:
        return self.tree.findall(f".//object[@type='{kind}']")

    def sets(self, kind: str) -> set[CpuSet]:
        return {cpus(element) for element in self.all(kind)}

    def distances(self) -> dict[int, dict[int, int]]:
        matrix = self.tree.find("distances2[@name='NUMALatency']")
        if matrix is None:
            return {}
        ids = numbers(matrix.findall("indexes"))
        values = iter(numbers(matrix.findall("u64values")))
        return {here: {there: next(values) for there in ids} for here in ids}


def cpus(element: etree._Element, name: str = "cpuset") -> CpuSet:
    words = [int(word or "0", 16) for word in element.attrib[name].split(",")]
    mask = sum(word << 32 * place for place, word in enumerate(reversed(words)))
    return CpuSet.of(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def numbers(elements: Iterable[etree._Element]) -> list[int]:
    return [int(value) for element in elements for value in element.text.split()]
