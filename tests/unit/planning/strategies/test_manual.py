"""Placement by hand: a request that names CPUs for parts of guests and for processes."""

import re
from dataclasses import replace

import pytest
from data.field.documented import EVEN, FIFTH, FOURTH, PIDS, documented_host, pin
from support.hosts import applied, cpus, guest, interleaved, plain, process, snapshot

from pinner.model.change import PartPin
from pinner.model.errors import Invalid, NotFound, Refused
from pinner.model.guest.guest import Cgroup, Guest, NovaIdentity, OperatorPin
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import MANUAL, Request, RequestedPin
from pinner.model.snapshot import Snapshot, with_affinities
from pinner.model.states import PartitionState
from pinner.planning.admission import Past, require_permitted
from pinner.planning.placement import drifts, record
from pinner.planning.planner import plan, plan_from_placement, require_possible
from pinner.planning.questions.explanation import explain_placement


def by_hand(*pins: RequestedPin, **more: object) -> Request:
    return Request(placement=pins, **more)


def table(made: Plan) -> dict[str, str]:
    return {str(change.target): str(change.after) for change in made.changes}


def terms(made: Plan) -> dict[str, tuple[float, float]]:
    return {term.name: (term.before, term.after) for term in made.objective.terms if term.before != term.after}


def test_stage_4_of_the_documented_case() -> None:
    made = plan(documented_host(), "s", by_hand(*FOURTH))
    assert table(made) == {
        "guest g1 emulator": "5",
        "guest g1 vhost 11600": "5",
        "guest g1 vcpu 0": "6",
        "guest g1 vcpu 1": "7",
    }
    assert made.request.strategy == MANUAL
    assert made.blocked == ""
    assert terms(made)["vcpu_vs_emulator"][0] > terms(made)["vcpu_vs_emulator"][1]


def test_stage_5_of_the_documented_case() -> None:
    made = plan(documented_host(), "s", by_hand(*FIFTH))
    whole = {"emulator": None, "vhost": 12_600, "iothread": 1} | {f"vcpu {v}": None for v in range(16)}
    expected = {f"guest g2 {kind}{'' if part is None else f' {part}'}": EVEN for kind, part in whole.items()}
    daemons = {str(change.target): str(change.after) for change in made.changes if change.target.kind == "process"}
    assert table(made) == {name: str(cpus(mask)) for name, mask in expected.items()} | daemons
    assert set(daemons.values()) == {"0,2,4,6"}
    assert {change.target.owner for change in made.changes if change.target.kind == "process"} == set(map(str, PIDS))
    assert (made.unplaced, made.skipped) == ((), ())


@pytest.mark.parametrize("pins", [FOURTH, FIFTH], ids=["stage 4", "stage 5"])
def test_a_second_plan_is_empty(pins: tuple[RequestedPin, ...]) -> None:
    here = documented_host()
    made = plan(here, "s", by_hand(*pins))
    assert plan(named(applied(here, made), made), "s", by_hand(*pins)).changes == ()


def named(host: Snapshot, made: Plan) -> Snapshot:
    """The host whose guests' metadata names the pins of the plan."""

    def own(uuid: str) -> tuple[PartPin, ...]:
        changes = (change for change in made.changes if change.target.owner == uuid and change.target.kind != "vhost")
        return tuple(PartPin(each.target.kind, each.target.part, each.after) for each in changes)

    return replace(host, guests=tuple(replace(guest, own_pins=own(guest.uuid)) for guest in host.guests))


def test_the_parts_that_are_not_named_stay() -> None:
    made = plan(documented_host(), "s", by_hand(pin("g2", "vcpu", "9", 3)))
    assert table(made) == {"guest g2 vcpu 3": "9"}
    assert (made.unplaced, made.skipped, made.moves) == ((), (), ())
    assert not any("busy processes" in warning for warning in made.warnings)


def test_pins_of_an_operator_become_pinners() -> None:
    """An adoption: each part keeps its CPUs."""
    floor = cpus("0-7")
    pinned = replace(guest(1, 2, floor, pins=("2", "3")), operator_pins=(OperatorPin("vcpu", 0, cpus("2"), "live"),))
    here = snapshot(plain(8), [pinned])
    made = plan(here, "s", by_hand(pin("g1", "vcpu", "2", 0), pin("g1", "vcpu", "3", 1)))
    assert table(made) == {"guest g1 vcpu 0": "2", "guest g1 vcpu 1": "3"}
    assert {change.reason for change in made.changes} == {
        "placed by hand; it has these CPUs, and its pin becomes pinner's"
    }
    assert (terms(made), made.worse) == ({}, "")
    assert plan(named(here, made), "s", made.request).changes == ()


def test_a_placement_that_makes_the_objective_worse_says_so() -> None:
    here = snapshot(interleaved(20), [guest(1, 2, cpus("0-39"), pins=("2", "4"))])
    made = plan(here, "s", by_hand(pin("g1", "vcpu", "5", 1)))
    assert made.worse.startswith("tier 2 0.00 -> 1.00, most of it by extra_nodes 0.00 -> 1.00 nodes; ")


def test_vcpus_that_share_cpus_are_a_warning() -> None:
    made = plan(documented_host(), "s", by_hand(pin("g2", "all", "8,10"), pin("g1", "vcpu", "6", 0)))
    assert made.warnings == ("guest g2: its 16 vCPUs share CPUs 8,10",)


def test_drift_is_what_differs_from_a_placement_by_hand() -> None:
    here = documented_host()
    made = plan(here, "s", by_hand(*FOURTH))
    after = named(applied(here, made), made)
    placement = record(made, here, None)
    assert plan_from_placement(after, "t", made.request, placement).changes == ()
    (drift,) = drifts(plan_from_placement(moved := _moved(after), "t", made.request, placement), placement, moved)
    assert (str(drift.target), str(drift.expected)) == ("guest g1 vcpu 0", "6")


def _moved(host: Snapshot) -> Snapshot:
    """Another program has moved vCPU 0 of g1."""
    first, *others = host.guests
    vcpu = replace(first.vcpus[0], thread=replace(first.vcpus[0].thread, affinity=cpus("0-39")))
    return replace(host, guests=(replace(first, vcpus=(vcpu, *first.vcpus[1:])), *others))


def test_a_policys_guests_and_processes_may_be_absent() -> None:
    here = replace(documented_host(), guests=())
    assert plan_from_placement(here, "s", by_hand(*FOURTH), None).wanted == ()


def left_out(made: Plan) -> dict[str, str]:
    return {str(left.target): left.why for left in made.unplaced}


def with_pinned_guest(host: Snapshot, mask: str) -> Snapshot:
    """An operator pins another guest's vCPU there."""
    pinned = guest(3, 1, host.topology.online, pins=(mask,))
    pinned = replace(pinned, operator_pins=(OperatorPin("vcpu", 0, cpus(mask), "live"),))
    return replace(host, guests=(*host.guests, pinned))


@pytest.mark.parametrize(
    ("change", "parts", "why"),
    [
        (
            lambda host: replace(host, topology=interleaved(20, offline="5")),
            {"emulator", "vhost 11600"},
            "g1 emulator=5: guest g1 .* may not allocate: 5 is offline",
        ),
        (lambda host: with_pinned_guest(host, "6"), {"vcpu 0"}, "g1 vcpu 0=6: vCPUs of guest g3 have CPUs 6 to"),
    ],
    ids=["offline", "pinned"],
)
def test_a_policy_leaves_out_a_part_that_cannot_have_its_cpus_and_places_the_others(change, parts, why) -> None:
    here = documented_host()
    made = plan(here, "s", by_hand(*FOURTH))
    now, placement = change(here), record(made, here, None)
    again = plan_from_placement(now, "t", made.request, placement)
    assert set(left_out(again)) == {f"guest g1 {part}" for part in parts}
    assert all(re.match(why, reason) for reason in left_out(again).values())
    assert set(table(again)) == set(table(made)) - set(left_out(again))
    assert {str(drift.target) for drift in drifts(again, placement, now)} == set(table(again))
    assert (again.worse, again.blocked) == ("", "")
    for refused in (lambda: plan(now, "t", made.request), lambda: require_possible(now, made.request)):
        with pytest.raises(Invalid, match="placement: "):
            refused()


def test_a_policy_leaves_a_cpu_to_a_guest_that_cannot_leave_it() -> None:
    top, online = plain(8, offline="2"), cpus("0-1,3-7")
    here = snapshot(top, [guest(1, 1, online, pins=("4",)), guest(2, 1, online, pins=("3",))])
    request = by_hand(pin("g1", "vcpu", "3", 0), pin("g2", "vcpu", "2", 0))
    made = plan_from_placement(here, "s", request, None)
    assert made.changes == ()
    assert left_out(made) == {
        "guest g1 vcpu 0": "g1 vcpu 0=3: vCPUs of guest g2 have CPUs 3 to themselves",
        "guest g2 vcpu 0": "g2 vcpu 0=2: guest g2 vcpu 0 is placed on CPUs that pinner may not allocate: 2 is offline",
    }


def test_a_policy_leaves_out_a_part_that_is_named_by_name_and_by_uuid() -> None:
    here = documented_host()
    request = by_hand(*FOURTH, pin(here.guests[0].uuid, "vcpu", "9", 0))
    made = plan_from_placement(here, "s", request, None)
    assert {target: why.partition("; ")[2] for target, why in left_out(made).items()} == {
        "guest g1 vcpu 0": f"{request.placement[0]} names it, too"
    }
    assert "guest g1 vcpu 1" in table(made)


@pytest.mark.parametrize(
    ("pins", "expected"),
    [
        ([pin("g1", "vcpu", "6", 0), pin("g1", "vcpu", "7", 0)], "g1 vcpu 0=6' is not valid: each part once; g1 vcpu"),
        ([pin("g1", "all", "6"), pin("g1", "vcpu", "7", 0)], "all threads of a guest, or parts of it; g1 vcpu 0=7"),
        ([pin("g1", "vcpu", "6", 0), pin(f"{'0' * 8}-0000-4000-8000-{1:012d}", "vcpu", "7", 0)], "each part once; "),
        ([pin("g1", "vcpu", "6", 2)], "a part that the guest has now; its parts of the kind vcpu: 0-1"),
        ([pin("g1", "iothread", "6", 2)], "its parts of the kind iothread: 1"),
        ([pin("g1", "vcpu", "40", 0)], "40 is absent"),
        ([pin("g1", "vcpu", "4,11", 0)], "11 is offline"),
        ([pin("g1", "vcpu", "8-9", 0)], "8-9 are isolated from the kernel's scheduler"),
        ([pin("g1", "emulator", "8")], "8 is isolated from the kernel's scheduler"),
        ([pin("300", "process", "9")], "9 is isolated from the kernel's scheduler"),
        ([pin("g1", "vcpu", "8", 0), pin("g1", "vcpu", "8", 1)], "guest g1 vcpu 1 has isolated CPUs 8"),
        ([pin("g1", "emulator", "3")], "vCPUs of guest g2 have CPUs 3 to themselves"),
        ([pin("300", "process", "0,3")], "vCPUs of guest g2 have CPUs 3 to themselves"),
        ([pin("g1", "vcpu", "5", 0)], "Nova's cpu_dedicated_set 5 (CPUs 5)"),
        ([pin("g1", "vcpu", "6", 0), pin("300", "process", "7")], "restricted affinity of process pmd (400)"),
        ([pin("g3", "emulator", "0")], "a guest that pinner may place; its migration has not ended"),
        ([pin("500", "process", "0")], "a process that pinner may place; 0.0 % of one CPU; it has real-time"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_bad_cpus_and_parts(pins: list[RequestedPin], expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        plan(awkward_host(), "s", by_hand(*pins))
    assert caught.value.details["field"] == "placement"
    assert expected in str(caught.value)


def awkward_host() -> Snapshot:
    top = plain(12, isolated="8-9", offline="11")
    floor = cpus("0-7,10")
    guests = [
        guest(1, 2, floor, iothreads=1),
        guest(2, 1, floor, pins=("3",)),
        replace(guest(3, 1, floor), state="migrating"),
    ]
    real_time = process(500, 0.0, "0-7")
    real_time = replace(real_time, threads=tuple(replace(each, realtime="FIFO") for each in real_time.threads))
    pmd = process(400, 90.0, "7", name="pmd", reasons=("restricted",), reserves="privileged")
    return snapshot(top, guests, [process(300, 40.0, "0-7"), pmd, real_time], dedicated=cpus("5"))


def test_a_vcpu_may_have_an_isolated_cpu_to_itself() -> None:
    assert table(plan(awkward_host(), "s", by_hand(pin("g1", "vcpu", "8", 0)))) == {"guest g1 vcpu 0": "8"}


def test_two_vcpus_of_a_guest_never_share_an_isolated_cpu() -> None:
    here = snapshot(plain(12, isolated="8-9"), [guest(1, 2, cpus("0-7"), pins=("8", "0-7"))])
    with pytest.raises(Invalid, match=r"guest g1 vcpu 0 has isolated CPUs 8"):
        plan(here, "s", by_hand(pin("g1", "vcpu", "8", 1)))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (pin("g1", "vcpu", "9", 0), "CPUs 9, but the guest has CPUs 2-7,10-15 from cgroup machine.slice"),
        (pin("g1", "vcpu", "0", 0), "CPUs 0, but the guest has CPUs 2-7,10-15 from cgroup machine.slice"),
        (pin("g2", "vcpu", "5", 0), "CPUs 5, but the guest has CPUs 8-9 from cgroup machine.slice/g2.scope"),
        (pin("g2", "emulator", "5"), "CPUs 5, but the guest has CPUs 8-9 from cgroup machine.slice/g2.scope"),
        (pin("g3", "vcpu", "9", 0), "CPUs 9, but the guest has CPUs 0-1 from cgroup /"),
    ],
    ids=str,
)
def test_no_part_is_placed_outside_the_partitions_of_its_cgroups(other: RequestedPin, expected: str) -> None:
    slice_ = Cgroup("machine.slice", PartitionState("root", cpus("2-15")))
    own = Cgroup("machine.slice/g2.scope", PartitionState("isolated", cpus("8-9")))
    invalid = Cgroup("machine.slice/g1.scope", PartitionState("isolated", cpus("4"), "of the parent"))
    guests = [
        guest(1, 1, cpus("2-7,10-15"), cgroups=(slice_, invalid)),
        guest(2, 1, cpus("8-9"), pins=("8",), cgroups=(slice_, own)),
        guest(3, 1, cpus("0-1")),
    ]
    here = snapshot(plain(16, isolated="8-9"), guests)
    with pytest.raises(Invalid, match=f"placement: '{other}' is not valid: .*{expected}"):
        plan(here, "s", by_hand(other))
    allowed = by_hand(pin("g1", "vcpu", "5", 0), pin("g2", "vcpu", "9", 0), pin("g3", "emulator", "0"))
    made = plan(here, "s", allowed)
    assert table(made) == {"guest g1 vcpu 0": "5", "guest g2 vcpu 0": "9", "guest g3 emulator": "0"}
    forged = replace(made, changes=tuple(replace(each, after=cpus("8")) for each in made.changes[-1:]))
    require_permitted(made, here, Past(), migrate_memory=False)
    with pytest.raises(Refused):
        require_permitted(forged, here, Past(), migrate_memory=False)


def test_pins_of_an_operator_that_are_not_placed_keep_their_cpus() -> None:
    pins = (*(OperatorPin("vcpu", vcpu, cpus("2-3"), "live") for vcpu in range(2)),)
    pins = (*pins, OperatorPin("emulator", None, cpus("4"), "live"))
    owner = replace(guest(2, 2, cpus("0-7"), pins=("2-3", "2-3")), operator_pins=pins)
    here = snapshot(plain(8), [guest(1, 1, cpus("0-7")), owner], [process(300, 40.0, "0-7")])
    beside = pin("g2", "emulator", "0")
    for other in (pin("g1", "vcpu", "2", 0), pin("g1", "emulator", "1-2"), pin("300", "process", "3")):
        for pins in ((other,), (other, beside)):
            with pytest.raises(Invalid, match="restricted affinity of guest g2, which an operator pinned"):
                plan(here, "s", by_hand(*pins))
    assert set(table(plan(here, "s", by_hand(beside, pin("300", "process", "4")))).values()) == {"0", "4"}
    own = by_hand(pin("g2", "emulator", "2"), pin("g2", "vcpu", "3", 0))
    made = plan(here, "s", own)
    assert table(made) == {"guest g2 emulator": "2", "guest g2 vcpu 0": "3"}
    require_permitted(made, here, Past(), migrate_memory=False)
    moved = by_hand(*(pin("g2", "vcpu", "5-6", vcpu) for vcpu in range(2)), pin("g1", "vcpu", "2", 0))
    assert table(plan(here, "s", moved))["guest g1 vcpu 0"] == "2"


@pytest.mark.parametrize("other", ["emulator", "iothread", "vhost", "vcpu"])
def test_an_isolated_cpu_of_any_other_thread_is_refused_unless_that_moves(other: str) -> None:
    floor = cpus("0-7")
    theirs = guest(2, 1, floor, iothreads=1, vhost_threads=1)
    (target,) = (target for target in theirs.threads_by_target if target.kind == other)
    tids = [thread.tid for thread in theirs.threads_by_target[target]]
    here = snapshot(plain(12, isolated="8-9"), [guest(1, 1, cpus("0-11")), guest(3, 1, cpus("0-11")), theirs])
    here = with_affinities(here, dict.fromkeys(tids, cpus("8-9")))
    wanted = pin("g1", "vcpu", "8", 0)
    with pytest.raises(Invalid, match=f"{target} has isolated CPUs 8"):
        plan(here, "s", by_hand(wanted))
    assert table(plan(here, "s", by_hand(wanted, pin("g2", "all", "5"))))["guest g1 vcpu 0"] == "8"


def test_two_guests_may_exchange_cpus_in_one_request() -> None:
    here = snapshot(plain(8), [guest(1, 1, cpus("0-7"), pins=("2",)), guest(2, 1, cpus("0-7"), pins=("3",))])
    made = plan(here, "s", by_hand(pin("g1", "vcpu", "3", 0), pin("g2", "vcpu", "2", 0)))
    assert table(made) == {"guest g1 vcpu 0": "3", "guest g2 vcpu 0": "2"}
    with pytest.raises(Invalid, match="vCPUs of guest g2 have CPUs 3 to themselves"):
        plan(here, "s", by_hand(pin("g1", "vcpu", "3", 0)))


def test_an_id_names_nobody_who_has_it_for_a_name() -> None:
    """Any user may name a process or a guest like the id of another one."""
    all_ = cpus("0-7")
    here = snapshot(
        plain(8),
        [web := guest(1, 1, all_), replace(guest(2, 1, all_), name=web.uuid)],
        [process(300, 40.0, "0-7"), process(301, 40.0, "0-7", name="300")],
    )
    made = plan(here, "s", by_hand(pin(web.uuid, "vcpu", "4", 0), pin("300", "process", "5")))
    assert {change.target.owner: str(change.after) for change in made.changes} == {web.uuid: "4", "300": "5"}
    unmovable = replace(here, guests=(replace(web, state="migrating"), here.guests[1]))
    with pytest.raises(Invalid, match="its migration has not ended"):
        plan(unmovable, "s", by_hand(pin(web.uuid, "vcpu", "4", 0)))


@pytest.mark.parametrize("owner", [pin("g9", "emulator", "0"), pin("999", "process", "0")])
def test_an_unknown_guest_or_process_is_not_found(owner: RequestedPin) -> None:
    with pytest.raises(NotFound):
        plan(documented_host(), "s", by_hand(owner))


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"guests": ("g2",)}, "guests"),
        ({"processes": ("300",)}, "processes"),
        ({"strategy": "isolated"}, "strategy"),
        ({"remedies": ("irqs",)}, "with"),
        ({"fix": ("irq-off-node",)}, "fix"),
        ({"rebalance": True}, "rebalance"),
        ({"isolation": "live"}, "isolation"),
    ],
)
def test_what_a_placement_excludes(more: dict[str, object], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        by_hand(*FOURTH, **more)
    assert caught.value.details["field"] == field


@pytest.mark.parametrize(
    ("kind", "part", "mask"),
    [("vcpu", None, "1"), ("emulator", 0, "1"), ("vcpu", -1, "1"), ("vcpu", 9000, "1"), ("all", None, "")],
)
def test_a_pin_that_no_host_can_have(kind: str, part: int | None, mask: str) -> None:
    with pytest.raises(Invalid) as caught:
        pin("g1", kind, mask, part)
    assert caught.value.details["field"] == "placement"


def test_the_order_of_the_parts_does_not_count() -> None:
    assert by_hand(*FOURTH) == by_hand(*reversed(FOURTH))


def test_the_strategy_places_nothing_without_a_placement() -> None:
    made = plan(documented_host(), "s", Request(MANUAL))
    assert {left.why for left in made.unplaced} == {"the request has no placement, which names its CPUs"}
    assert (len(made.unplaced), made.changes, made.worse) == (2, (), "")


def test_a_flavor_decides_nothing_beside_a_placement_and_cannot_ask_for_one() -> None:
    def flavored(number: int, strategy: str) -> Guest:
        return guest(number, 1, cpus("0-7"), nova=NovaIdentity("i", "p", "u", "f", {"pinner:strategy": strategy}))

    here = snapshot(plain(8), [flavored(1, "numa-local"), flavored(2, MANUAL)])
    assert table(plan(here, "s", by_hand(pin("g1", "vcpu", "3", 0)))) == {"guest g1 vcpu 0": "3"}
    assert [warning for warning in plan(here, "s", Request()).warnings if "g2" in warning] == [
        "guest g2: its flavor has pinner:strategy = 'manual', which has no effect; valid is exclusive or isolated or "
        "numa-local or optimal or shared-pool"
    ]


def test_a_placement_by_hand_is_not_explained() -> None:
    with pytest.raises(Invalid, match="says itself where guests go"):
        explain_placement(documented_host(), by_hand(*FOURTH), "g1")
