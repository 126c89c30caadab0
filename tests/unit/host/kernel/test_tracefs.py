"""The kernel's tracing: the events of a trace, and the instances that killed processes left."""

import fcntl
import os
import tracemalloc

import pytest
from support.values import cpus

from pinner.host.kernel import tracefs


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


LINE = " a-12 [000] d..2. 1000.{:06}: sched_switch: prev_comm=a prev_pid=12 prev_prio=120 prev_state=S ==> "
LINE += "next_comm=dae\rmon next_pid={} next_prio=120\n"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """What is written to the files of an instance, whose trace has 30,000 events. The kernel makes the files."""
    found = {}
    (tmp_path / "sys/kernel/tracing/instances").mkdir(parents=True)
    monkeypatch.setattr(tracefs, "_write", lambda file, value: found.update({file.name: value}))
    return found


def fill(root):
    (folder,) = (root / "sys/kernel/tracing/instances").iterdir()
    with (folder / "trace").open("w") as trace:
        trace.writelines(LINE.format(number, 1 + number % 9) for number in range(30_000))


def test_a_long_trace_needs_no_memory(tmp_path, written):
    """That of a busy host of 24 CPUs needed 610 MiB, and that of 48 CPUs was an error."""
    with tracefs.record(tmp_path, cpus("0"), 0.0, lambda _: fill(tmp_path)) as trace:
        tracemalloc.start()
        names = {each.name for each in trace.events}
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert names == {"dae\rmon"}
    assert peak < 1024**2


@pytest.mark.parametrize(("traced", "kib"), [("0", 4096), ("0-31", 4096), ("0-63", 2048), ("0-1023", 128)])
def test_the_buffers_of_many_cpus_are_smaller(tmp_path, written, traced, kib):
    with tracefs.record(tmp_path, cpus(traced), 0.0, lambda _: fill(tmp_path)):
        assert written["buffer_size_kb"] == str(kib)
