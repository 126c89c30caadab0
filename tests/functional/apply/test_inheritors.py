"""Real processes that fork under a real apply: their children get back what they would have had."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert
from support import needs
from support.guests.real_guests import FIRST, ONLINE, SECOND, apply, change, daemon, plan_of, rollback
from support.server.policy_host import wait_until
from support.system.kernel import allowed, started
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.undo.all_runs import can_be_undone
from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.cpuset import CpuSet
from pinner.store.database import tables
from pinner.store.database.engine import writing
from pinner.store.journal.journal import StoredJournal
from pinner.store.runs.entries import entry_row
from pinner.store.runs.runs import _run_row

pytestmark = [
    pytest.mark.needs("root", "two_cpus"),
    pytest.mark.fault(50),
]
ALL = CpuSet.of(ONLINE)

FORKS = """
import os, subprocess, sys, time

def fork(work):
    if os.fork() == 0:
        work()
        os._exit(0)

def wait():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)

def daemonise(work):
    os.setsid()
    fork(work)

def run(program):
    os.execv(sys.executable, [sys.executable, "-c", program])

SLEEP = "import os, time; os.write(1, b'%d\\\\n' % os.getpid()); time.sleep(60)"
print(os.getpid(), flush=True)
for line in sys.stdin:
    match line.strip():
        case "fork": fork(wait)
        case "daemon": fork(lambda: daemonise(wait))
        case "exec": fork(lambda: run(SLEEP))
        case "grandchild": fork(lambda: (fork(wait), wait()))
        case "end": break
"""


LEADER = '"$@"; echo ended; exec sleep 60'


class Forking:
    """A process that forks on command, in a session of its own or of a shell that lives on.

    A session of the test's would not do: its id is 0 where no process has made one, and then no fact names the session.
    """

    def __init__(self, *, own_session: bool = False, container: bool = False) -> None:
        """``container``: the processes have a namespace of process ids; the shell is its first process."""
        command = [sys.executable, "-c", FORKS]
        self._is_leader = own_session
        self._is_inside = container
        inside = ["unshare", "--pid", "--fork", "--kill-child"] if container else []
        self._process = subprocess.Popen(
            command if own_session else [*inside, "sh", "-c", LEADER, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.pid = self._read_pid()
        self.children: list[int] = []

    def _read_pid(self) -> int:
        assert self._process.stdout is not None
        told = self._process.stdout.readline().strip()
        return self._pid_here(told) if self._is_inside else int(told)

    def _pid_here(self, inside: str) -> int:
        """The process id in this namespace of a process of the container."""
        init = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().strip()
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):
                ids = re.findall(r"^NSpid:\s+(.*)$", status.read_text(), re.MULTILINE)[0].split()
                space = (status.with_name("ns") / "pid").readlink()
                if ids[-1] == inside and space == Path(f"/proc/{init}/ns/pid").readlink():
                    return int(status.parent.name)
        raise LookupError(inside)

    def tell(self, command: str, children: int = 1) -> list[int]:
        """The process ids of the new children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        found = [self._read_pid() for _ in range(children)]
        self.children += found
        return found

    def end(self) -> None:
        """The process itself ends, and its children do not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("end\n")
        self._process.stdin.flush()
        if self._is_leader:
            self._process.wait(60)
        else:
            assert self._process.stdout.readline() == "ended\n"

    def close(self) -> None:
        """End the process and all its children."""
        for pid in (*self.children, self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


@pytest.fixture
def live() -> LiveHost:
    return LiveHost(Libvirt("qemu:///system"))


@pytest.fixture(params=["own_session", "session_of_another", "container"])
def forking(request: pytest.FixtureRequest) -> Iterator[Forking]:
    if request.param == "container":
        needs.require("mounts")
    process = Forking(own_session=request.param == "own_session", container=request.param == "container")
    try:
        yield process
    finally:
        process.close()


@pytest.fixture
def placed(live: LiveHost, journal: StoredJournal, forking: Forking) -> Forking:
    """The process, moved to the first CPU."""
    assert apply(plan_of(live, [change(live, daemon(forking.pid), FIRST)]), live, journal).state == "applied"
    time.sleep(0.02)  # two clock ticks: a child starts later than the change
    return forking


def test_children_of_every_kind_get_their_masks_back(live, journal, placed):
    children = [
        *placed.tell("fork"),
        *placed.tell("daemon"),
        *placed.tell("exec"),
        *placed.tell("grandchild", 2),
    ]
    assert {allowed(pid) for pid in children} == {str(FIRST)}
    assert rollback(live, journal).state == "rolled_back"
    assert {allowed(pid) for pid in (placed.pid, *children)} == {str(ALL)}
    (entry,) = journal.entries("run-1")
    assert {thread.tid for thread in entry.inheritors} >= set(children)


def test_children_of_a_process_that_has_ended_get_their_masks_back(live, journal, placed):
    children = [*placed.tell("fork"), *placed.tell("daemon"), *placed.tell("exec")]
    placed.end()
    assert can_be_undone(journal.run("run-1"), journal.entries("run-1"), live)
    rollback(live, journal)
    assert {allowed(pid) for pid in children} == {str(ALL)}


def test_no_child_is_taken_for_a_claim(live, journal, placed):
    """Neither while the placement is in force nor after its rollback, also where the parent has ended meanwhile."""

    def claims() -> set[int]:
        now = take_snapshot(
            LIVE, "h1", None, sample_seconds=0.0, now=lambda: NOON, inputs=SnapshotInputs(placed=journal.placed())
        )
        return {
            process.pid
            for process in now.processes
            for thread in process.threads
            if thread.immovable_reason == "restricted"
        }

    children = {*placed.tell("fork"), *placed.tell("daemon"), *placed.tell("exec")}
    assert not claims() & children
    placed.end()
    assert not claims() & children
    rollback(live, journal)
    assert journal.placed() == ()
    assert not claims() & children


def test_the_tasksets_of_others_stay(live, journal, placed):
    """A child that was narrowed since, and processes that have the same mask by a taskset of their owner."""
    (narrowed,) = placed.tell("fork")
    os.sched_setaffinity(narrowed, SECOND)
    before = subprocess.Popen(["taskset", "-c", str(FIRST), "sleep", "120"])
    after = subprocess.Popen(["taskset", "-c", str(FIRST), sys.executable, "-c", "import time; time.sleep(120)"])
    same = Forking(own_session=True)
    try:
        os.sched_setaffinity(same.pid, FIRST)
        (theirs,) = same.tell("daemon")
        assert rollback(live, journal).state == "rolled_back"
        assert allowed(narrowed) == str(SECOND)
        assert {allowed(pid) for pid in (before.pid, after.pid, same.pid, theirs)} == {str(FIRST)}
    finally:
        same.close()
        for process in (before, after):
            process.kill()
            process.wait()


ADOPTING = """
import ctypes, os, sys, time
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
time.sleep(60)
"""


@pytest.mark.fault(59)
@pytest.mark.parametrize("order", [("run-1", "run-2"), ("run-2", "run-1"), ("run-1", ""), ("",)])
def test_a_child_whose_new_parent_is_placed_later_gets_its_mask_back(live, journal, order):
    """A process that adopts orphans, as systemd does, is placed on the same CPU after the child was forked."""
    command = [sys.executable, "-c", ADOPTING, FORKS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as adopting:
        pids = [adopting.pid]
        try:
            pids.append(int(adopting.stdout.readline()))
            apply(plan_of(live, [change(live, daemon(pids[1]), FIRST)]), live, journal)
            time.sleep(0.02)
            adopting.stdin.write("daemon\n")
            adopting.stdin.flush()
            pids.append(int(adopting.stdout.readline()))
            wait_until(lambda: parent(pids[2]) == adopting.pid, 60)
            apply(plan_of(live, [change(live, daemon(adopting.pid), FIRST)]), live, journal, run="run-2")
            assert {allowed(pid) for pid in pids} == {str(FIRST)}
            for number, undoes in enumerate(order):
                run = make_run(f"back-{number}", kind="rollback", undoes=undoes, plan="plan-1" if undoes else "")
                assert executor.rollback(run, live, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
            assert {allowed(pid) for pid in pids} == {str(ALL)}
        finally:
            for pid in reversed(pids):
                os.kill(pid, 9)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_process_that_forks_all_the_time_leaves_no_child_behind(live, journal):
    churn = """
import os, time
print("ready", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(5)
        os._exit(0)
    os.wait()
    time.sleep(0.01)
"""
    with subprocess.Popen([sys.executable, "-c", churn], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            apply(plan_of(live, [change(live, daemon(process.pid), FIRST)]), live, journal)
            time.sleep(1)
            assert rollback(live, journal).state == "rolled_back"
            everything = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
            kin = [pid for pid in everything if session(pid) == process.pid]
            assert len(kin) > 10
            assert {allowed(pid) for pid in kin} == {str(ALL)}
        finally:
            os.killpg(process.pid, 9)


def session(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


@pytest.mark.fault(59)
def test_months_of_enforce_are_undone_in_one_rollback(live, journal, forking):
    """Two thousand runs have moved the process, and its child too; both are as before the first of them."""
    target = daemon(forking.pid)
    first = change(live, target, FIRST)
    assert apply(plan_of(live, [first]), live, journal).state == "applied"
    time.sleep(0.02)
    (child,) = forking.tell("daemon")
    made = journal.entries("run-1")[0]
    runs, rows = [], []
    for number in range(2, 2001):
        run = make_run(f"run-{number}", state="applied", ended_at=NOON)
        before = replace(first.before[0], cpus=(SECOND, FIRST)[number % 2])
        moved = replace(first, before=(before,), after=(FIRST, SECOND)[number % 2])
        runs.append(_run_row(run))
        rows.append(entry_row(replace(made, run=run.id, change=moved)))
    with writing(journal._engine) as connection:
        connection.execute(insert(tables.runs), runs)
        connection.execute(insert(tables.entries), rows)
    os.sched_setaffinity(forking.pid, FIRST)
    apply(
        plan_of(live, [change(live, replace(target, name="child", owner=str(child), part=started(child)), SECOND)]),
        live,
        journal,
        run="last",
    )
    assert (allowed(forking.pid), allowed(child)) == (str(FIRST), str(SECOND))
    run = make_run("all", kind="rollback", plan="")
    began = time.process_time()
    ended = executor.rollback(run, live, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, ended.error) == ("rolled_back", "")
    assert time.process_time() - began < 10
    assert (allowed(forking.pid), allowed(child)) == (str(ALL), str(ALL))
    assert {journal.run(f"run-{number}").state for number in range(1, 2001)} == {"rolled_back"}
    assert journal.placed() == ()
