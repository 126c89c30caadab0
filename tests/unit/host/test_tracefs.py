"""The instances of the kernel's tracing that killed processes left."""

import fcntl
import os

from pinner.host import tracefs


def test_only_the_instances_of_processes_that_ended_are_removed(tmp_path):
    instances = tmp_path / "sys/kernel/tracing/instances"
    left, used, foreign = (instances / name for name in ("pinner-1-2", "pinner-3-4", "perf"))
    for folder in (left, used, foreign):
        folder.mkdir(parents=True)
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    tracefs.remove_left(tmp_path)
    assert set(instances.iterdir()) == {used, foreign}
    os.close(lock)
    tracefs.remove_left(tmp_path)
    assert set(instances.iterdir()) == {foreign}


def test_a_host_without_tracing_has_no_instances(tmp_path):
    tracefs.remove_left(tmp_path)
