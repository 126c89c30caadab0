"""RPS inside a real Linux guest, through the real QEMU guest agent: set, undone, and lost with a restart."""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import demo_environment
import private_libvirt
import pytest
from support.agent_guest import AGENT, BOOT_SECONDS, AgentGuest, agent_guest
from support.measured_host import wait_until
from support.values import make_run

from pinner.apply import executor
from pinner.host.guest_rps import GuestRpsReader, vcpus_of
from pinner.host.inventory import LIVE, take_snapshot
from pinner.host.libvirt import Libvirt
from pinner.host.live import LiveHost
from pinner.model.change import GuestCpus
from pinner.model.cpuset import CpuSet
from pinner.model.guest_rps import GuestRps
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.planning import planner
from pinner.store.journal import Journal

BOTH = CpuSet.parse("0-1")
WHY = private_libvirt.missing() or ("" if AGENT and os.geteuid() == 0 else "needs root and qemu-guest-agent")

pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with demo_environment.scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def guest(scratch: Path) -> Iterator[AgentGuest]:
    with private_libvirt.private_libvirtd(scratch / "libvirt") as uri, agent_guest(uri, scratch) as made:
        yield made


def now() -> datetime:
    return datetime.now(UTC)


def read(libvirt: Libvirt) -> GuestRps:
    (found,) = GuestRpsReader(libvirt).read(libvirt.guests(LIVE))
    return found


def plan_of(libvirt: Libvirt) -> Plan:
    """The plan's changes inside the guest, without those of the host."""
    reader = GuestRpsReader(libvirt)
    taken = take_snapshot(LIVE, "here", libvirt, sample_seconds=0.0, now=now, only=["guest_rps"], guest_rps=reader.read)
    made = planner.plan(taken, "snapshot", Request(remedies=("guest-rps",)))
    return replace(made, changes=tuple(each for each in made.changes if each.target.kind == "guest_rps"))


def test_rps_of_a_real_guest_is_set_undone_and_lost_with_a_restart(guest: AgentGuest, tmp_path: Path) -> None:
    libvirt = Libvirt(guest.uri)
    host, journal = LiveHost(libvirt), Journal(tmp_path)
    wait_until(lambda: not read(libvirt).unread, BOOT_SECONDS)

    def apply(name: str) -> Plan:
        plan = plan_of(libvirt)
        (change,) = plan.changes
        assert (change.before, change.after) == (GuestCpus(CpuSet()), GuestCpus(BOTH))
        run = executor.apply(plan, make_run(name), host, journal, now, lambda entry, total: None)
        assert run.state == "applied", run
        assert vcpus_of(libvirt, change.target) == GuestCpus(BOTH)
        wait_until(lambda: guest.mask() == BOTH.bits, BOOT_SECONDS)
        return plan

    def rollback(name: str, undoes: str) -> tuple[str, set[str]]:
        undo = make_run(name, kind="rollback", undoes=undoes)
        run = executor.rollback(undo, host, journal, now, lambda entry, total: None)
        return run.state, {entry.state for entry in journal.entries(undoes)}

    apply("run-1")
    assert plan_of(libvirt).changes == ()
    assert rollback("run-2", "run-1") == ("rolled_back", {"undone"})
    wait_until(lambda: guest.mask() == 0, BOOT_SECONDS)

    apply("run-3")
    guest.restart()
    wait_until(lambda: not read(libvirt).unread, BOOT_SECONDS)
    assert rollback("run-4", "run-3")[1] == {"gone"}
    assert guest.mask() == 0
    journal.close()
