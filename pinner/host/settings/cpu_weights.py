"""The CPU weight of the slice of all guests: read from the kernel, and set through systemd, which owns it; an undo
leaves no line in systemd's files. Sources: systemd.resource-control(5) (CPUWeight=), admin-guide/cgroup-v2.rst
(cpu.weight), scheduler/sched-design-CFS.rst (cpu.shares of v1)."""

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pinner.host.kernel import beneath
from pinner.host.kernel.cgroups import cpu_weight, set_property
from pinner.host.kernel.kernel import mount_of
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Invalid
from pinner.model.settings.cpu_weights import DEFAULT, SLICE, WEIGHT
from pinner.model.states import Number

CONTROL = "run/systemd/system.control"
"""The folder of ``systemctl set-property --runtime``."""
_DROP_INS, _DROP_IN = f"{SLICE}.d", "50-CPUWeight.conf"
_EMPTY = re.compile(r"(?:#[^\n]*\n)*\[Slice\]\nCPUWeight=", re.ASCII)
"""A drop-in that only unsets the weight."""
_MOST = 10_000
_SHOW = ("systemctl", "show", "--property=CPUWeight", "--value", "--", SLICE)
_SYSTEMD_SECONDS = 5
_READ_BACK_SECONDS, _STEP = 10, 0.05
"""After the end of the last guest, the slice has its cgroup, with the former weight, until systemd removes it."""


def _shown() -> str:
    try:
        return subprocess.run(_SHOW, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS).stdout
    except subprocess.CalledProcessError as error:
        raise ApplyFailed(str(WEIGHT), f"systemd does not tell it: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ApplyFailed(str(WEIGHT), f"systemd does not answer: {error}") from None


def read_cpu_weights(root: Path) -> Mapping[str, int]:
    weight = cpu_weight(mount_of(root, "cpu"), SLICE)
    return {} if weight is None else {SLICE: weight}


def weight_of(root: Path, target: Target) -> Number:
    """Where the slice has no cgroup, the weight that systemd will give it for the next guest."""
    _require_known(target)
    weight = cpu_weight(mount_of(root, "cpu"), SLICE)
    if weight is not None:
        return Number(weight)
    text = _shown().strip()
    if text == "idle":
        return Number(0)  # as the kernel shows it
    # Without a weight, systemd says "[not set]", or shows the largest number of 64 bits.
    known = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))
    return Number(int(text)) if known else DEFAULT


def set_weight(
    root: Path,
    target: Target,
    weight: Number,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """The default removes the setting. Where the kernel shows another weight, ApplyFailed is raised, and systemd has
    none."""
    _require_known(target)
    if not 1 <= weight.value <= _MOST:
        raise Invalid("CPU weight", str(weight), f"a number from 1 to {_MOST}")
    try:
        _ask(root, weight)
        deadline = clock() + _READ_BACK_SECONDS
        while (now := weight_of(root, target)) != weight:
            if clock() > deadline:
                raise ApplyFailed(str(target), f"asked for {weight}, the kernel says {now}", granted=str(now))
            sleep(_STEP)
    except ApplyFailed:
        # A request that systemd has not answered in time may still be waiting there, and this one comes after it.
        if weight != DEFAULT:
            with suppress(ApplyFailed):
                _ask(root, DEFAULT)
        raise


def _ask(root: Path, weight: Number) -> None:
    set_property(SLICE, f"CPUWeight={'' if weight == DEFAULT else weight}")
    if weight == DEFAULT:
        _remove_drop_in(root)


def _remove_drop_in(root: Path) -> None:
    """Its empty CPUWeight= would hide an administrator's in a file of lower rank."""
    try:
        with beneath.folder(root / CONTROL, _DROP_INS) as folder:
            if not _EMPTY.fullmatch(beneath.read(folder, _DROP_IN) or ""):
                return
            os.unlink(_DROP_IN, dir_fd=folder)
        (root / CONTROL / _DROP_INS).rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            why = f"the weight is {DEFAULT} again, but systemd's file {_DROP_IN} stays: {error.strerror}"
            hint = f"; does the unit of the agent have ReadWritePaths=/{CONTROL}?" if error.errno == errno.EROFS else ""
            raise ApplyFailed(str(WEIGHT), why + hint) from None


def _require_known(target: Target) -> None:
    if target.key != WEIGHT.key:
        raise Invalid("CPU weight", str(target)[:80], f"that of {SLICE}")


ROW: HostRow[Number] = HostRow(
    lambda access, target: weight_of(access.root, target),
    lambda access, target, state: set_weight(access.root, target, state),
    lambda facts: read_cpu_weights(facts.root),
)
