"""Settings of /proc/sys and /sys that no plan changes, weights of guests, and the room of a folder."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.reading import Storage

SETTINGS = (
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/net/core/rps_sock_flow_entries",
    *(f"sys/kernel/mm/ksm/{name}" for name in ("run", "pages_sharing")),
    *(f"sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag")),
    *(f"sys/devices/system/clocksource/clocksource0/{name}_clocksource" for name in ("current", "available")),
)
"""The files that are read, if they are there."""
_WEIGHTS = 1024
"""The most guests whose weights are read."""


def read_settings(root: Path) -> Mapping[str, str]:
    """The content of the files that the host has, by path."""
    texts = {path: files.text(root / path) for path in SETTINGS}
    return {path: text for path, text in texts.items() if text is not None}


def read_weights(mount: Path, units: Iterable[str]) -> Mapping[str, int]:
    """cpu.weight of these cgroups, by path below the mount; empty without cgroup v2."""
    weights = {path: files.number(mount / path / "cpu.weight") for path in list(dict.fromkeys(units))[:_WEIGHTS]}
    return {path: weight for path, weight in weights.items() if weight is not None}


def read_storage(folders: Iterable[Path]) -> tuple[Storage, ...]:
    """The room of the file systems of these folders; a folder that does not exist is left out."""
    rooms = []
    for folder in folders:
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        block = state.f_frsize
        rooms.append(Storage(str(folder), state.f_blocks * block // 1024, state.f_bavail * block // 1024))
    return tuple(rooms)
