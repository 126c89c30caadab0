"""Facts about threads, read from the kernel without pinner's readers, and real processes for tests of pinning."""

import glob
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS = """
import threading
for _ in range({count} - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""

THREAD_CHURN = """
import threading, time
def live(depth):
    if depth:
        threading.Thread(target=live, args=(depth - 1,), daemon=True).start()
    time.sleep(0.02)
print("ready", flush=True)
while True:
    threading.Thread(target=live, args=(5,), daemon=True).start()
    time.sleep(0.002)
"""
"""The main thread and its threads create new threads all the time, and these end soon."""


def allowed(tid: int) -> str:
    """Cpus_allowed_list of a thread."""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)$", Path(f"/proc/{tid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def names(pid: int) -> dict[int, str]:
    """The name of every thread of a process; threads that end meanwhile are left out."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found[int(task.name)] = (task / "comm").read_text().strip()
    return found


def masks(pid: int) -> dict[int, str]:
    """The mask of every thread of a process; threads that end meanwhile are left out."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found[int(task.name)] = allowed(int(task.name))
    return found


def masks_of_host() -> dict[tuple[int, int], str]:
    """The mask of every thread of the host, by thread id and start time."""
    found = {}
    # Path.glob fails where a process ends meanwhile.
    for task in map(Path, glob.iglob("/proc/[0-9]*/task/[0-9]*")):
        with suppress(OSError):
            found[int(task.name), started(int(task.name))] = allowed(int(task.name))
    return found


def started(pid: int) -> int:
    """The start time of a process: field 22 of its stat file."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def wait_until_asleep(pid: int) -> None:
    """Wait until all threads of a process sleep, and none has run between two looks."""
    before, deadline = None, time.monotonic() + 120
    while (found := _switches(pid)) != before or any(state != "S" for state, *_ in found.values()):
        assert time.monotonic() < deadline, f"process {pid} does not come to rest: {found}"
        before = found
        time.sleep(0.05)


def _switches(pid: int) -> dict[str, tuple[str, ...]]:
    """The state of every thread of a process, and how often it has left a CPU."""
    texts = {task.name: (task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()}
    return {tid: tuple(re.findall(r"^(?:State|\w+_ctxt_switches):\s*(\w+)", text, re.M)) for tid, text in texts.items()}


@contextmanager
def process(code: str) -> Iterator[int]:
    """A running Python program that has printed a line; gives its process id."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline()
            yield running.pid
        finally:
            running.kill()


@contextmanager
def cpuset(cpus: str, pid: int) -> Iterator[str]:
    """Confine a process to a new cpuset; gives the cpuset's path, empty where no cpuset can be created."""
    v1, v2 = Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup")
    name = f"pinner-test-{os.getpid()}"
    try:
        if v1.is_dir():
            folder = v1 / name
            folder.mkdir()
            (folder / "cpuset.mems").write_text((v1 / "cpuset.mems").read_text())
        else:
            (v2 / "cgroup.subtree_control").write_text("+cpuset")
            folder = v2 / name
            folder.mkdir()
        (folder / "cpuset.cpus").write_text(cpus)
        (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        yield ""
        return
    try:
        yield f"/{name}"
    finally:
        with suppress(OSError):
            (folder.parent / "cgroup.procs").write_text(str(pid))
        folder.rmdir()
