"""Small settings of /proc/sys and /sys, weights of cgroups, and the room of a folder."""

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.reading import Storage

SETTINGS = (
    *(f"proc/sys/net/core/{name}" for name in ("netdev_budget", "netdev_budget_usecs", "netdev_max_backlog")),
    *(f"proc/sys/net/core/{name}" for name in ("rmem_max", "rmem_default", "wmem_max", "wmem_default", "somaxconn")),
    *(f"proc/sys/net/core/{name}" for name in ("rps_sock_flow_entries", "busy_poll")),
    *(f"proc/sys/net/ipv4/{name}" for name in ("tcp_rmem", "tcp_wmem", "udp_mem", "tcp_max_syn_backlog")),
    *(f"proc/sys/kernel/{name}" for name in ("numa_balancing", "sched_rt_runtime_us", "sched_rt_period_us")),
    *(f"proc/sys/vm/{name}" for name in ("swappiness", "zone_reclaim_mode", "stat_interval")),
    *(f"proc/sys/kernel/{name}" for name in ("timer_migration", "watchdog_cpumask", "nmi_watchdog")),
    *(f"sys/kernel/mm/ksm/{name}" for name in ("run", "pages_sharing", "merge_across_nodes")),
    *(f"sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag")),
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/virtual/workqueue/writeback/cpumask",
    "sys/bus/workqueue/devices/writeback/cpumask",
    "proc/irq/default_smp_affinity",
    "proc/swaps",
    "sys/module/rcutree/parameters/kthread_prio",
    "sys/module/kvm/parameters/halt_poll_ns",
)
"""The files that are read, if they are there."""
_WEIGHTS = 1024
"""The most guests whose weights are read."""


def read_settings(root: Path) -> Mapping[str, str]:
    """The content of the files that the host has, by path."""
    found = {path: files.text(root / path) for path in SETTINGS}
    return {path: text for path, text in found.items() if text is not None}


def read_weights(mount: Path, units: Iterable[str]) -> Mapping[str, int]:
    """cpu.weight of the top slices and of these cgroups, by path below the mount; empty without cgroup v2."""
    top = (path.parent.name for path in sorted(mount.glob("*.slice/cpu.weight")))
    paths = dict.fromkeys(chain(top, units))
    found = {path: files.number(mount / path / "cpu.weight") for path in list(paths)[:_WEIGHTS]}
    return {files.decoded(path): weight for path, weight in found.items() if weight is not None}


def read_storage(folders: Iterable[Path]) -> tuple[Storage, ...]:
    """The room of the file systems of these folders; a folder that does not exist is left out."""
    found = []
    for folder in folders:
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        block = state.f_frsize
        found.append(Storage(str(folder), state.f_blocks * block // 1024, state.f_bavail * block // 1024))
    return tuple(found)
