"""A real guest that an operator pinned is left alone, and pins that pinner made are not taken for an operator's."""

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

import private_libvirt
import pytest
from support.guests.guests_service import ended, service_of
from support.guests.real_guests import ONLINE
from support.server.policy_host import NEVER_BUSY
from support.system.kernel import masks

from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import AUTO, Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.protocol import Service

CALLER = Caller("ann", "test", "req-1")
LAST = str(ONLINE[-1])

pytestmark = [
    pytest.mark.fault(52),
    pytest.mark.needs("root", "exactly_two_cpus"),
]


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own: a plan for all guests moves no guest of another test."""
    return module_libvirtd


@dataclass(frozen=True)
class Pinner:
    """The service for this host. Its plans move no process of this machine."""

    service: Service

    housekeeping: str = AUTO
    """AUTO: what the programs of the machine do decides which CPU the guests get."""
    released: tuple[str, ...] = ()

    def plan(self, *guests: Guest) -> Plan:
        """A new plan for all guests, or for those that are named."""
        names = tuple(guest.name for guest in guests)
        request = Request(
            guests=names,
            busy_threshold=NEVER_BUSY,
            housekeeping=self.housekeeping,
            released_guests=self.released,
        )
        return self.service.plan("here", request, None, 0.0, CALLER)

    def apply(self, plan: Plan, *, persist: bool = False) -> str:
        """On two CPUs, all guests share one, and a plan may make the objective worse."""
        return self._ended(
            self.service.apply(plan.id, ApplyOptions(persist=persist, allow_worse=True), CALLER).id, "applied"
        )

    def rollback(self, run: str, state: str = "rolled_back") -> None:
        self._ended(self.service.rollback(run, CALLER).id, state)

    def drift(self) -> list[tuple[str, int | None]]:
        return [(each.target.kind, each.target.part) for each in self.service.drift("here").drifts]

    def _ended(self, run: str, state: str) -> str:
        assert ended(self.service, run) == state, self.service.run(run)
        return run


@pytest.fixture
def pinner(libvirtd, tmp_path):
    with service_of(libvirtd, tmp_path) as service:
        yield Pinner(service)


@pytest.fixture
def start(start_guest, kill):
    """Starts guests that end with the test."""
    started = []

    def start(*pins: str, persistent: bool = True, cpuset: str = "") -> Guest:
        tune = f"<cputune>{''.join(pins)}</cputune>" if pins else ""
        started.append(start_guest(persistent=persistent, extra=tune, cpuset=cpuset))
        return started[-1]

    yield start
    for guest in started:
        if Path(f"/proc/{guest.pid}").exists():
            kill(guest)


def why_skipped(plan: Plan, guest: Guest) -> str:
    """Why the plan skips the guest; empty if the plan places it."""
    skipped = [left.why for left in plan.skipped if left.target.owner == guest.uuid]
    assert (guest.uuid in {want.target.owner for want in plan.wanted}) != bool(skipped)
    return "".join(skipped)


def restored(guest: Guest, before: dict[int, str]) -> bool:
    """Whether every thread that QEMU has had since ``before`` has its former mask."""
    now = masks(guest.pid)
    return all(now[tid] == mask for tid, mask in before.items() if tid in now)


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_a_guest_with_pins_in_its_xml_is_left_alone_unless_it_is_named(start, pinner, persistent):
    mine = (f"<vcpupin vcpu='0' cpuset='{LAST}'/>", f"<emulatorpin cpuset='{LAST}'/>")
    guest, other = start(*mine, persistent=persistent), start()
    before = masks(guest.pid)
    first = pinner.plan()
    where = "in its definition" if persistent else "through libvirt while it runs"
    assert why_skipped(first, guest).startswith(f"an operator pinned it {where}: emulator to {LAST}, vcpu 0 to {LAST};")
    assert why_skipped(first, other) == ""
    assert ONLINE[-1] not in first.roles.cpus
    pinner.apply(first)
    assert restored(guest, before)
    assert pinner.plan().changes == ()

    named = pinner.plan(guest)
    assert {change.target.owner for change in named.changes} == {guest.uuid}
    run = pinner.apply(named)
    assert (pinner.plan(guest).changes, pinner.drift()) == ((), [])
    pinner.rollback(run)
    assert restored(guest, before)


@pytest.mark.parametrize(
    ("way", "where"), [("--config", "in its definition"), ("--live", "through libvirt while it runs")]
)
def test_a_pin_by_virsh_before_pinner_comes_is_an_operators(start, virsh, pinner, way, where):
    guest = start()
    virsh("vcpupin", guest.name, "0", LAST, way)
    virsh("emulatorpin", guest.name, LAST, way)
    plan = pinner.plan()
    assert why_skipped(plan, guest).startswith(f"an operator pinned it {where}: emulator to {LAST}, vcpu 0 to {LAST};")


def test_live_pins_of_pinner_are_its_own_also_after_a_restart_of_libvirtd_and_a_rollback(
    start, libvirtd, virsh, pinner
):
    pinner = replace(pinner, housekeeping=str(ONLINE[0]))
    guest = start()
    before = masks(guest.pid)
    run = pinner.apply(pinner.plan())
    placed = masks(guest.pid)
    with private_libvirt.killed(libvirtd):
        pass
    again = pinner.plan()
    assert (why_skipped(again, guest), again.changes, pinner.drift()) == ("", (), [])

    virsh("vcpupin", guest.name, "0", str(ONLINE[0]), "--live")
    moved = pinner.plan()
    assert (why_skipped(moved, guest), [change.target.part for change in moved.changes]) == ("", [0])
    assert pinner.drift() == [("vcpu", 0)]
    virsh("vcpupin", guest.name, "0", placed[guest.vcpus[0].thread.tid], "--live")
    assert pinner.plan().changes == ()

    pinner.rollback(run)
    assert restored(guest, before)
    assert why_skipped(pinner.plan(), guest) == ""


def test_pins_that_pinner_wrote_to_the_definition_are_its_own_and_a_rollback_gives_back_the_operators(
    start, virsh, pinner, kill
):
    guest = start(f"<vcpupin vcpu='1' cpuset='{ONLINE[0]}'/>")
    assert "in its definition" in why_skipped(pinner.plan(), guest)
    run = pinner.apply(pinner.plan(guest), persist=True)
    again = pinner.plan(guest)
    assert (why_skipped(pinner.plan(), guest), again.changes) == ("", ())

    virsh("vcpupin", guest.name, "0", str(ONLINE[0]), "--config")
    assert f"vcpu 0 to {ONLINE[0]};" in why_skipped(pinner.plan(), guest)

    pinner.rollback(run, "rolled_back_partly")
    inactive = virsh("dumpxml", "--inactive", guest.name)
    assert set(re.findall(r"<(\w+pin) (?:vcpu='(\d)' )?cpuset='(\S+?)'", inactive)) == {
        ("vcpupin", "0", str(ONLINE[0])),
        ("vcpupin", "1", str(ONLINE[0])),
    }, "the operator's first pin is back, and the later one stays"
    assert f"vcpu 1 to {ONLINE[0]};" in why_skipped(pinner.plan(), guest)


def test_a_guest_that_starts_with_pins_of_pinner_in_its_definition_is_placed(start, virsh, pinner, kill):
    guest = start()
    pinner.apply(pinner.plan(guest), persist=True)
    kill(guest)
    while "shut off" not in virsh("domstate", guest.name):
        time.sleep(0.1)
    virsh("start", guest.name, "--paused")
    again = pinner.plan()
    assert why_skipped(again, guest) == ""
    assert [change for change in again.changes if change.target.owner == guest.uuid] == []
    virsh("destroy", guest.name)


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "transient"])
def test_a_guest_stays_on_the_cpus_of_its_definition_unless_it_is_released(start, virsh, pinner, persistent):
    first = str(ONLINE[0])
    guest, _ = start(cpuset=first, persistent=persistent), start()
    before = masks(guest.pid)
    beside = replace(pinner, housekeeping=LAST)
    plan = beside.plan()
    assert {str(want.cpus) for want in plan.wanted if want.target.owner == guest.uuid} == {first}
    run = beside.apply(plan)
    assert (masks(guest.pid), beside.plan().changes, beside.drift()) == (before, (), [])
    beside.rollback(run)

    outside = replace(pinner, housekeeping=first)
    assert [left.why for left in outside.plan().unplaced] == [
        f"the guest has CPUs {first} from its definition (<vcpu cpuset>), where the vCPU set ({LAST}) has no CPU"
    ]
    released = replace(outside, released=(guest.name,))
    run = released.apply(released.plan())
    assert set(masks(guest.pid).values()) == {LAST}
    assert released.plan().changes == ()
    released.rollback(run)
    assert restored(guest, before)
    assert f"cpuset='{first}'" in virsh("dumpxml", guest.name)
    assert {str(want.cpus) for want in beside.plan().wanted if want.target.owner == guest.uuid} == {first}
