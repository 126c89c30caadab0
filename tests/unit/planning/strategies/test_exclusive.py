"""``exclusive``: a CPU for each vCPU without isolation, also beside guests that float."""

from dataclasses import replace

import pytest
from data.field.documented import HOST, MIXED, MIXED_PLACES, ONE_GUEST, ONE_GUEST_PLACES, PLACES, SETS, with_flavors
from support.hosts import GIB, applied, cpus, guest, plain, process, snapshot
from support.made_up.fixed_strategy import Fixed
from support.made_up.small_hosts import small_host

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, StalePlan
from pinner.model.guest.guest import PartPin
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.changes import require_free
from pinner.planning.placement import drifts, record
from pinner.planning.planner import plan, plan_from_placement
from pinner.planning.strategies.strategy import installed

EXCLUSIVE = Request("exclusive")
TOPOLOGY, (SMALL, LARGE) = HOST.topology, HOST.guests
WIDE = guest(3, 16, TOPOLOGY.online, memory={1: 8 * GIB}, memory_kib=8 * GIB)


def places(made: Plan) -> dict[str, dict[str | int, str]]:
    """By guest: the emulator's CPUs, and those of each vCPU."""
    found: dict[str, dict[str | int, str]] = {}
    for want in made.wanted:
        if want.target.kind in ("emulator", "vcpu"):
            part = "emulator" if want.target.part is None else want.target.part
            found.setdefault(want.target.name, {})[part] = str(want.cpus)
    return found


def vcpus(made: Plan, name: str) -> CpuSet:
    return cpus(",".join(mask for part, mask in places(made)[name].items() if part != "emulator"))


def test_the_guest_of_the_documented_case_has_its_vcpus_and_its_emulator_on_cpus_of_its_node() -> None:
    assert places(plan(ONE_GUEST, "s", EXCLUSIVE)) == {"g1": ONE_GUEST_PLACES}


def test_both_guests_of_the_documented_case_have_a_cpu_for_each_vcpu() -> None:
    made = plan(HOST, "s", EXCLUSIVE)
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == SETS
    assert places(made) == PLACES
    assert {str(want.cpus) for want in made.wanted if want.target.kind == "process"} == {SETS[0]}
    assert (made.unplaced, made.warnings, made.blocked, made.worse, made.isolation) == ((), (), "", "", None)
    assert made.optimality
    assert made.optimality.proven
    assert plan(applied(HOST, made), "s", EXCLUSIVE).changes == ()


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_flavor_gives_a_guest_cpus_over_which_no_other_floats(strategy: str) -> None:
    request = Request(strategy)
    made = plan(MIXED, "s", request)
    assert places(made)["g1"] == MIXED_PLACES["g1"]
    assert vcpus(made, "g2") <= cpus("5-19,25-39")
    assert (str(made.roles.housekeeping), str(made.roles.emulator), str(made.roles.vcpu)) == SETS
    after = applied(MIXED, made)
    assert plan(after, "s", request).changes == ()
    assert plan_from_placement(after, "s", request, record(made, MIXED, None)).changes == ()


def test_beside_it_shared_pool_has_all_other_cpus() -> None:
    assert places(plan(MIXED, "s", Request())) == MIXED_PLACES


def test_guests_whose_flavors_ask_for_another_strategy_float_over_the_cpus_that_are_left() -> None:
    host = with_flavors(HOST, g1="shared-pool")
    made = plan(host, "s", EXCLUSIVE)
    assert places(made)["g2"] == PLACES["g2"]
    assert vcpus(made, "g1") == cpus(SETS[2]) - vcpus(made, "g2")
    assert plan(applied(host, made), "s", EXCLUSIVE).changes == ()


def test_a_guest_that_does_not_fit_is_unplaced_with_the_numbers() -> None:
    made = plan(replace(HOST, guests=(*HOST.guests, WIDE)), "s", EXCLUSIVE)
    why = (
        "asked for 2 CPUs, 0 are free: no NUMA node has more than 0 of the CPUs that vCPUs may use; "
        "2 more CPUs on node 0, such as those of guest g2, would make room"
    )
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why)]


def test_a_new_guest_yields_where_one_that_floats_would_keep_too_few_cpus() -> None:
    host = with_flavors(replace(HOST, guests=(SMALL, LARGE, WIDE)), g1="exclusive", g3="exclusive")
    made = plan(host, "s", Request())
    why = "16 CPUs of its own would leave guest g2, which floats, 14 CPUs for 16 vCPUs"
    assert made.warnings == (f"guest g3: its flavor has pinner:strategy = 'exclusive', but it gets shared-pool: {why}",)
    assert vcpus(made, "g1") == cpus("4,24")
    assert vcpus(made, "g2") == vcpus(made, "g3") == cpus("5-19,25-39")
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_so_does_one_where_the_other_has_too_few_cpus_already() -> None:
    """A second plan, with one more CPU for emulators, left g2 one CPU for its 6 vCPUs, and moved g1."""
    top = plain(10, 2, memory_kib=32 * GIB)
    guests = [guest(n, size, top.online, memory={0: 2 * GIB}) for n, size in enumerate((2, 6, 4), start=1)]
    host = with_flavors(
        snapshot(top, guests, [process(300, 60.0, str(top.online))]), g1="exclusive", g2="shared-pool", g3="exclusive"
    )
    request = Request("exclusive", housekeeping="9")
    made = plan(host, "s", request)
    assert ([left.label for left in made.unplaced], len(vcpus(made, "g2"))) == (["guest g3"], 6)
    assert plan(applied(host, made), "s", request).changes == ()


def test_a_pool_of_one_cpu_is_no_cpu_of_its_own() -> None:
    host = with_flavors(snapshot(plain(3), [guest(number, 1, cpus("0-2")) for number in (1, 2)]), g1="exclusive")
    made = plan(host, "s", Request())
    assert places(made) == {name: {"emulator": "1", 0: "2"} for name in ("g1", "g2")}
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_a_guest_for_which_those_with_cpus_of_their_own_leave_none_is_unplaced() -> None:
    """g2 could use an isolated CPU alone, so g1 does not yield."""
    top = plain(4, isolated="3")
    host = with_flavors(
        snapshot(top, [guest(1, 1, cpus("0-2")), guest(2, 1, cpus("3"), restriction=cpus("3"))]), g1="exclusive"
    )
    made = plan(host, "s", Request())
    assert places(made) == {"g1": {"emulator": "1", 0: "2"}}
    why = "guests that have CPUs to themselves leave none of the CPUs for vCPUs (2)"
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g2", why)]
    assert plan(applied(host, made), "s", Request()).changes == ()


def test_larger_sets_take_no_cpu_of_a_guest_that_has_it() -> None:
    """Busy threads of QEMU need 4 CPUs of each node. Sets of this size make the first plan worse, and not the second:
    they would leave out g1 and g4, for g6."""
    host = small_host(138)
    made = plan(host, "s", EXCLUSIVE)
    assert (str(made.roles.emulator), [left.label for left in made.unplaced]) == (
        "2-3,18-19",
        ["guest g0", "guest g2", "guest g6"],
    )
    assert plan(applied(host, made), "s", EXCLUSIVE).changes == ()


def test_so_does_one_of_the_hosts_own_strategy() -> None:
    host = with_flavors(replace(HOST, guests=(SMALL, LARGE, WIDE)), g2="shared-pool")
    made = plan(host, "s", EXCLUSIVE)
    why = "16 CPUs of its own would leave guest g2, which floats, 14 CPUs for 16 vCPUs"
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g3", why)]
    assert made.warnings == ("guests that stay may use CPUs that others have to themselves: guest g3 (CPUs 4,24)",)
    assert plan(applied(host, made), "s", EXCLUSIVE).changes == ()


def test_a_guest_that_has_cpus_of_its_own_keeps_them_from_later_guests() -> None:
    before = plan(MIXED, "s", Request())
    late = guest(3, 32, TOPOLOGY.online, memory_kib=GIB)
    after = applied(MIXED, before)
    made = plan(replace(after, guests=(*after.guests, late)), "s", Request())
    assert vcpus(made, "g1") == cpus("4,24")
    assert vcpus(made, "g3") == cpus("5-19,25-39")


def test_a_plan_for_other_guests_leaves_its_cpus_to_a_guest_that_pinner_pinned() -> None:
    made = plan(ONE_GUEST, "s", EXCLUSIVE)
    after = with_own_pins(applied(ONE_GUEST, made))
    host = replace(after, guests=(*after.guests, LARGE))
    for_other = plan(host, "s", Request(guests=("g2",)))
    assert vcpus(for_other, "g2") == cpus("5-19,25-39")
    assert vcpus(plan(host, "s", Request("exclusive", guests=("g2",))), "g2").isdisjoint(cpus("4,24"))


def test_the_cpu_of_a_guest_of_one_vcpu_stays_its_own_in_a_plan_for_another_guest() -> None:
    host = snapshot(TOPOLOGY, [guest(1, 1, TOPOLOGY.online)])
    made = plan(host, "s", EXCLUSIVE)
    after = with_own_pins(applied(host, made))
    both = replace(after, guests=(*after.guests, LARGE))
    assert vcpus(plan(both, "s", Request(guests=("g2",))), "g2").isdisjoint(vcpus(made, "g1"))


def with_own_pins(host: Snapshot) -> Snapshot:
    pins = (tuple(PartPin("vcpu", vcpu, mask) for vcpu, mask in each.vcpu_affinities.items()) for each in host.guests)
    return replace(host, guests=tuple(replace(each, own_pins=own) for each, own in zip(host.guests, pins, strict=True)))


def test_a_plan_is_stale_where_another_guest_was_pinned_to_a_cpu_since() -> None:
    made = plan(ONE_GUEST, "s", EXCLUSIVE)
    other = guest(3, 1, TOPOLOGY.online, pins=["24"], memory_kib=GIB)
    with pytest.raises(StalePlan, match="CPUs 24 are in use by guest g3"):
        require_free(made, replace(ONE_GUEST, guests=(*ONE_GUEST.guests, other)))


def test_guests_that_float_get_the_cpus_of_one_that_ended_and_give_them_back() -> None:
    made = plan(MIXED, "s", Request())
    placement = record(made, MIXED, None)
    both = applied(MIXED, made)
    alone = replace(both, guests=tuple(each for each in both.guests if each.name == "g2"))
    wider = plan_from_placement(alone, "s", Request(), placement)
    assert vcpus(wider, "g2") == cpus(SETS[2])
    assert {drift.cause for drift in drifts(wider, placement, alone)} == {"moved"}
    placement, alone = record(wider, alone, placement), applied(alone, wider)
    again = replace(alone, guests=(*alone.guests, *(each for each in MIXED.guests if each.name == "g1")))
    narrower = plan_from_placement(again, "s", Request(), placement)
    assert places(narrower) == MIXED_PLACES
    assert {drift.cause for drift in drifts(narrower, placement, again) if drift.target.name == "g2"} == {"moved"}


def test_a_literal_set_of_vcpus_bounds_them() -> None:
    made = plan(ONE_GUEST, "s", Request("exclusive", vcpus="8-11,28-31"))
    assert vcpus(made, "g1") == cpus("8,28")
    assert plan(applied(ONE_GUEST, made), "s", made.request).changes == ()


def test_smt_isolate_gives_each_vcpu_a_core() -> None:
    made = plan(ONE_GUEST, "s", Request("exclusive", smt="isolate"))
    assert vcpus(made, "g1") == cpus("4,6")


def test_isolated_cpus_are_left_to_the_strategy_isolated() -> None:
    host = snapshot(plain(16, isolated="8-15"), [guest(1, 4, cpus("0-7"))])
    made = plan(host, "s", EXCLUSIVE)
    assert vcpus(made, "g1") <= cpus("0-7")


def test_a_plug_in_that_gives_its_cpus_to_others_is_refused() -> None:
    host = with_flavors(snapshot(plain(32), [guest(n, 2, cpus("0-31")) for n in (1, 2)]), g1="exclusive")
    with pytest.raises(Invalid, match="leaves CPUs 8-9 to the guests that have them to themselves"):
        plan(host, "s", Request("fixed"), {**installed(), "fixed": Fixed()})


def test_a_pool_of_one_cpu_is_for_all_guests() -> None:
    """On two CPUs vCPUs float over CPU 1 alone. A guest of one vCPU that an earlier request placed does not own it."""
    top = plain(2)
    host = snapshot(top, [guest(1, 1, top.online)])
    after = with_own_pins(applied(host, plan(host, "s", Request())))
    both = replace(after, guests=(*after.guests, guest(2, 1, top.online)))
    assert vcpus(plan(both, "s", Request(guests=("g2",))), "g2") == cpus("1")
