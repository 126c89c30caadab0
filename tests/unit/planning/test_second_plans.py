"""A plan of the host as the plan before left it has no changes, also where no other sizes of the sets are as good."""

from dataclasses import replace

import pytest
from data.field.documented import with_flavors
from support.hosts import GIB, applied, cpus, guest, interleaved, plain, process, snapshot, with_classes
from support.made_up.small_hosts import small_host

from pinner.model.machine.process import CpuLimit
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import make, plan, plan_from_placement, settled
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import installed

IN_A_SLICE = snapshot(
    plain(16, 2, isolated="8-15"),
    [
        guest(1, 4, cpus("4"), restriction=cpus("4,8,10-11")),
        guest(3, 1, cpus("2-7"), cpu_limits=(CpuLimit("machine.slice", cpus("2-7")),)),
    ],
    [process(300, 40.0, "0-7")],
)
"""An eighth of 8 CPUs is one CPU: housekeeping 0, emulators 1. The slice has no CPU of these: 2 is an emulator CPU,
too. QEMU's threads of g3 get 2, which is also the whole emulator set beside housekeeping of two CPUs, 0-1."""

WITHOUT_DAEMONS = snapshot(
    with_classes(plain(22), "0-5", "6-21"), [guest(1, 8, cpus("0-21")), guest(2, 8, cpus("0-21"), iothreads=1)]
)
"""No guest fits the fast CPUs: 16 vCPUs share the slow ones. Sets of 2 CPUs each leave 12 of these: overcommit 4, where
now 3 threads of QEMU and 16 vCPUs share 22 CPUs, vcpu_vs_emulator 16 x 3 / 22 = 2.18. With a core for each set,
overcommit is 2."""

BESIDE_NOVA = snapshot(with_classes(plain(16), "0-11", "12-15"), [guest(1, 1, cpus("12-15"))], dedicated=cpus("15"))
"""The guest is on slow CPUs, and stays there: Nova takes one of them. So the sets are fast CPUs."""

FULL_NODES = snapshot(
    plain(144, 2), [guest(number, 64, cpus("0-143"), memory={number - 1: 1 << 20}) for number in (1, 2)]
)
"""Two nodes of 72 CPUs and two guests of 64. Sets of an eighth of a node, 9 CPUs each, leave 54."""

OVERLOADED = snapshot(
    interleaved(12, 4),
    [guest(1, 3, cpus("0-23"), vhost_threads=1)],
    [process(pid, load, "0-23") for pid, load in ((300, 300.0), (310, 300.0), (320, 900.0))],
)
"""Four nodes of three cores. Daemons of 15 CPUs need two cores of each for housekeeping, which leaves no node three
CPUs for the guest. That makes the objective worse, so that smaller sets are taken, which place the guest."""


@pytest.mark.parametrize(
    ("host", "strategy", "sets"),
    [
        pytest.param(IN_A_SLICE, "shared-pool", "0|1-2|3-7", id="in a slice"),
        pytest.param(WITHOUT_DAEMONS, "numa-local", "6|7|0-5,8-21", id="without daemons"),
        pytest.param(BESIDE_NOVA, "shared-pool", "0-1|2-3|4-14", id="beside Nova"),
        pytest.param(FULL_NODES, "numa-local", "0,72|1,73|2-71,74-143", id="full nodes"),
        pytest.param(OVERLOADED, "numa-local", "0-1,12-13|2-5,14-17|6-11,18-23", id="overloaded"),
    ],
)
def test_a_second_plan_has_no_changes(host: Snapshot, strategy: str, sets: str) -> None:
    request = Request(strategy)
    made = plan(host, "s", request)
    assert (_sets(made), bool(made.changes), made.worse) == (sets, True, "")
    again = plan(applied(host, made), "s", request)
    assert (_sets(again), again.changes) == (sets, ())


def test_the_second_plan_of_one_that_is_worse_has_no_changes() -> None:
    """Three guests float over isolated CPUs, too, which they give up: the plan is worse in any case. The sets of the
    load leave out the guest of 16 vCPUs, the smaller ones of the second plan place it and make nothing worse."""
    top, balanced = interleaved(24, 1, isolated="14-23,38-47"), cpus("0-13,24-37")
    floating = [guest(1, 6, top.online, vhost_threads=1), guest(2, 1, top.online), guest(4, 12, top.online)]
    configured = process(330, 300.0, "8,25,28,30", reasons=["restricted"], reserves="configured")
    host = snapshot(top, [*floating, guest(3, 16, balanced, iothreads=2)], [configured])
    made = plan(host, "s", Request("numa-local"))
    assert (_sets(made), made.unplaced, bool(made.worse)) == ("0-2,24,26|3,27|4-7,9-13,29,31-37", (), True)
    assert plan(applied(host, made), "s", Request("numa-local")).changes == ()


@pytest.mark.parametrize(("size", "plans"), [(61, 1), (54, 2)])
def test_smaller_sets_are_planned_only_where_they_place_more(size: int, plans: int) -> None:
    """Eight nodes of 64 CPUs. Sets of an eighth leave 48 CPUs of each, one of a core 54, two of a core 60."""
    guests = [guest(1, size, cpus("0-511")), guest(2, 4, cpus("0-511"), memory={1: GIB})]
    made = []

    def counted(strategies: object, context: Context) -> Plan:
        made.append(context)
        return make(strategies, context)

    settled(installed(), Context.of(snapshot(interleaved(256, 8), guests), Request("numa-local")), counted)
    assert len(made) == plans


def test_smaller_sets_place_guests_that_fit_no_node_beside_those_of_an_eighth() -> None:
    assert plan(FULL_NODES, "s", Request("numa-local")).unplaced == ()


def test_no_set_gets_smaller_than_its_load_to_place_a_guest() -> None:
    busy = replace(FULL_NODES, processes=(process(300, 500.0, *["0-143"] * 8),))
    made = plan(busy, "s", Request("numa-local"))
    assert (str(made.roles.housekeeping), len(made.unplaced)) == ("0-8,72-80", 2)


def _sets(made: Plan) -> str:
    return f"{made.roles.housekeeping}|{made.roles.emulator}|{made.roles.vcpu}"


@pytest.mark.parametrize(
    ("seed", "strategy", "flavors"),
    [
        (343, "shared-pool", {"g1": "shared-pool", "g2": "exclusive"}),
        (306, "numa-local", {"g0": "numa-local", "g3": "exclusive", "g5": "exclusive"}),
        (94, "exclusive", {"g2": "exclusive", "g3": "shared-pool", "g4": "numa-local", "g5": "numa-local"}),
        (346, "numa-local", {"g1": "exclusive", "g5": "exclusive"}),
    ],
)
def test_memory_of_a_guest_of_another_strategy_is_needed_where_the_plan_places_it(
    seed: int, strategy: str, flavors: dict[str, str]
) -> None:
    """Before the plan, vCPUs of these guests run on one node, and after it elsewhere. Were their memory booked on the
    node of their present CPUs, a second plan would find room there."""
    require_no_second_changes(with_flavors(small_host(seed), **flavors), Request(strategy))


def require_no_second_changes(host: Snapshot, request: Request) -> None:
    made = plan(host, "s", request)
    after = applied(host, made)
    assert plan(after, "s", request).changes == ()
    assert plan_from_placement(after, "s", request, record(made, host, None)).changes == ()


@pytest.mark.parametrize(
    ("seed", "flavors"),
    [
        (9, {"g0": "numa-local", "g3": "shared-pool"}),
        (13, {"g0": "shared-pool"}),
        (282, {"g1": "exclusive", "g2": "exclusive", "g3": "numa-local", "g4": "shared-pool"}),
    ],
)
def test_no_guest_with_cpus_of_its_own_moves_for_one_that_floats_where_it_did(
    seed: int, flavors: dict[str, str]
) -> None:
    require_no_second_changes(with_flavors(small_host(seed), **flavors), Request("exclusive"))


@pytest.mark.parametrize(
    ("seed", "flavors"),
    [
        (231, {"g1": "numa-local", "g2": "shared-pool", "g3": "shared-pool"}),
        (389, {"g3": "numa-local", "g4": "exclusive", "g5": "shared-pool"}),
    ],
)
def test_a_guest_yields_that_left_those_that_float_no_place_and_then_has_none(
    seed: int, flavors: dict[str, str]
) -> None:
    """Refused by their own strategy, these got CPUs of their own, and those of that guest. A second plan, in which the
    guest that now has no place takes none, found that they can float."""
    require_no_second_changes(with_flavors(small_host(seed), **flavors), Request("exclusive"))
