"""The watch of a run, with a real guest that is busy, and a plan that is made worse on purpose."""

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from support.kernel import masks
from support.policy_host import NEVER_BUSY
from support.real_guests import ONLINE, only

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.recorder import Recorder
from pinner.agent.signing import SigningKey
from pinner.agent.trail import AgentTrail
from pinner.host.inventory import take_snapshot
from pinner.host.libvirt import Libvirt
from pinner.host.live import ROOT, LiveHost
from pinner.host.meter import HostMeter
from pinner.model.audit import Caller
from pinner.model.guest import Guest
from pinner.model.journal import ApplyOptions
from pinner.model.request import Request
from pinner.service.compose import ServiceParts, compose
from pinner.store.history import HistoryFiles
from pinner.store.journal import Journal
from pinner.store.repositories import open_store

ANN = Caller("ann", "test", "")
STEPS_BEFORE = 8
BUSY = ["/bin/sh", "-c", "while :; do :; done"]
PRIORITY = -5
"""Above that of other work on this machine, so that only the guest and the busy processes count."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or len(ONLINE) < 2, reason="needs root and two CPUs")


@pytest.fixture
def boot_disk(tmp_path: Path) -> Path:
    """A disk whose boot sector is an endless loop (jmp $), so that the guest's vCPU is busy."""
    disk = tmp_path / "disk.img"
    disk.write_bytes(b"\xeb\xfe".ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
    tmp_path.chmod(0o711)
    disk.chmod(0o666)
    return disk


@pytest.fixture
def guest(start_guest: Callable[..., Guest], boot_disk: Path) -> Guest:
    """A guest whose only vCPU works all the time."""
    disk = f"<disk type='file'><source file='{boot_disk}'/><target dev='hda' bus='ide'/></disk>"
    started = start_guest(paused=False, vcpus=1, iothreads=0, devices=disk)
    for tid in masks(started.pid):
        os.setpriority(os.PRIO_PROCESS, tid, PRIORITY)
    return started


@pytest.fixture
def busy() -> Iterator[None]:
    """Three processes of another user that only work, on the first CPU; no plan takes their CPU for claimed."""
    with ExitStack() as stack:
        for _ in range(3):
            process = stack.enter_context(subprocess.Popen(BUSY, user="nobody"))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, set(ONLINE[:1]))
            os.setpriority(os.PRIO_PROCESS, process.pid, PRIORITY)
        yield


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def parts(tmp_path: Path, host: LiveHost, libvirt: Libvirt, busy: None, guest: Guest) -> Iterator[ServiceParts]:
    """The service of this machine, whose recorder and watch run as in a server."""
    recorder = Recorder(HostMeter(ROOT, libvirt), HistoryFiles(tmp_path / "history"), now)
    take = partial(take_snapshot, ROOT, "h1", libvirt, now=now)
    with ExitStack() as stack:
        journal = stack.enter_context(closing(Journal(tmp_path / "agent")))
        trail = AgentTrail("h1", journal.chain, SigningKey(tmp_path / "agent" / "signing.key"), now)
        agent = LocalAgent(
            lambda seconds: take(sample_seconds=seconds), host, journal, now, HostEventQueue(now), trail,
            name="h1", histories=recorder.measures,
        )  # fmt: skip
        recorder.start()
        stack.callback(recorder.join)
        stack.callback(recorder.stop)
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path}/pinner.sqlite"))
        made = stack.enter_context(closing(compose({"h1": agent}, store, now, lambda: uuid.uuid4().hex[:12], 0.0)))
        made.outcomes.passes.start()
        stack.callback(made.outcomes.passes.stop)
        yield made


def wait_until(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def steps(parts: ServiceParts, guest: Guest) -> int:
    """How many steps of the guest's delay are known."""
    begin = now() - timedelta(minutes=5)
    histories = parts.service._hosts.agent("h1").measures(begin, now(), 5, "")
    values = [each.values["delay_vcpu"] for each in histories if each.subject == guest.uuid]
    return sum(value is not None for value in values[0]) if values else 0


def test_a_plan_that_is_worse_is_undone_by_the_watch(parts: ServiceParts, guest: Guest) -> None:
    """All vCPUs on the busiest CPU: within the watch, the guest has its CPUs back."""
    request = Request(guests=(guest.name,), housekeeping=str(ONLINE[1]), busy_threshold=NEVER_BUSY)
    plan = parts.service.plan("h1", request, None, 0.0, ANN)
    assert {str(want.cpus) for want in plan.wanted if want.target.kind == "vcpu"} == {str(ONLINE[0])}
    before = masks(guest.pid)
    wait_until(lambda: steps(parts, guest) >= STEPS_BEFORE, 120)
    run = parts.service.apply(plan.id, ApplyOptions(watch_seconds=60, undo_if_worse=True), ANN)
    list(parts.service.follow(run.id))
    assert masks(guest.pid) != before
    wait_until(lambda: parts.service.outcome(run.id).watch.state != "watching", 120)  # type: ignore[union-attr]
    found = parts.service.outcome(run.id)
    assert found.watch is not None
    assert found.watch.state == "worse", found
    assert "run_delay" in found.watch.why
    list(parts.service.follow(found.watch.rollback))
    watched = parts.service.run(found.watch.rollback).started_at - (parts.service.run(run.id).ended_at or now())
    assert watched <= timedelta(seconds=60)
    restored = masks(guest.pid)
    assert only(restored, before) == only(before, restored)
