"""The frequency governors below /sys/devices/system/cpu/cpufreq (admin-guide/pm/cpufreq.rst): one for CPUs whose
frequency changes together."""

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings.row import HostRow, folder_of, written
from pinner.model.change import Target
from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.machine.topology import FrequencyDomain
from pinner.model.states import Governor

FOLDER = "sys/devices/system/cpu/cpufreq"
CPUS, _GOVERNOR = "related_cpus", "scaling_governor"
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,15}")
"""Shorter than CPUFREQ_NAME_LEN."""
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


def read_governors(root: Path, of_cpus: Mapping[int, str]) -> tuple[FrequencyDomain, ...] | None:
    """Domains with an online CPU; ``of_cpus`` has the governors of these. None on a captured machine, which does not
    say for which CPUs."""
    folders = files.numbered(root / FOLDER, "policy")
    domains = []
    for number, folder in folders.items():
        cpus = parse(files.text(folder / CPUS)) or CpuSet()
        governor = next((of_cpus[cpu] for cpu in cpus if cpu in of_cpus), "")
        if _NAME.fullmatch(governor):
            domains.append(FrequencyDomain(number, cpus, Governor(governor)))
    return tuple(domains) if domains or not folders else None


def governor_of(root: Path, target: Target) -> Governor:
    """Raises ApplyFailed where all its CPUs are offline."""
    with domain(root, target) as folder:
        return _read(folder, target)


def set_governor(root: Path, target: Target, governor: Governor) -> None:
    if not _NAME.fullmatch(governor.name):
        raise Invalid("governor", governor.name[:80], "the name of a governor")
    with domain(root, target) as folder, written(target, governor, lambda: _read(folder, target), _HINTS):
        beneath.write(folder, _GOVERNOR, governor.name)


def _read(folder: int, target: Target) -> Governor:
    return Governor(read_word(folder, _GOVERNOR, target))


def read_word(folder: int, file: str, target: Target) -> str:
    if (word := beneath.read(folder, file)) is None:
        raise _unread(target)
    return word


def parse(text: str | None) -> CpuSet | None:
    words = (text or "").split()
    if not words or not all(_NUMBER.fullmatch(word) and int(word) < MAX_CPUS for word in words):
        return None
    return CpuSet.of(map(int, words))


@contextmanager
def domain(root: Path, target: Target) -> Iterator[int]:
    """Raises Gone, also where it has other CPUs than the target's, ApplyFailed, Invalid."""
    if target.part is None or target.part < 0:
        raise Invalid(target.kind, str(target)[:80], "CPUs, and the number of their frequency policy")
    with folder_of(target, root / FOLDER, f"policy{target.part}") as folder:
        cpus = parse(beneath.read(folder, CPUS))
        if cpus is None:
            raise _unread(target)
        if str(cpus) != target.owner:
            raise Gone(str(target))
        yield folder


def _unread(target: Target) -> ApplyFailed:
    return ApplyFailed(str(target), "the kernel does not tell it; are all its CPUs offline?")


LACKS = "; the unit of the agent lacks ReadWritePaths=/sys/devices/system/cpu: renew it with pinner-manage setup-host"
_HINTS = {
    errno.EROFS: LACKS,
    errno.EINVAL: "; does the kernel have this governor?",
}

ROW: HostRow[Governor] = HostRow(
    lambda access, target: governor_of(access.root, target),
    lambda access, target, state: set_governor(access.root, target, state),
    lambda facts: read_governors(facts.root, facts.governors),
)
