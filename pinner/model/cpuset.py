"""A set of CPU numbers: read, written and combined.

The grammar is the kernel's (``0-3,8``, ``0-31:2/8``; Documentation/admin-guide/kernel-parameters) together with
Nova's exclusions (``0-7,^3``).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from pinner.model.errors import Invalid

MAX_CPUS = 8192
"""The largest NR_CPUS of any kernel build (x86 MAXSMP); a number at or above it is a typing error."""
MAX_LENGTH = 5 * MAX_CPUS
"""The longest list in characters: every CPU by itself. A list that the kernel writes has at most half of them."""

_WORD = 32
"""Bits of a word in the kernel's masks."""
_PART = re.compile(
    r"(?P<not>\^)?(?P<first>\d{1,6})(?:-(?P<last>\d{1,6})(?::(?P<used>\d{1,6})/(?P<group>\d{1,6}))?)?", re.ASCII
)
_GRAMMAR = "a CPU list such as 0-3,8 or 0-15,^4"


@dataclass(frozen=True, slots=True)
class CpuSet:
    """An immutable set of CPU numbers; ``str()`` gives the kernel's list form, the empty string for no CPU."""

    ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, ids: Iterable[int]) -> "CpuSet":
        """The set of these numbers."""
        return cls(frozenset(ids))

    @classmethod
    def parse(cls, text: str, field: str = "cpus") -> "CpuSet":
        """Read a list; the empty string is the empty set.

        Raises Invalid, naming ``field`` and the part that does not parse.
        """
        return cls(_read(text, field))

    def __str__(self) -> str:
        return _written(self.ids)

    def mask(self) -> str:
        """The kernel's mask form: words of 32 CPUs in hexadecimal, the highest first (``00000080,0000000f``)."""
        bits = sum(1 << cpu for cpu in self.ids)
        words = [f"{bits >> first & 0xFFFFFFFF:08x}" for first in range(0, max(bits.bit_length(), 1), _WORD)]
        return ",".join(reversed(words))

    def __iter__(self) -> Iterator[int]:
        """The numbers in ascending order."""
        return iter(sorted(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, cpu: object) -> bool:
        return cpu in self.ids

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids | other.ids)

    def __and__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids & other.ids)

    def __sub__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.ids - other.ids)

    def __le__(self, other: "CpuSet") -> bool:
        """Whether every CPU of this set is in the other."""
        return self.ids <= other.ids

    def __lt__(self, other: "CpuSet") -> bool:
        """Whether this set is within the other and smaller."""
        return self.ids < other.ids

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """Written as a string wherever a value is turned into JSON (pydantic calls this; nothing is imported)."""
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": cls.parse},
            "schema": handler(str),
            "serialization": {"type": "to-string"},
        }


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """All the CPUs of all the sets."""
    return CpuSet(frozenset().union(*(cpus.ids for cpus in sets)))


@lru_cache(maxsize=512)
def _written(ids: frozenset[int]) -> str:
    """The kernel's list form. A snapshot writes the same few masks thousands of times."""
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in _runs(ids))


def _runs(ids: frozenset[int]) -> Iterator[tuple[int, int]]:
    ordered = sorted(ids)
    if not ordered:
        return
    start = ordered[0]
    for here, following in pairwise(ordered):
        if following != here + 1:
            yield start, here
            start = following
    yield start, ordered[-1]


@lru_cache(maxsize=128)
def _read(text: str, field: str) -> frozenset[int]:
    """The CPUs of a list. A host's thousands of threads share a few masks: each is read once, and equal ones are one
    object, which is quick to compare."""
    if len(text) > MAX_LENGTH:
        raise Invalid(field, text, f"{_GRAMMAR} of at most {MAX_LENGTH} characters; this one has {len(text)}")
    included: set[int] = set()
    excluded: set[int] = set()
    named = 0
    for part in text.strip().split(",") if text.strip() else ():
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise Invalid(field, text, f"{_GRAMMAR}; {part.strip()!r} is neither a number nor a range")
        cpus = _expand(match, text, field)
        if (named := named + len(cpus)) > 2 * MAX_CPUS:
            raise Invalid(field, text, f"{_GRAMMAR}; its ranges overlap and name more than {2 * MAX_CPUS} CPUs")
        (excluded if match["not"] else included).update(cpus)
    return frozenset(included - excluded)


def _expand(match: re.Match[str], text: str, field: str) -> Sequence[int]:
    """The CPUs of a number or a range."""
    first = int(match["first"])
    last = int(match["last"] or first)
    if last < first:
        raise Invalid(field, text, f"{_GRAMMAR}; the range {match.group()} runs backwards")
    if last >= MAX_CPUS:
        raise Invalid(field, text, f"{_GRAMMAR}; no CPU has a number of {MAX_CPUS} or more")
    if match["group"] is None:
        return range(first, last + 1)
    used, group = int(match["used"]), int(match["group"])
    if not 0 < used <= group:
        raise Invalid(field, text, f"{_GRAMMAR}; {match.group()} must use between 1 and {group} of each group")
    return [cpu for start in range(first, last + 1, group) for cpu in range(start, min(start + used, last + 1))]
