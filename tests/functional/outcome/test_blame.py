"""Who delays a guest, with the kernel's own trace: one culprit among many busy processes on the guest's CPU."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.guests.measured_host import PRIORITY, urgent
from support.hosts import cpus

from pinner.host.kernel import procfs, tracefs
from pinner.host.measure.blame import blame
from pinner.model.errors import NotPermitted
from pinner.model.guest.guest import Emulator, Guest

ROOT = Path("/")
TRACING = Path("/sys/kernel/tracing")
BUSY = "while True: pass"
ROUNDS = 20

pytestmark = [
    pytest.mark.needs("root", "two_cpus", "tracefs", "realtime"),
    pytest.mark.machine("the kernel's trace has the ids of the first PID namespace"),
]


@pytest.fixture(scope="module", autouse=True)
def tracing() -> Iterator[None]:
    """tracefs as most systems mount it."""
    if (TRACING / "instances").is_dir():
        yield
        return
    subprocess.run(["mount", "-t", "tracefs", "nodev", str(TRACING)], check=True)
    yield
    subprocess.run(["umount", str(TRACING)], check=True)


def busy(stack: ExitStack, cpu: int, priority: int = 0) -> int:
    """The id of a process that only works, on one CPU."""
    process = stack.enter_context(subprocess.Popen([sys.executable, "-c", BUSY]))
    stack.callback(process.kill)
    os.sched_setaffinity(process.pid, {cpu})
    os.setpriority(os.PRIO_PROCESS, process.pid, priority)
    return process.pid


def guest_of(pid: int) -> Guest:
    """A guest whose emulator thread is this process."""
    threads = procfs.threads_of(ROOT, pid)
    return Guest("u", "web-1", "running", pid, (), Emulator(cpus("0"), threads), (), (), 0, {}, ())


@pytest.mark.slow("twenty busy threads, which need CPUs without other work")
def test_the_thread_on_the_guest_s_cpu_is_named_among_twenty_busy_ones():
    first, second = sorted(os.sched_getaffinity(0))[:2]
    with ExitStack() as stack:
        others = {busy(stack, second) for _ in range(ROUNDS)}
        guest = guest_of(busy(stack, first, PRIORITY))
        culprit = busy(stack, first, 2 * PRIORITY)
        stack.enter_context(urgent())
        right = 0
        for _ in range(ROUNDS):
            found = blame(ROOT, guest, [guest], 0.4)
            assert found.waited[0].ms > 5
            # Other work of this machine may delay the guest, too, and more: the kernel shares CPUs between sessions.
            named = [each for each in found.culprits if each.tid in {culprit, *others}]
            right += [(each.tid, each.pid) for each in named] == [(culprit, culprit)]
        print(f"of {ROUNDS + 1} busy threads, the culprit alone is named in {right} of {ROUNDS} runs")
        assert right == ROUNDS


def test_a_thread_that_has_ended_is_named_by_the_trace():
    """A guest that waits for many short processes: none of them is left when /proc is read."""
    first = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        guest = guest_of(busy(stack, first, 5))
        script = f"import os; os.sched_setaffinity(0, {{{first}}}); os.execlp('timeout', 'timeout', '0.5', 'yes')"

        def sleep(_: float) -> None:
            subprocess.run([sys.executable, "-c", script], stdout=subprocess.DEVNULL, check=False)

        found = blame(ROOT, guest, [guest], 0.5, sleep)
    ended = [each for each in found.culprits if each.name == "yes"]
    assert ended
    assert ended[0].pid == 0


def record(*arguments) -> None:
    """Record a trace, and read nothing of it."""
    with tracefs.record(*arguments):
        pass


def test_a_trace_leaves_nothing_behind():
    before = set((TRACING / "instances").iterdir())
    record(ROOT, cpus("0"), 0.05)
    with pytest.raises(ZeroDivisionError):
        record(ROOT, cpus("0"), 0.05, lambda _: 1 / 0)
    assert set((TRACING / "instances").iterdir()) == before


KILLED = """
import sys
from pathlib import Path
from pinner.host.kernel import tracefs
from pinner.model.cpuset import CpuSet
def sleep(_):
    print("traces", flush=True)
    sys.stdin.read()
with tracefs.record(Path("/"), CpuSet.parse("0"), 60, sleep):
    pass
"""


def test_the_trace_of_a_killed_process_ends_with_the_next_one():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", KILLED], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"traces\n"
        (left,) = (TRACING / "instances").glob("pinner-*")
        record(ROOT, cpus("0"), 0.05)
        assert left.exists(), "the process still traces"
        process.kill()
    assert (left / "tracing_on").read_text() == "1\n"
    tracefs.remove_left(ROOT)
    assert not left.exists()


def test_a_trace_has_buffers_for_its_own_cpus_only():
    kib: dict[int, int] = {}

    def sleep(_: float) -> None:
        (folder,) = (TRACING / "instances").glob("pinner-*")
        kib.update({cpu: int((folder / f"per_cpu/cpu{cpu}/buffer_size_kb").read_text().split()[0]) for cpu in (0, 1)})

    record(ROOT, cpus("0"), 0.05, sleep)
    assert kib[0] >= tracefs.BUFFER_KIB > kib[1]


def test_a_host_without_tracing_says_how_to_get_it(tmp_path):
    with pytest.raises(NotPermitted, match="mount -t tracefs"):
        record(tmp_path, cpus("0"), 0.05)
