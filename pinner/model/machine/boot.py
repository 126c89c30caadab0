"""The kernel's command line, and its arguments that isolate CPUs (admin-guide/kernel-parameters.rst)."""

import re

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.machine.topology import Topology

_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_LAST = re.compile(r"\bN\b")
_FLAGS = ("nohz", "managed_irq", "domain")


def words(command_line: str) -> tuple[list[str], list[str]]:
    """Those for the kernel; and those for init, which begin with ``--``."""
    every = _WORD.findall(command_line)
    end = every.index("--") if "--" in every else len(every)
    return every[:end], every[end:]


def name_of(word: str) -> str:
    """The kernel treats - and _ alike."""
    return word.partition("=")[0].replace("-", "_")


def arguments(command_line: str) -> dict[str, str]:
    """The last one where a name is repeated."""
    return {name_of(word): word.partition("=")[2].strip('"') for word in words(command_line)[0]}


def isolcpus_flags(topology: Topology) -> frozenset[str]:
    return frozenset(arguments(topology.kernel.command_line).get("isolcpus", "").split(",")) & {*_FLAGS}


def is_isolated_by_tuned(topology: Topology) -> bool:
    """tuned's profile cpu-partitioning keeps processes and interrupts off CPUs while it runs."""
    return "tuned.non_isolcpus" in arguments(topology.kernel.command_line)


def argument_cpus(topology: Topology, name: str) -> CpuSet:
    """Also absent CPUs of an argument such as isolcpus=domain,4-N. ``N``: the last CPU; ``all``: 0-N; 0-7:1/4: 0, 4."""
    last = max(topology.online | topology.offline, default=0)
    parts = arguments(topology.kernel.command_line).get(name, "").split(",")
    numbers = (_LAST.sub(str(last), "0-N" if part == "all" else part) for part in parts)
    try:
        return union(_range(part) for part in numbers if part[:1].isdecimal())
    except (Invalid, ValueError, ZeroDivisionError):
        return CpuSet()


def isolated_cpus(topology: Topology) -> CpuSet:
    """The CPUs that isolcpus takes from the scheduler: not with the flags managed_irq and nohz alone."""
    flags = isolcpus_flags(topology)
    return argument_cpus(topology, "isolcpus") if not flags or "domain" in flags else CpuSet()


def _range(part: str) -> CpuSet:
    range_, colon, groups = part.partition(":")
    cpus = CpuSet.parse(range_)
    if not colon:
        return cpus
    used, _, size = groups.partition("/")
    return CpuSet.of(cpu for cpu in cpus if (cpu - cpus.lowest) % int(size) < int(used))


def argument(topology: Topology, name: str, cpus: CpuSet, *needed: str) -> str:
    """The argument ``name`` for ``cpus`` with this boot's flags and ``needed``. isolcpus without flags means domain; a
    new one has managed_irq, too."""
    if not cpus:
        return f"no {name}"
    flags = _flags(topology, frozenset(needed)) if name == "isolcpus" else frozenset()
    return f"{name}={','.join((*(flag for flag in _FLAGS if flag in flags), str(cpus)))}"


def _flags(topology: Topology, needed: frozenset[str]) -> frozenset[str]:
    if "isolcpus" not in arguments(topology.kernel.command_line):
        return needed | {"managed_irq"} if "domain" in needed else needed
    if given := isolcpus_flags(topology):
        return given | needed
    return needed | {"domain"} if needed - {"domain"} else frozenset()
