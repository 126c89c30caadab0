"""The live form of isolated: the partition of each guest, and the hosts that cannot have any."""

from dataclasses import replace

import pytest
from support.hosts import GIB, KERNEL, applied, cpus, guest, interleaved, plain, process, snapshot, topology
from support.values import MEMBER

from pinner.model.change import PlannedChange, StateChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Refused
from pinner.model.guest.guest import Cgroup, Guest, NovaIdentity, OperatorPin
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.states import PartitionState
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.planner import plan
from pinner.render import before_and_after
from pinner.render.shell import render

LIVE = Request("isolated", isolation="live")
SLICE = "machine.slice"


def cgroups(number: int, slice_state: PartitionState = MEMBER, state: PartitionState = MEMBER) -> tuple[Cgroup, ...]:
    return Cgroup(SLICE, slice_state), Cgroup(f"{SLICE}/g{number}.scope", state)


def host(*sizes: int, unbound: str = "0-15", **more: object) -> Snapshot:
    kernel = replace(KERNEL, unbound=CpuSet.parse(unbound))
    found = [guest(n, size, cpus("0-15"), cgroups=cgroups(n)) for n, size in enumerate(sizes, start=1)]
    return snapshot(plain(16, 2, kernel=kernel), found, **more)


def test_each_guest_gets_a_partition_within_the_partition_of_the_slice() -> None:
    made = plan(host(4, 2), "s", LIVE)
    assert made.blocked == ""
    assert made.unplaced == ()
    assert {
        change.target.owner: before_and_after(change) for change in made.changes if isinstance(change, StateChange)
    } == {
        "": ("0-15", "0,8,10-15"),
        SLICE: ("member", "root 1-7,9-15"),
        f"{SLICE}/g1.scope": ("member", "isolated 1-5"),
        f"{SLICE}/g2.scope": ("member", "isolated 6-7,9"),
    }
    assert [change.target.kind for change in made.changes][-4:] == ["workqueue", "partition", "partition", "partition"]
    for line in ("AllowedCPUs=1-5", "echo root > ", "echo isolated > "):
        assert line in render(made)


def with_kernel(host: Snapshot, **changes: object) -> Snapshot:
    kernel = replace(host.topology.kernel, **changes)
    return replace(host, topology=replace(host.topology, kernel=kernel))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda host: with_kernel(host, cgroup="v1", partitions=False), "here (6.12.0) it is mounted as cgroup v1"),
        (lambda host: with_kernel(host, partitions=False), "here (6.12.0) the kernel is older"),
    ],
)
def test_a_host_that_cannot_have_partitions_gets_a_blocked_plan_with_the_reason(change: object, why: str) -> None:
    made = plan(change(host(2)), "s", LIVE)
    assert made.blocked.startswith("Needs the cpuset controller of cgroup v2")
    assert why in made.blocked
    assert not [want for want in made.wanted if want.state]


def with_guests(host: Snapshot, *changes: object) -> Snapshot:
    """The host whose guests have other cgroups; None: as they are."""
    guests = zip(host.guests, changes, strict=True)
    return replace(host, guests=tuple(g if change is None else replace(g, cgroups=change) for g, change in guests))


def other_slice(number: int) -> tuple[Cgroup, ...]:
    return Cgroup("other.slice", MEMBER), Cgroup(f"other.slice/g{number}.scope", MEMBER)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((), "it is not in a systemd scope of a slice with the cpuset controller of cgroup v2"),
        (
            other_slice(1),
            "it is in other.slice, the other guests' partitions are in machine.slice: two slices cannot share CPUs",
        ),
    ],
)
def test_a_guest_that_cannot_have_a_partition_does_not_keep_the_others_from_theirs(
    change: tuple[Cgroup, ...], why: str
) -> None:
    odd = with_guests(host(2, 1, 1), change, None, None)
    made = plan(odd, "s", LIVE)
    assert made.blocked == ""
    assert [(left.label, left.why) for left in made.unplaced] == [("guest g1", why)]
    assert placed(made) == {"g2", "g3"}
    assert plan(after(odd, made), "s", LIVE).changes == ()


def test_the_slice_that_is_a_partition_stays_the_one_where_guests_are_placed() -> None:
    root = PartitionState("root", CpuSet.parse("1-7,9-15"))
    mixed = with_guests(host(1, 1, 1), cgroups(1, root), other_slice(2), other_slice(3))
    assert placed(plan(mixed, "s", LIVE)) == {"g1"}


def test_the_last_guest_gets_no_partition_where_no_cpu_would_be_left_for_another_one() -> None:
    kernel = replace(KERNEL, unbound=CpuSet.parse("0-5"))
    found = [guest(n, 1, cpus("0-5"), cgroups=cgroups(n)) for n in (1, 2)]
    small = snapshot(plain(6, kernel=kernel), found)
    request = replace(LIVE, housekeeping="0-1", emulator="2-3")
    made = plan(small, "s", request)
    assert made.blocked == ""
    assert [left.label for left in made.unplaced] == ["guest g2"]
    assert made.unplaced[0].why.endswith("the last ones outside the guests' partitions: no other guest could start")
    assert placed(made) == {"g1"}
    assert plan(after(small, made), "s", request).changes == ()


def test_live_isolation_keeps_to_the_isolated_cpus_of_the_boot_where_partitions_give_no_guest_more_a_place() -> None:
    top = plain(16, kernel=replace(KERNEL, cgroup="v1", partitions=False), isolated="12-15")
    made = plan(snapshot(top, [guest(1, 12, cpus("0-11")), guest(2, 2, cpus("0-11"))]), "s", LIVE)
    assert (made.blocked, placed(made), [left.label for left in made.unplaced]) == ("", {"g2"}, ["guest g1"])


def with_pins(host: Snapshot, pins: str, slice_: str = SLICE) -> Snapshot:
    """The host, and guest g9 in this slice, whose operator pinned its vCPUs one to one."""
    each = [CpuSet.one(cpu) for cpu in cpus(pins)]
    written = tuple(OperatorPin("vcpu", vcpu, cpu, "definition") for vcpu, cpu in enumerate(each))
    scopes = Cgroup(slice_, MEMBER), Cgroup(f"{slice_}/g9.scope", MEMBER)
    owner = guest(9, len(each), cpus("0-15"), pins=list(map(str, each)), operator_pins=written, cgroups=scopes)
    return replace(host, guests=(*host.guests, owner))


@pytest.mark.parametrize(("slice_", "root"), [(SLICE, "1-7,9-15"), ("other.slice", "1-3,6-7,9-15")])
def test_the_slice_keeps_the_cpus_that_an_operators_pins_own_inside_and_takes_none_outside(slice_, root) -> None:
    owned = with_pins(host(4, 2), "4-5", slice_)
    made = plan(owned, "s", LIVE)
    assert {
        change.target.owner: before_and_after(change)[1] for change in made.changes if change.target.kind == "partition"
    } == {
        SLICE: f"root {root}",
        f"{SLICE}/g1.scope": "isolated 1-3,6-7",
        f"{SLICE}/g2.scope": "isolated 9-11",
    }
    require_permitted(identified(made, owned)[0], owned, Past(cpus=made.roles.cpus), migrate_memory=False)
    assert plan(after(owned, made), "s", LIVE).changes == ()


def test_no_plan_and_no_agent_takes_the_cpus_of_an_owner_out_of_its_slice() -> None:
    made, owned = plan(host(4, 2), "s", LIVE), with_pins(host(4, 2), "0,8")
    with pytest.raises(Refused, match=r"machine.slice leaves out CPUs 0,8, which guests inside own"):
        require_permitted(identified(made, owned)[0], owned, Past(cpus=cpus("0-15")), migrate_memory=False)


def test_a_slice_whose_guests_own_isolated_cpus_of_the_boot_becomes_no_partition() -> None:
    top = plain(16, isolated="12-15", kernel=replace(KERNEL, unbound=CpuSet.parse("0-11")))
    here = snapshot(top, [guest(1, 2, cpus("0-11"), cgroups=cgroups(1))])
    made = plan(with_pins(here, "12-15"), "s", LIVE)
    assert made.blocked == (
        "guests in machine.slice own CPUs 12-15, which this boot isolates: a partition of machine.slice would take them"
    )
    assert not [want for want in made.wanted if want.state]


def partitions(made: Plan) -> dict[str, str]:
    return {
        want.target.owner.removeprefix(f"{SLICE}/"): str(want.state)
        for want in made.wanted
        if want.target.kind == "partition"
    }


def beside(staying: Guest, *, vcpus: int = 4, top: Topology | None = None) -> Snapshot:
    """The host whose guest g1 floats, and whose guest g2 is ``staying``, in the same slice."""
    top = top or plain(16, kernel=KERNEL)
    kernel = replace(top.kernel, unbound=top.online)
    found = [guest(1, vcpus, top.online, cgroups=cgroups(1)), replace(staying, cgroups=cgroups(2))]
    return snapshot(replace(top, kernel=kernel), found, [process(300, 40.0, str(top.online))])


def confined(vcpus: int, mask: str) -> Guest:
    return guest(2, vcpus, cpus(mask), restriction=cpus(mask))


def owning_none(mask: str) -> Guest:
    """Two vCPUs that an operator pinned to more cores than vCPUs."""
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(mask), "definition") for vcpu in range(2))
    return guest(2, 2, cpus("0-15"), pins=[mask] * 2, operator_pins=pins)


def excluded(mask: str) -> Guest:
    return guest(2, 2, cpus(mask), excluded=True)


@pytest.mark.parametrize(("vcpus", "mask"), [(8, "0-3"), (4, "4-7"), (4, "8-11"), (2, "4-5")])
def test_no_partition_takes_the_cpus_of_a_confined_guest_that_stays_while_others_are_free(
    vcpus: int, mask: str
) -> None:
    """Of 32 CPUs housekeeping and emulators get 8 at most, so 8 vCPUs and 4 confined CPUs have room beside them."""
    here = beside(confined(vcpus, mask), vcpus=8, top=plain(32))
    made = plan(here, "s", LIVE)
    assert (made.blocked, placed(made), [left.label for left in made.unplaced]) == ("", {"g1"}, ["guest g2"])
    scopes = partitions(made)
    assert not cpus(scopes["g1.scope"].removeprefix("isolated ")) & cpus(mask)
    assert cpus(mask) <= cpus(scopes[SLICE].removeprefix("root "))
    require_permitted(identified(made, here)[0], here, Past(cpus=made.roles.cpus), migrate_memory=False)
    assert plan(after(here, made), "s", LIVE).changes == ()


@pytest.mark.parametrize("staying", [owning_none("12-15"), excluded("12-15")])
def test_pins_of_a_guest_that_stays_keep_one_cpu_where_the_others_need_the_rest(staying: Guest) -> None:
    """Of CPUs 2-15, 12 vCPUs and an emulator leave one: of CPUs 12-15, and not CPU 3."""
    here = beside(staying, vcpus=12)
    made = plan(here, "s", LIVE)
    assert partitions(made) == {SLICE: "root 2-15", "g1.scope": "isolated 2-14"}
    assert plan(after(here, made), "s", LIVE).changes == ()


def test_a_guest_for_which_pins_of_one_that_stays_leave_no_room_is_unplaced_with_the_reason() -> None:
    """Of CPUs 2-15, 12 vCPUs and an emulator leave one, but guests need some of CPUs 4-5 and of 12-15."""
    here = beside(owning_none("12-15"), vcpus=12)
    third = guest(3, 2, cpus("4-5"), excluded=True, cgroups=cgroups(3))
    request = replace(LIVE, housekeeping="0-1", emulator="2-3")
    made = plan(replace(here, guests=(*here.guests, third)), "s", request)
    assert (made.blocked, placed(made), [left.label for left in made.unplaced]) == ("", set(), ["guest g1"])
    assert made.unplaced[0].why.endswith("; CPUs 4-5,12-15 are left to guests without a partition")


@pytest.mark.parametrize("staying", [owning_none("0-3"), confined(2, "0-3"), excluded("0-3")])
def test_a_slice_without_the_cpus_of_a_guest_that_stays_becomes_no_partition(staying: Guest) -> None:
    made = plan(beside(staying), "s", replace(LIVE, housekeeping="0-3"))
    assert made.blocked == "partitions in machine.slice would leave guest g2 none of its CPUs 0-3"
    assert not [want for want in made.wanted if want.state]


@pytest.mark.parametrize("staying", [confined(4, "6-9"), owning_none("6-9"), excluded("6-9")])
def test_no_agent_takes_all_cpus_of_a_guest_that_stays(staying: Guest) -> None:
    made = plan(host(4), "s", LIVE)
    assert partitions(made)["g1.scope"] == "isolated 1-5"
    wider = replace(made, changes=tuple(map(_wider, made.changes)))
    here = replace(host(4), guests=(*host(4).guests, replace(staying, cgroups=cgroups(2))))
    with pytest.raises(Refused, match=r"partitions in machine.slice would leave guest g2 none of its CPUs 6-9"):
        require_permitted(identified(wider, here)[0], here, Past(cpus=cpus("0-15")), migrate_memory=False)


def _wider(change: PlannedChange) -> PlannedChange:
    if not change.target.owner.endswith("g1.scope"):
        return change
    return replace(change, after=PartitionState("isolated", cpus("1-5,6-7,9")))


@pytest.mark.parametrize(
    ("top", "pins", "flavors"),
    [
        (plain(4), ["0", "1", "2", "3"], ("", "shared-pool")),
        (plain(16), ["2"], ("optimal", "shared-pool")),
        (plain(16), ["2", "3", "4", "5"], ("optimal", "shared-pool")),
    ],
)
def test_a_host_with_live_partitions_gives_all_guests_its_own_strategy(top, pins, flavors) -> None:
    """Also where no guest of its own has a partition: the guests of the others would have been placed in its sets."""

    def of(strategy: str) -> NovaIdentity | None:
        return NovaIdentity("i", "p", "u", "f", {"pinner:strategy": strategy}) if strategy else None

    first, second = (
        guest(number, size, top.online, pins=each, cgroups=cgroups(number), nova=of(strategy))
        for number, size, each, strategy in ((1, len(pins), pins, flavors[0]), (2, 1, (), flavors[1]))
    )
    kernel = replace(top.kernel, unbound=top.online)
    here = snapshot(replace(top, kernel=kernel), [first, second])
    made = plan(here, "s", LIVE)
    every = replace(here, guests=tuple(replace(each, nova=None) for each in here.guests))
    assert (made.roles, made.unplaced) == (plan(every, "s", LIVE).roles, plan(every, "s", LIVE).unplaced)
    why = "it gets isolated: the host's strategy makes live partitions, which leave no CPU for another strategy"
    assert [why in warning for warning in made.warnings] == [True] * len([*filter(None, flavors)])


def test_other_strategies_place_their_guests_where_no_guest_can_have_a_partition() -> None:
    flavor = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "shared-pool"})
    first, second = host(2, 1).guests
    here = replace(host(), guests=(replace(first, cgroups=()), replace(second, cgroups=(), nova=flavor)))
    made = plan(here, "s", LIVE)
    assert (placed(made), [left.label for left in made.unplaced]) == ({"g2"}, ["guest g1"])


def placed(made: Plan) -> set[str]:
    return {want.target.name for want in made.wanted if want.target.kind == "vcpu"}


def after(host: Snapshot, made: Plan) -> Snapshot:
    """The host after the plan's changes, of threads and of states."""
    states = {change.target.owner: change.after for change in made.changes if isinstance(change, StateChange)}
    done = with_kernel(applied(host, made), unbound=states.get("", host.topology.kernel.unbound))
    guests = tuple(
        replace(g, cgroups=tuple(replace(each, state=states.get(each.path, each.state)) for each in g.cgroups))
        for g in done.guests
    )
    isolated = union(state.cpus for path, state in states.items() if path.endswith(".scope"))
    top = done.topology
    alone = tuple(replace(cpu, isolated=cpu.isolated or cpu.id in isolated) for cpu in top.cpus)
    return replace(done, guests=guests, topology=replace(top, cpus=alone))


def test_a_guest_without_an_emulator_cpu_of_its_own_is_unplaced() -> None:
    made = plan(host(1, 1, 1), "s", replace(LIVE, emulator="1,9"))
    assert [left.label for left in made.unplaced] == ["guest g3"]
    assert "need a CPU of the emulator set for themselves" in made.unplaced[0].why


def test_the_emulator_set_grows_for_more_guests_than_it_has_cpus() -> None:
    many = host(*[1] * 6)
    made = plan(many, "s", LIVE)
    assert (made.unplaced, str(made.roles.emulator)) == ((), "1,9-13")
    assert plan(after(many, made), "s", LIVE).changes == ()


FOUR_NODES = topology({n: [[4 * n, 4 * n + 1], [4 * n + 2, 4 * n + 3]] for n in range(4)})


@pytest.mark.parametrize("smt", ["require", "isolate"])
@pytest.mark.parametrize(
    ("top", "count", "unplaced"),
    [(FOUR_NODES, 1, {}), (interleaved(16), 8, {}), (interleaved(16), 12, {"isolate": 3})],
)
def test_no_emulator_gets_a_part_of_a_vcpus_core(top: Topology, count: int, unplaced: dict[str, int], smt: str) -> None:
    """Of 16 cores 4 are for housekeeping and emulators. With isolate 9 of 12 guests get a core each: their emulators
    have 4 CPUs, and 5 of 3 cores more. With require two guests share a core, and all have room."""
    kernel = replace(top.kernel, unbound=top.online)
    guests = [guest(n, 1, top.online, memory={n % 2: 2 * GIB}, cgroups=cgroups(n)) for n in range(1, count + 1)]
    here = snapshot(replace(top, kernel=kernel), guests)
    request = replace(LIVE, smt=smt)
    made = plan(here, "s", request)
    assert len(made.unplaced) == unplaced.get(smt, 0)
    of_vcpus = union(want.cpus for want in made.wanted if want.target.kind == "vcpu")
    assert not made.roles.emulator & union(top.online_cores[cpu] for cpu in of_vcpus)
    assert plan(after(here, made), "s", request).changes == ()


def test_the_emulator_set_gives_cpus_that_no_guest_needs_to_vcpus_without_a_place() -> None:
    top = plain(64, 2)
    few = snapshot(top, [guest(n, size, top.online, cgroups=cgroups(n)) for n, size in ((1, 27), (2, 24))])
    assert len(plan(few, "s", replace(LIVE, housekeeping="0-3,32-35", emulator="4-7,36-39")).unplaced) == 1
    made = plan(few, "s", LIVE)
    assert (made.unplaced, str(made.roles.emulator)) == ((), "4,36")
    assert plan(after(few, made), "s", LIVE).changes == ()


@pytest.mark.parametrize("sizes", [(2, 2), (4, 4, 4)])
@pytest.mark.parametrize("here", ["1", "9", "0-15"])
def test_no_vcpu_gets_a_cpu_of_the_emulator_set_outside_novas_shared_set(here: str, sizes: tuple[int, ...]) -> None:
    """The emulator set has CPUs 1 and 9; a vCPU that another program moved to one of them does not keep it."""
    found = host(*sizes, shared=cpus("2-7,10-15"))
    first, *others = found.guests
    vcpu = replace(first.vcpus[0], thread=replace(first.vcpus[0].thread, affinity=cpus(here)))
    made = plan(replace(found, guests=(replace(first, vcpus=(vcpu, *first.vcpus[1:])), *others)), "s", LIVE)
    assert cpus("1,9") <= made.roles.emulator
    assert union(want.cpus for want in made.wanted if want.target.kind == "vcpu") <= cpus("2-7,10-15")


def test_the_emulator_set_gives_vcpus_no_cpu_outside_novas_shared_set() -> None:
    top = plain(64, 2)
    few = [guest(n, size, top.online, cgroups=cgroups(n)) for n, size in ((1, 27), (2, 24))]
    made = plan(snapshot(top, few, shared=cpus("8-31,40-63")), "s", LIVE)
    assert len(made.unplaced) == 1
    assert cpus("4-7,36-39") <= made.roles.emulator


def test_a_hundred_guests_of_two_vcpus_all_have_a_place_on_512_cpus() -> None:
    top = topology({node: [[c, c + 256] for c in range(32 * node, 32 * node + 32)] for node in range(8)})
    found = [guest(n, 2, top.online, cgroups=cgroups(n)) for n in range(100)]
    big = snapshot(top, found)
    made = plan(big, "s", LIVE)
    assert (made.blocked, made.unplaced, len(placed(made))) == ("", (), 100)
    assert plan(after(big, made), "s", LIVE).changes == ()


def test_the_boot_form_stays_blocked_and_other_strategies_do_not_use_the_live_form() -> None:
    assert "are not isolated: reboot" in plan(host(2), "s", Request("isolated")).blocked
    made = plan(host(2), "s", Request("shared-pool", isolation="live"))
    assert "isolation 'live' has no effect: the strategy shared-pool does not use it" in made.warnings
