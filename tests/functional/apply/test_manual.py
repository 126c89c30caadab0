"""A real guest is placed by hand and undone, and pins of virsh are adopted and given back."""

from collections.abc import Iterator

import pytest
from support.guests.guests_service import ended, service_of
from support.guests.real_guests import ONLINE
from support.server.policy_host import NEVER_BUSY
from support.system.kernel import masks

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request, RequestedPin
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions

CALLER = Caller("ann", "test", "req-1")
BOTH = f"{ONLINE[0]}-{ONLINE[-1]}"

pytestmark = pytest.mark.needs("root", "exactly_two_cpus")


@pytest.fixture(scope="module")
def libvirtd(module_libvirtd):
    """The URI of a libvirtd of its own: guests of other tests have CPUs to themselves."""
    return module_libvirtd


@pytest.fixture
def service(libvirtd, tmp_path):
    with service_of(libvirtd, tmp_path) as running:
        yield running


def plan(service, *pins: RequestedPin) -> Plan:
    return service.plan("here", Request(placement=pins), None, 0.0, CALLER)


def apply(service, made: Plan):
    run = service.apply(made.id, ApplyOptions(allow_worse=True), CALLER)
    assert ended(service, run.id) == "applied"
    return run


def vcpus(guest: Guest) -> list[str]:
    now = masks(guest.pid)
    return [now[vcpu.thread.tid] for vcpu in guest.vcpus if vcpu.thread]


@pytest.fixture
def guest(start_guest, kill) -> Iterator[Guest]:
    """It ends with the test: another test may need its CPU."""
    started = start_guest(persistent=True)
    yield started
    kill(started)


@pytest.fixture
def here(service, guest) -> CpuSet:
    """A CPU that the programs of this machine leave to guests."""
    roles = service.plan("here", Request(busy_threshold=NEVER_BUSY), None, 0.0, CALLER).roles
    return CpuSet.one(roles.vcpu.lowest)


def test_a_guest_is_placed_by_hand_and_undone(service, guest, here):
    before = masks(guest.pid)
    pins = RequestedPin(guest.name, "emulator", here), RequestedPin(guest.uuid, "vcpu", here, 0)
    run = apply(service, plan(service, *pins))
    assert (vcpus(guest), masks(guest.pid)[guest.pid]) == ([str(here), BOTH], str(here))
    assert (plan(service, *pins).changes, service.drift("here").drifts) == ((), ())
    assert ended(service, service.rollback(run.id, CALLER).id) == "rolled_back"
    now = masks(guest.pid)
    assert {tid: now[tid] for tid in before if tid in now} == {tid: before[tid] for tid in before if tid in now}


@pytest.mark.parametrize("ways", [["--live"], ["--live", "--config"]], ids=" ".join)
def test_pins_of_virsh_are_adopted_and_given_back(service, guest, here, virsh, ways):
    for number in range(2):
        virsh("vcpupin", guest.name, str(number), str(here), *ways)
    pins = [RequestedPin(guest.uuid, "vcpu", here, number) for number in range(2)]

    def is_an_operators() -> bool:
        skipped = service.plan("here", Request(busy_threshold=NEVER_BUSY), None, 0.0, CALLER).skipped
        return any(left.target.owner == guest.uuid and "an operator pinned it" in left.why for left in skipped)

    assert is_an_operators()
    run = apply(service, plan(service, *pins))
    assert (vcpus(guest), is_an_operators()) == ([str(here)] * 2, "--config" in ways)
    assert (plan(service, *pins).changes, service.drift("here").drifts) == ((), ())
    other = next(cpu for cpu in ONLINE if cpu not in here)
    virsh("vcpupin", guest.name, "0", str(other), "--live")
    assert [str(drift.expected) for drift in service.drift("here").drifts] == [str(here)]
    virsh("vcpupin", guest.name, "0", str(here), "--live")
    assert ended(service, service.rollback(run.id, CALLER).id) == "rolled_back"
    assert vcpus(guest) == [str(here)] * 2
    assert is_an_operators()
