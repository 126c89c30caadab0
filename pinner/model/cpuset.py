"""A set of CPU numbers in the kernel's grammar (``0-3,8``, ``0-31:2/8``; Documentation/admin-guide/kernel-parameters),
with Nova's exclusions (``0-7,^3``)."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import compress, count
from typing import Any

from pinner.model.errors import Invalid

MAX_CPUS = 8192
"""The largest NR_CPUS of any kernel build (x86 MAXSMP)."""
MAX_LENGTH = 5 * MAX_CPUS
"""Characters of a list that names each CPU; the kernel's lists have at most half."""

_WORD = 32
_PART = re.compile(
    r"(?P<not>\^)?(?P<first>\d{1,6})(?:-(?P<last>\d{1,6})(?::(?P<used>\d{1,6})/(?P<group>\d{1,6}))?)?", re.ASCII
)
_FEW = 8
"""So few CPUs are found faster one by one."""
_ONE = ord("1")
_FLAGS = bytes.maketrans(b"01", b"\0\1")
_GRAMMAR = "a CPU list such as 0-3,8 or 0-15,^4"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CpuSet:
    """``str()`` gives the kernel's list form. It is one integer, because a plan compares thousands of sets."""

    bits: int = 0
    """Bit n is CPU n."""

    @classmethod
    def of(cls, ids: Iterable[int]) -> "CpuSet":
        """Raises Invalid for a number that no CPU can have."""
        if not (cpus := list(ids)):
            return cls()
        if wrong := [cpu for cpu in (min(cpus), max(cpus)) if not 0 <= cpu < MAX_CPUS]:
            raise Invalid("cpus", wrong[0], f"CPU numbers from 0 to {MAX_CPUS - 1}")
        digits = bytearray(b"0") * (max(cpus) + 1)
        for cpu in cpus:
            digits[~cpu] = _ONE
        return cls(int(digits, 2))

    @staticmethod
    @cache
    def one(cpu: int) -> "CpuSet":
        return CpuSet(1 << cpu)

    @classmethod
    def parse(cls, text: str, field: str = "cpus") -> "CpuSet":
        """The empty string is the empty set. Raises Invalid with ``field`` and the wrong part."""
        return _read(text, field)

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self)

    @property
    def lowest(self) -> int:
        """-1 for no CPU."""
        return (self.bits & -self.bits).bit_length() - 1

    def __str__(self) -> str:
        return _written(self.bits)

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"

    def mask(self) -> str:
        """Words of 32 CPUs in hexadecimal, the highest first (``00000080,0000000f``)."""
        words = [f"{self.bits >> first & 0xFFFFFFFF:08x}" for first in range(0, max(self.bits.bit_length(), 1), _WORD)]
        return ",".join(reversed(words))

    def __iter__(self) -> Iterator[int]:
        if len(self) <= _FEW:
            return iter(_each(self.bits))
        digits = f"{self.bits:b}"[::-1]
        return compress(count(), digits.encode().translate(_FLAGS))

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and self.bits >> cpu & 1 == 1

    def __eq__(self, other: object) -> bool:
        return self.bits == other.bits if isinstance(other, CpuSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.bits)

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.bits | other.bits)

    def __and__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.bits & other.bits)

    def __sub__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet(self.bits & ~other.bits)

    def __le__(self, other: "CpuSet") -> bool:
        return self.bits & other.bits == self.bits

    def __lt__(self, other: "CpuSet") -> bool:
        return self <= other and self.bits != other.bits

    def isdisjoint(self, other: "CpuSet") -> bool:
        return not self.bits & other.bits

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        """JSON has a string. pydantic calls this, so that it is not imported here."""
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": _read},
            "schema": handler(str),
            "serialization": {"type": "to-string"},
        }


def union(sets: Iterable[CpuSet]) -> CpuSet:
    bits = 0
    for cpus in sets:
        bits |= cpus.bits
    return CpuSet(bits)


def _each(bits: int) -> list[int]:
    numbers = []
    while bits:
        numbers.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return numbers


@lru_cache(maxsize=512)
def _written(bits: int) -> str:
    runs, start = [], 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        start, bits = start + skipped, bits >> skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        runs.append(f"{start}" if length == 1 else f"{start}-{start + length - 1}")
        start, bits = start + length, bits >> length
    return ",".join(runs)


@lru_cache(maxsize=512)
def _read(text: str, field: str = "cpus") -> CpuSet:
    """Each text is read once: thousands of threads share a few masks."""
    if len(text) > MAX_LENGTH:
        raise Invalid(field, text, f"{_GRAMMAR} of at most {MAX_LENGTH} characters; this one has {len(text)}")
    included = excluded = named = 0
    for part in text.strip().split(",") if text.strip() else ():
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise Invalid(field, text, f"{_GRAMMAR}; {part.strip()!r} is neither a number nor a range")
        bits = _expand(match, text, field)
        if (named := named + bits.bit_count()) > 2 * MAX_CPUS:
            raise Invalid(field, text, f"{_GRAMMAR}; its ranges overlap and name more than {2 * MAX_CPUS} CPUs")
        if match["not"]:
            excluded |= bits
        else:
            included |= bits
    return CpuSet(included & ~excluded)


def _expand(match: re.Match[str], text: str, field: str) -> int:
    first = int(match["first"])
    last = int(match["last"] or first)
    if last < first:
        raise Invalid(field, text, f"{_GRAMMAR}; the range {match.group()} runs backwards")
    if last >= MAX_CPUS:
        raise Invalid(field, text, f"{_GRAMMAR}; no CPU has a number of {MAX_CPUS} or more")
    every = (1 << last + 1) - (1 << first)
    if match["group"] is None:
        return every
    used, group = int(match["used"]), int(match["group"])
    if not 0 < used <= group:
        raise Invalid(field, text, f"{_GRAMMAR}; {match.group()} must use between 1 and {group} of each group")
    return every & sum((1 << used) - 1 << start for start in range(first, last + 1, group))
