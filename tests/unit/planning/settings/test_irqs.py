"""Interrupts of devices as changes of a plan, on made-up hosts."""

from dataclasses import replace
from typing import get_args

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.change import StateChange
from pinner.model.errors import Invalid, Refused
from pinner.model.kinds import SettingName
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.machine.topology import Device
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.planning.policy.backoff_counts import leave_out

NIC, DISK, FAR = "0000:3b:00.0", "0000:01:00.0", "0000:d8:00.0"
DEVICES = (Device("pci", NIC, 0), Device("pci", DISK, None), Device("pci", FAR, 1), Device("net", "ens1", 0, NIC))
WITH = Request(housekeeping="0-3,16-17", emulator="4,18", remedies=("irqs",))


def queues(mask: str, count: int = 4, first: int = 24, device: str = NIC, **more: object) -> tuple[DeviceIrq, ...]:
    return tuple(DeviceIrq(first + n, f"ens1-rx-{n}", device, cpus(mask), **more) for n in range(count))


def host(*irqs: DeviceIrq, balancers: tuple[Balancer, ...] = (), **more: object) -> Snapshot:
    """Two nodes of 16 CPUs, and a guest on each."""
    top = hosts.plain(32, 2, devices=DEVICES, **more)
    guests = [hosts.guest(n, 4, cpus("0-31")) for n in (1, 2)]
    return hosts.snapshot(top, guests, irqs=DeviceIrqs(irqs, balancers))


def plan(snapshot: Snapshot, request: Request = WITH):
    return planner.plan(snapshot, codec.content_hash(snapshot), request)


def moved(made) -> dict[int, str]:
    changes = [change for change in made.changes if change.target.kind == "irq"]
    assert all(isinstance(change, StateChange) for change in changes)
    return {change.target.part: str(change.after) for change in changes}


def after(snapshot: Snapshot, made) -> Snapshot:
    """The host after the plan."""
    given = {change.target.key: change.after for change in made.changes}
    irqs = tuple(replace(irq, cpus=given.get(irq.target.key, irq.cpus)) for irq in snapshot.irqs.irqs)
    return replace(hosts.applied(snapshot, made), irqs=replace(snapshot.irqs, irqs=irqs))


def test_interrupts_go_to_the_housekeeping_cpus_of_their_node_queue_by_queue():
    taken = host(*queues("0-31", 6), *queues("5", 2, 40, FAR))
    made = plan(taken)
    assert moved(made) == {24: "0", 25: "1", 26: "2", 27: "3", 28: "0", 29: "1", 40: "16", 41: "17"}
    assert [str(change.before) for change in made.changes[:2]] == ["0-31", "0-31"]
    assert "off the CPUs of guests (4-15,18-31), to a housekeeping CPU of node 0" in made.changes[0].reason


def test_a_second_plan_changes_nothing():
    taken = host(*queues("0-31", 6), *queues("5", 2, 40, FAR), *queues("0-31", 3, 50, DISK))
    made = plan(taken)
    assert plan(after(taken, made)).changes == ()


def test_interrupts_in_a_right_place_stay_and_count_where_they_are():
    taken = host(*queues("0-1", 1), *queues("2", 2, 30), *queues("9", 2, 40))
    made = plan(taken)
    assert moved(made) == {40: "3", 41: "0"}
    assert {want.target.part for want in made.wanted if want.target.kind == "irq"} == {24, 30, 31, 40, 41}


def chosen(**devices: str) -> Request:
    return replace(WITH, irq_cpus=devices)


@pytest.mark.parametrize("device", ["ens1", NIC])
def test_the_interrupts_of_a_device_go_to_the_cpu_that_the_request_names(device):
    """As the documented case has them, by hand; those of other devices are spread beside them."""
    taken = host(*queues("0-31", 3), *queues("1", 2, 30), *queues("9", 2, 40, DISK))
    made = plan(taken, chosen(**{device: "3"}))
    assert moved(made) == {24: "3", 25: "3", 26: "3", 30: "3", 31: "3", 40: "0", 41: "1"}
    reasons = {change.reason for change in made.changes if change.after == cpus("3")}
    assert reasons == {"the request gives the interrupts of this device CPUs 3"}
    assert plan(after(taken, made), chosen(**{device: "3"})).changes == ()
    assert codec.load(Request, codec.dump(made.request)) == made.request


def test_a_plan_that_cures_interrupts_and_one_that_places_guests_use_the_chosen_cpus_without_a_warning():
    taken = host(*queues("9", 2))
    for request in (chosen(ens1="0"), Request(fix=("irq-on-guest-cpus",), irq_cpus={"ens1": "0"}, housekeeping="0-3")):
        made = plan(taken, request)
        assert set(moved(made).values()) <= {"0"}
        assert [warning for warning in made.warnings if "irq_cpus" in warning] == []


def test_several_cpus_share_the_interrupts_of_a_device_also_far_from_it():
    assert moved(plan(host(*queues("0-31", 3)), chosen(ens1="16-17"))) == {24: "16", 25: "17", 26: "16"}


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ({"ens1": "9"}, "ens1=9.*CPUs of 0-3,16-17, the plan's housekeeping CPUs that no guest has"),
        ({"ens1": "3-4"}, "ens1=3-4.*CPUs of 0-3,16-17"),
        ({"ens1": "99"}, "ens1=99.*CPUs of 0-3,16-17"),
        ({"ens7": "3"}, "ens7=3.*a device with interrupts"),
    ],
)
def test_cpus_of_guests_and_unknown_devices_are_refused(devices, why):
    with pytest.raises(Invalid, match=f"irq_cpus: '{why}"):
        plan(host(*queues("0-31", 3)), chosen(**devices))


def test_two_names_of_a_device_give_it_the_same_cpus():
    taken = host(*queues("0-31", 3))
    assert moved(plan(taken, chosen(**{"ens1": "2-3", NIC: "3,2"}))) == moved(plan(taken, chosen(ens1="2-3")))
    for names in (("ens1", NIC), (NIC, "ens1")):
        with pytest.raises(Invalid, match=rf"{names[1]}=0.*CPUs 3: another name of this device has them"):
            plan(taken, chosen(**dict(zip(names, ("3", "0"), strict=True))))


@pytest.mark.parametrize("value", ["", "x", "3-", "auto"])
def test_cpus_of_a_device_are_a_list_and_need_a_plan_with_interrupts(value):
    with pytest.raises(Invalid, match="irq_cpus"):
        chosen(ens1=value)
    with pytest.raises(Invalid, match="irq_cpus"):
        Request(irq_cpus={"ens1": "3"})


def test_the_agent_admits_the_chosen_cpu_and_no_cpu_of_a_guest():
    taken = host(*queues("0-31", 1))
    made = plan(taken, chosen(ens1="3"))
    known, _ = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    irq = next(change for change in made.changes if change.target.kind == "irq")
    with pytest.raises(Refused, match="CPUs 9 are"):
        forged = replace(made, changes=(replace(irq, after=cpus("9")),))
        admission.require_permitted(identified(forged, taken)[0], taken, admission.Past(), migrate_memory=False)


def test_an_interrupt_on_another_node_than_its_device_comes_home():
    made = plan(host(*queues("1", 1, 24, FAR)))
    assert moved(made) == {24: "16"}
    assert made.changes[0].reason == "its CPUs are not on the node of its device: to a housekeeping CPU of node 1"


def test_a_node_without_housekeeping_gets_the_nearest_one():
    made = plan(host(*queues("20", 1, 24, FAR)), replace(WITH, housekeeping="0-3", emulator="4"))
    assert moved(made) == {24: "0"}
    assert made.changes[0].reason.endswith("node 0, the nearest one to its device on node 1 that has some")


def test_a_device_without_a_node_gets_any_housekeeping_cpu():
    assert moved(plan(host(*queues("9", 6, 24, DISK)))) == dict(
        zip(range(24, 30), ["0", "1", "2", "3", "16", "17"], strict=True)
    )


@pytest.mark.parametrize(
    ("irq", "why"),
    [
        (DeviceIrq(24, "nvme0q5", DISK, cpus("9"), cpus("9"), managed=True), "the kernel alone places it"),
        (DeviceIrq(24, "nvme0q5", DISK, cpus("9")), "the kernel alone places it"),
        (DeviceIrq(24, "virtio1-req.0", DISK, cpus("9")), "the kernel alone places it"),
        (DeviceIrq(24, "vfio-msix[0](0000:3b:00.0)", NIC, cpus("9")), "its device is passed through to a guest"),
    ],
)
def test_an_interrupt_that_cannot_move_is_left_out_with_the_reason(irq, why):
    made = plan(host(irq))
    assert moved(made) == {}
    assert [(left.target, left.why[: len(why)]) for left in made.skipped if left.target.kind == "irq"] == [
        (irq.target, why)
    ]
    # In a right place it is not worth a word.
    assert not plan(host(replace(irq, cpus=cpus("1")))).skipped


def test_an_interrupt_that_follows_its_affinity_when_it_next_fires_is_moved_too():
    """As the queues of a virtio card on x86 without interrupt remapping, which have not fired since they got CPUs."""
    late = DeviceIrq(24, "virtio5-input.1", NIC, cpus("9"), cpus("0"))
    assert moved(plan(host(late))) == {24: "0"}
    assert moved(plan(host(replace(late, cpus=cpus("0"), effective=cpus("9"))))) == {}


def test_no_interrupt_moves_where_guests_have_every_housekeeping_cpu():
    top = hosts.plain(1)
    taken = hosts.snapshot(top, [hosts.guest(1, 1, cpus("0"))], irqs=DeviceIrqs(queues("0", 1)))
    made = plan(taken, Request(remedies=("irqs",)))
    assert moved(made) == {}
    assert any("no interrupt is moved" in warning for warning in made.warnings)


def test_irqbalance_is_named_where_it_may_undo_the_plan():
    def about(balancer):
        return [each for each in plan(host(balancers=(balancer,))).warnings if "irqbalance" in each]

    assert about(Balancer(7, "", cpus("4-15,18-31"))) == []
    assert about(Balancer(7, "", cpus(""))) == [
        "irqbalance (7) runs and may move interrupts back to the CPUs 4-15,18-31 of guests; set "
        "IRQBALANCE_BANNED_CPULIST=4-15,18-31 in /etc/default/irqbalance and restart it, or plan --with irqbalance, too"
    ]
    assert "its environment cannot be read" in about(Balancer(7, "", None))[0]


def test_an_unknown_remedy_is_refused():
    with pytest.raises(Invalid, match=f"with: 'fans' is not valid: some of: {', '.join(get_args(SettingName))}"):
        Request(remedies=("fans",))


def test_plans_and_snapshots_without_interrupts_are_what_they_were():
    taken = replace(host(), irqs=None)
    assert b"irqs" not in codec.dump(taken)
    assert codec.load(Snapshot, codec.dump(taken)) == taken
    request = Request()
    left_out = {"remedies", "fix", "released_guests", "vcpus", "placement", "irq_cpus"}
    assert set(codec.plain(request)) == set(Request.__dataclass_fields__) - left_out
    assert b'"with"' not in codec.dump(plan(taken, request))
    asked = codec.load(Request, codec.dump(WITH))
    assert asked == WITH
    assert codec.plain(WITH)["with"] == ["irqs"]


def test_an_interrupt_returns_to_its_recorded_cpu_with_a_drift():
    taken = host(*queues("0-31", 4))
    made = plan(taken)
    placed = after(taken, made)
    placement = record(made, taken, None)
    astray = replace(placed.irqs.irqs[2], cpus=cpus("9"))
    seen = replace(placed, irqs=DeviceIrqs((*placed.irqs.irqs[:2], astray, placed.irqs.irqs[3])))
    again = planner.plan_from_placement(seen, "s2", WITH, placement)
    assert moved(again) == {26: "2"}
    (drift,) = drifts(again, placement, seen)
    assert (drift.target, str(drift.expected), drift.cause) == (astray.target, "2", "unknown")
    assert tuple(map(str, drift.states)) == ("9", "2")
    # Another housekeeping CPU is as good: no drift.
    seen = replace(placed, irqs=DeviceIrqs((*placed.irqs.irqs[:2], replace(astray, cpus=cpus("3")))))
    assert moved(planner.plan_from_placement(seen, "s2", WITH, placement)) == {}


def permitted(made, snapshot):
    known, ended = identified(made, snapshot)
    admission.require_permitted(known, snapshot, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda made: replace(made, request=replace(made.request, remedies=())), "does not ask for interrupts"),
        (
            lambda made: replace(made, changes=(replace(made.changes[0], after=cpus("9")),)),
            "are no online housekeeping",
        ),
        (lambda made: replace(made, changes=(replace(made.changes[0], after=cpus("")),)), "has no CPU"),
    ],
)
def test_the_agent_refuses_a_change_against_its_rules(change, why):
    taken = host(*queues("0-31", 1))
    with pytest.raises(Refused, match=why):
        permitted(change(plan(taken)), taken)


def test_the_agent_refuses_cpus_of_guests_that_a_plan_calls_housekeeping():
    taken = host(*queues("0-31", 1))
    isolated = replace(taken, dedicated=cpus("0"))
    with pytest.raises(Refused, match="CPUs 0 are for guests"):
        permitted(plan(taken), isolated)


def test_an_interrupt_whose_other_cpus_are_offline_stays():
    assert moved(plan(host(*queues("0-3,31", 1), offline="31"))) == {}


def test_the_agent_refuses_offline_cpus_that_a_plan_calls_housekeeping():
    taken = host(*queues("0-31", 1))
    made = plan(taken)
    (irq,) = [change for change in made.changes if change.target.kind == "irq"]
    with pytest.raises(Refused, match="CPUs 3 are no online housekeeping"):
        permitted(replace(made, changes=(replace(irq, after=cpus("3")),)), host(*queues("0-31", 1), offline="3"))


@pytest.mark.parametrize("excluded", [False, True])
def test_the_agent_refuses_cpus_of_vcpus_that_stay_whatever_roles_a_plan_makes_up(excluded):
    taken = host(*queues("0-31", 1))
    placed = hosts.applied(taken, plan(taken))
    theirs = tuple(replace(each, excluded=excluded) for each in placed.guests)
    placed = replace(placed, guests=theirs)
    made = plan(placed)
    (irq,) = [change for change in made.changes if change.target.kind == "irq"]
    made_up = replace(made.roles, housekeeping=cpus("0-31"), emulator=cpus(""), vcpu=cpus(""), notes=("so",))
    with pytest.raises(Refused, match="CPUs 9 are for guests"):
        permitted(replace(made, roles=made_up, changes=(replace(irq, after=cpus("9")),)), placed)


def test_interrupts_leave_the_cpus_of_guests_that_the_plan_does_not_place():
    """The check of interrupts names these CPUs, too."""
    theirs = replace(hosts.guest(3, 1, cpus("0-2")), excluded=True)
    taken = host(*queues("0-31", 2))
    taken = replace(taken, guests=(*taken.guests, theirs))
    made = plan(taken)
    assert moved(made) == {24: "3", 25: "3"}
    assert plan(after(taken, made)).changes == ()
    assert permitted(made, taken) == frozenset()


def test_an_interrupt_waits_while_a_guest_that_waits_has_its_cpu():
    narrow = hosts.guest(3, 1, cpus("0-2"))
    taken = host(*queues("0-31", 3))
    taken = replace(taken, guests=(*taken.guests, narrow))
    made = plan(taken)
    assert moved(made) == {24: "0", 25: "1", 26: "2"}
    waiting = {each.target.key: "it waits" for each in made.changes if each.target.owner == narrow.uuid}
    less = leave_out(made, waiting, None, taken)
    assert moved(less) == {}
    assert {(left.target.part, left.why) for left in less.skipped if left.target.kind == "irq"} == {
        (number, "guests that stay as they are use its CPUs") for number in (24, 25, 26)
    }
    assert permitted(less, taken) == frozenset()
    # A guest that may run everywhere is not placed: it delays no interrupt.
    wide = {each.target.key: "it waits" for each in made.changes if each.target.owner == taken.guests[0].uuid}
    less = leave_out(made, wide, None, taken)
    assert moved(less) == moved(made)
    assert permitted(less, taken) == frozenset()


def test_the_agent_refuses_an_interrupt_that_became_a_guests():
    taken = host(*queues("0-31", 1))
    made = plan(taken)
    with pytest.raises(Refused, match="the kernel alone places it"):
        permitted(made, host(replace(taken.irqs.irqs[0], managed=True)))


def test_an_interrupt_that_has_ended_before_the_apply_is_no_refusal():
    taken = host(*queues("0-31", 2))
    renamed = replace(taken.irqs.irqs[1], name="other")
    ended = permitted(plan(taken), host(taken.irqs.irqs[0], renamed))
    assert {target.part for target in ended} == {25}


def test_an_idle_interrupt_that_was_moved_stays_recorded_until_the_hardware_follows():
    """Some hardware follows a new affinity with the next interrupt only."""
    taken = host(*queues("0", 1, effective=cpus("9")))
    made = plan(taken)
    assert moved(made) == {}
    assert made.skipped == ()
    assert [each.target.part for each in record(made, taken, None).placed if each.target.kind == "irq"] == [24]


def test_an_idle_interrupt_that_another_program_moved_is_drift_before_the_hardware_follows():
    """Its hardware still uses the CPU of the plan; the next interrupt would come to a CPU of guests."""
    taken = host(*queues("0-31", 1))
    made = plan(taken)
    placement = record(made, taken, None)
    placed = after(taken, made)
    (irq,) = placed.irqs.irqs
    seen = replace(placed, irqs=DeviceIrqs((replace(irq, cpus=cpus("9"), effective=irq.cpus),)))
    again = planner.plan_from_placement(seen, "s2", WITH, placement)
    assert moved(again) == {24: str(irq.cpus)}
    assert [drift.target for drift in drifts(again, placement, seen)] == [irq.target]
    assert permitted(again, seen) == frozenset()
