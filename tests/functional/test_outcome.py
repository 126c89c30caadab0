"""The watch of a run, with a real guest that is busy, and a plan that is made worse on purpose."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.kernel import masks
from support.measured_host import busy_processes, measured_service, now, start_busy_guest, steps, wait_until
from support.policy_host import NEVER_BUSY
from support.real_guests import ONLINE, only

from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.model.audit import Caller
from pinner.model.guest import Guest
from pinner.model.journal import ApplyOptions
from pinner.model.request import Request
from pinner.service.compose import ServiceParts

ANN = Caller("ann", "test", "")
STEPS_BEFORE = 8

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or len(ONLINE) < 2, reason="needs root and two CPUs")


@pytest.fixture
def guest(start_guest: Callable[..., Guest], tmp_path: Path) -> Guest:
    """A guest whose only vCPU works all the time."""
    return start_busy_guest(start_guest, tmp_path)


@pytest.fixture
def busy() -> Iterator[None]:
    """Three processes that only work, on the first CPU."""
    with busy_processes(3, ONLINE[:1]):
        yield


@pytest.fixture
def parts(tmp_path: Path, host: LiveHost, libvirt: Libvirt, busy: None, guest: Guest) -> Iterator[ServiceParts]:
    """The service of this machine, whose recorder and watch run as in a server."""
    with measured_service(tmp_path, host, libvirt) as made:
        made.outcomes.passes.start()
        try:
            yield made
        finally:
            made.outcomes.passes.stop()


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
