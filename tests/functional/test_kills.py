"""kill -9 at every point of the journal and around every write to the host, then a recovery in a new process.

PINNER_KILLS=all tries every point (make test-kills), else every so many of them.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest
from support.in_memory_host import daemon as busyd
from support.in_memory_host import emulator, memory, vcpu, vhost
from support.kernel import THREADS, masks, process
from support.kills import FileHost, Work, dies
from support.real_guests import FIRST, ONLINE, SECOND, change, daemon, plan_of, whole
from support.values import MEMBER, cpus, isolated

from pinner.host.live import LiveHost
from pinner.model.change import StateChange, Target
from pinner.model.errors import NotFound
from pinner.model.guest import Guest
from pinner.model.plan import GuestMemory
from pinner.store.journal import Journal

pytestmark = pytest.mark.skipif(len(ONLINE) < 2, reason="needs two CPUs")

EVERY = os.environ.get("PINNER_KILLS") == "all"
STRIDE = 1 if EVERY else 9
ENDS = {"undone": "before", "rolled_back": "before", "applied": "planned"}


@dataclass
class Environment:
    """A host with work to do on it."""

    work: Work
    seen: Callable[[], object]
    """What the host is like now."""
    put_back: Callable[[], None]
    before: object = None
    planned: object = None
    kills: Counter[str] = field(default_factory=Counter)
    """How many, and how the runs ended."""

    def run(self, what: str) -> str:
        """The state of a run by the journal; empty: it knows none."""
        with closing(Journal(self.work.folder)) as journal:
            try:
                return journal.run(what).state
            except NotFound:
                return ""

    def dies(self, what: str, at: int) -> bool:
        died = dies(self.work, what, at)
        self.kills["kills"] += died
        return died

    def is_final(self, run: str = "run-1") -> None:
        """The host is as the journal says, and nothing is left to recover."""
        state = self.run(run) or ("applied" if run == "back" else "undone")
        assert state in ENDS, f"{run} is {state}: {self.errors()}"
        assert self.seen() == getattr(self, ENDS[state])
        self.kills[state] += 1

    def errors(self) -> list[str]:
        with closing(Journal(self.work.folder)) as journal:
            return [journal.run("run-1").error, *(entry.error for entry in journal.entries("run-1"))]

    def reset(self) -> None:
        """The host as before, and an empty journal."""
        self.put_back()
        assert self.seen() == self.before
        for path in self.work.folder.glob("journal.sqlite*"):
            path.unlink()
        shutil.copy(self.work.folder / "empty" / "journal.sqlite", self.work.folder)


@contextmanager
def staged(stage: Environment) -> Iterator[Environment]:
    """The stage with all that it can become learnt."""
    empty = stage.work.folder / "empty"
    Journal(empty).close()
    shutil.copy(empty / "journal.sqlite", stage.work.folder)
    stage.before = stage.seen()
    assert not dies(replace(stage.work, refused=0), "apply")
    stage.planned = stage.seen()
    assert stage.planned != stage.before
    stage.reset()
    yield stage


@pytest.fixture(params=["real", "modelled"])
def stage(request: pytest.FixtureRequest, kills: Counter[str]) -> Iterator[Environment]:
    """``real``: this machine with a libvirtd. ``modelled``: what a machine with one node and cgroup v1 lacks."""
    made = request.getfixturevalue(request.param)
    with staged(made) as stage:
        yield stage
        kills.update(stage.kills)


@pytest.fixture
def real(tmp_path: Path, host: LiveHost, libvirtd: str, start_guest: Callable[..., Guest]) -> Iterator[Environment]:
    """Two processes of threads with masks of their own, one of which stands for a vhost thread, and a guest."""
    guest = start_guest(vcpus=2, persistent=True)
    worker = next(thread.tid for thread in guest.emulator.threads if thread.tid != guest.pid)
    with process(THREADS.format(count=4)) as pid, process(THREADS.format(count=1)) as vhost:
        own = dict(zip(sorted(masks(pid)), ONLINE, strict=False))

        def spread() -> None:
            os.sched_setaffinity(worker, SECOND)
            for tid, cpu in own.items():
                os.sched_setaffinity(tid, [cpu])

        spread()
        stays = masks(guest.pid) | masks(pid) | masks(vhost)

        def seen() -> object:
            now = masks(guest.pid) | masks(pid) | masks(vhost)
            assert {tid for tid in stays if tid not in now} <= set(masks(guest.pid)) | set(stays)
            return {tid: now[tid] for tid in stays if tid in now}, host.definition(guest.uuid)

        changes = [
            change(host, daemon(pid), FIRST),
            *whole(host, guest),
            change(host, Target("vhost", guest.uuid, vhost, guest.name), FIRST),
        ]
        work = Work(tmp_path, libvirtd, plan_of(host, changes), persist=True)

        def put_back() -> None:
            if seen() != before:
                dies(work, "rollback")

        before = seen()
        yield Environment(work, seen, put_back)


@pytest.fixture
def modelled(tmp_path: Path) -> Environment:
    """Every kind of change: also work queues, a partition, and memory with a numatune."""
    file = tmp_path / "host"
    host = FileHost(file)
    scope = Target("partition", "g1.scope", None, "g1.scope")
    queues = Target("workqueue", "", None, "unbound")
    host.add(emulator(), "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(vhost(300), "0-7")
    host.add(busyd(400), "0-7", "2-5", "4")
    host.definitions["uuid-g1"] = "<cputune/>"
    host.states |= {scope: MEMBER, queues: cpus("0-7")}
    host.per_node[memory()] = {1: 1024}
    host.numatunes[memory()] = "1"
    host.save()
    kept = file.read_bytes()
    wanted = {emulator(): "1", vcpu(0): "4-7", vhost(300): "1", busyd(400): "0"}
    settings = (
        StateChange(queues, cpus("0-7"), cpus("0-3"), "so"),
        StateChange(scope, MEMBER, isolated("4-7"), "so"),
    )
    plan = host.plan(*settings, *(host.change(target, after) for target, after in wanted.items()))
    plan = replace(plan, memory=(GuestMemory(memory(), {1: 1024}, 0, 0, 0),))
    work = Work(tmp_path, file, plan, persist=True, migrate_memory=True)
    return Environment(work, lambda: FileHost(file).seen(), lambda: file.write_bytes(kept) and None)


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_an_apply_killed_at_every_point(stage, policy):
    for at in count(0, STRIDE):
        died = stage.dies("apply", at)
        assert not dies(stage.work, policy)
        stage.is_final()
        stage.reset()
        if not died:
            break


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_an_apply_killed_while_it_takes_back_what_it_made(stage, policy):
    """Its last process refuses, so that every change before it is undone."""
    last = next(change for change in reversed(stage.work.plan.changes) if change.target.kind in ("vhost", "process"))
    stage.work = replace(stage.work, refused=last.before[-1].tid)
    for at in count(0, STRIDE):
        died = stage.dies("apply", at)
        stage.work = replace(stage.work, refused=0)
        assert not dies(stage.work, policy)
        stage.is_final()
        stage.reset()
        stage.work = replace(stage.work, refused=last.before[-1].tid)
        if not died:
            break


@pytest.mark.fault(32)
def test_a_rollback_killed_at_every_point(stage):
    for at in count(0, STRIDE):
        assert not dies(stage.work, "apply")
        died = stage.dies("rollback", at)
        assert not dies(stage.work, "back")
        stage.is_final("back")
        stage.reset()
        if not died:
            break


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("first", [12, 25])
def test_a_recovery_killed_at_every_point(stage, policy, first):
    for at in count(0, STRIDE):
        assert stage.dies("apply", first)
        died = stage.dies(policy, at)
        assert not dies(stage.work, policy)
        stage.is_final()
        stage.reset()
        if not died:
            break
