"""The watch of a run, with a real guest that works now and then, and a plan that is made worse on purpose."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.guests.measured_host import (
    BUSY_NOW_AND_THEN,
    QuickClock,
    make_real_time,
    measured_service,
    real_time_processes,
    start_busy_guest,
    wait_until,
)
from support.guests.real_guests import ONLINE, only
from support.server.policy_host import NEVER_BUSY
from support.system.kernel import masks

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.errors import NotFound
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Run
from pinner.service.local import ServiceParts

ANN = Caller("ann", "test", "")
UNDOING = ApplyOptions(watch_seconds=15, undo_if_worse=True)
"""Such a watch needs measures of 4 min 10 s before the run."""

pytestmark = [
    pytest.mark.needs("root", "two_cpus", "realtime"),
    pytest.mark.slow("real load for half a minute"),
    pytest.mark.machine("measures its CPUs"),
]


@pytest.fixture
def guest(start_guest: Callable[..., Guest], tmp_path: Path) -> Guest:
    """A real-time guest whose vCPU works for a moment, 18 times a second, and waits where others are real-time, too."""
    started = start_busy_guest(start_guest, tmp_path, BUSY_NOW_AND_THEN)
    make_real_time(masks(started.pid))
    return started


@pytest.fixture
def busy() -> Iterator[None]:
    """Three real-time processes that work most of the time, on the first CPU."""
    with real_time_processes(3, ONLINE[:1]):
        yield


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def parts(
    tmp_path: Path, host: LiveHost, libvirt: Libvirt, busy: None, guest: Guest, clock: QuickClock
) -> Iterator[ServiceParts]:
    """The service of this machine, whose recorder runs as in a server, by a quick clock."""
    with measured_service(tmp_path, host, libvirt, clock) as made:
        yield made


def plan_onto(parts: ServiceParts, guest: Guest, cpu: int) -> Plan:
    """A plan that puts all of the guest on one CPU: all other ones are housekeeping's."""
    housekeeping = ",".join(str(each) for each in ONLINE if each != cpu)
    request = Request(guests=(guest.name,), housekeeping=housekeeping, busy_threshold=NEVER_BUSY)
    plan = parts.service.plan("h1", request, None, 0.0, ANN)
    assert {str(want.cpus) for want in plan.wanted if want.target.kind == "vcpu"} == {str(cpu)}, plan
    return plan


def applied(parts: ServiceParts, plan: Plan, options: ApplyOptions) -> Run:
    run = parts.service.apply(plan.id, replace(options, allow_worse=True), ANN)
    list(parts.service.follow(run.id))
    return parts.service.run(run.id)


def applied_when_seen(parts: ServiceParts, plan: Plan) -> Run:
    """The run of the plan, as soon as a watch could find it worse."""
    runs: list[Run] = []

    def begins() -> bool:
        try:
            runs.append(applied(parts, plan, UNDOING))
        except NotFound:  # too few measures are known, or none
            return False
        return True

    assert not begins()
    wait_until(begins, 420)
    return runs[0]


def has_ended(parts: ServiceParts, run: Run) -> bool:
    """Make a pass, as a server does every few seconds; whether the watch of the run has ended."""
    parts.outcomes.make_pass()
    watch = parts.service.outcome(run.id).watch
    return watch is not None and watch.state != "watching"


def test_a_plan_that_is_worse_is_undone_by_the_watch(parts: ServiceParts, guest: Guest, clock: QuickClock) -> None:
    """All of the guest on the busiest CPU: within the watch, it is back on the other one."""
    applied(parts, plan_onto(parts, guest, ONLINE[1]), ApplyOptions())
    before = masks(guest.pid)
    run = applied_when_seen(parts, plan_onto(parts, guest, ONLINE[0]))
    assert masks(guest.pid) != before
    wait_until(lambda: has_ended(parts, run), 120)
    found = parts.service.outcome(run.id)
    assert found.watch is not None
    assert found.watch.state == "worse", found
    assert "run_delay" in found.watch.why
    list(parts.service.follow(found.watch.rollback))
    watched = parts.service.run(found.watch.rollback).started_at - (run.ended_at or clock.now())
    assert watched <= timedelta(seconds=60)
    restored = masks(guest.pid)
    assert only(restored, before) == only(before, restored)
