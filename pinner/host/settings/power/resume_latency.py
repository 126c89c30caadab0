"""How long each CPU may take to wake (admin-guide/pm/cpuidle.rst, ABI/testing/sysfs-devices-power)."""

import errno
import re
from contextlib import AbstractContextManager
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings.power.governors import LACKS
from pinner.host.settings.row import HostRow, folder_of, written
from pinner.model.change import Target
from pinner.model.cpuset import MAX_CPUS
from pinner.model.errors import ApplyFailed, Invalid
from pinner.model.settings.power import WakeLimit
from pinner.model.states import Word

_FOLDER = "sys/devices/system/cpu"
_FILE = "pm_qos_resume_latency_us"
_LIMIT = re.compile(r"n/a|\d{1,10}", re.ASCII)
_CPU = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_HINTS = {errno.EROFS: LACKS}


def read_limits(root: Path) -> tuple[WakeLimit, ...]:
    """Empty where the kernel has no such limits (before Linux 4.12)."""
    return tuple(
        WakeLimit(cpu, Word(limit), _slowest(folder / "cpuidle"))
        for cpu, folder in files.numbered(root / _FOLDER, "cpu").items()
        if cpu < MAX_CPUS and _LIMIT.fullmatch(limit := files.text(folder / "power" / _FILE) or "")
    )


def _slowest(folder: Path) -> int:
    """Microseconds."""
    states = files.numbered(folder, "state").values()
    return max(
        (files.number(each / "latency") or 0 for each in states if not files.number(each / "disable")), default=0
    )


def limit_of(root: Path, target: Target) -> Word:
    with _opened(root, target) as folder:
        return _read(folder, target)


def set_limit(root: Path, target: Target, limit: Word) -> None:
    if not _LIMIT.fullmatch(limit.word):
        raise Invalid("resume latency", limit.word[:80], "microseconds, 0 or n/a")
    with _opened(root, target) as folder, written(target, limit, lambda: _read(folder, target), _HINTS):
        beneath.write(folder, _FILE, limit.word)


def _read(folder: int, target: Target) -> Word:
    if (word := beneath.read(folder, _FILE)) is None:
        raise ApplyFailed(str(target), "the kernel does not tell it")
    return Word(word)


def _opened(root: Path, target: Target) -> AbstractContextManager[int]:
    """Raises Gone, Invalid."""
    if target.part is not None or not _CPU.fullmatch(target.owner):
        raise Invalid("resume latency", str(target)[:80], "that of a CPU, by its number")
    return folder_of(target, root / _FOLDER, f"cpu{target.owner}/power")


ROW: HostRow[Word] = HostRow(
    lambda access, target: limit_of(access.root, target),
    lambda access, target, state: set_limit(access.root, target, state),
    lambda facts: read_limits(facts.root),
)
