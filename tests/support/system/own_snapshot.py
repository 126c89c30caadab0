"""Snapshots of this machine, for agents of tests."""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pinner.host.inventory import take_snapshot
from pinner.model.snapshot import Snapshot


def snapshot_of(pids: Collection[int], host: str = "h1") -> Snapshot:
    """A snapshot of this machine with these processes only: other tests restrict processes of their own meanwhile."""
    taken = take_snapshot(Path("/"), host, None, sample_seconds=0.0, now=lambda: datetime.now(UTC))
    return replace(taken, processes=tuple(each for each in taken.processes if each.pid in pids))
