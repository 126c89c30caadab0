"""The objective, compared with results computed by hand."""

from dataclasses import replace

import pytest
from support.hosts import cpus, guest, interleaved, plain, process, snapshot, with_caches

from pinner.api.schemas.plan import Weights
from pinner.model.errors import Invalid
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.machine.topology import Device
from pinner.model.plan.objective import TERMS, compared, rise, value_of, weighted
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.objective import worsening
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

CONTENTION = {kind.name: 0.0 for kind in TERMS if kind.tier == 6}


def values(host: Snapshot, planned: dict[int, str] | None = None) -> dict[str, float]:
    """Every term of the host whose threads (by id) have the planned CPUs."""
    return ObjectiveMeasure.of(host, 2.0).values({tid: cpus(text) for tid, text in (planned or {}).items()})


def contention(host: Snapshot, planned: dict[int, str] | None = None) -> dict[str, float]:
    return {name: value for name, value in values(host, planned).items() if name in CONTENTION}


def test_every_conflict_counts_where_all_threads_float_over_all_cpus() -> None:
    """Four CPUs; 2 vCPUs, one emulator, one iothread and a process of 80 % of a CPU spread over all of them."""
    host = snapshot(plain(4), [guest(1, 2, cpus("0-3"), iothreads=1)], [process(300, 80.0, "0-3", "0-3")])
    expected = {
        "vcpu_vs_host": 4 * 0.5 * 0.2,
        "vcpu_vs_emulator": 4 * 0.5 * 0.5,
        "emulator_vs_host": 4 * 0.5 * 0.2,
    }
    assert contention(host) == pytest.approx(CONTENTION | expected)


def test_threads_on_separate_cpus_have_no_conflict() -> None:
    host = snapshot(plain(8), [guest(1, 2, cpus("2-3"), pins=["4-7", "4-7"])], [process(300, 80.0, "0-1")])
    assert contention(host) == CONTENTION


@pytest.mark.parametrize(
    ("part", "planned", "expected"),
    [
        ("overcommit", {11_010: "4", 11_011: "4"}, 1.0),
        ("vcpu_vs_host", {300: "4-7"}, 4 * 0.5 * 0.2),
        ("vcpu_vs_emulator", {11_000: "4-7"}, 4 * 0.5 * 0.125),
        ("emulator_vs_host", {300: "2-3"}, 2 * 0.5 * 0.4),
    ],
)
def test_each_part_counts_only_its_own_kind_of_conflict(part: str, planned: dict[int, str], expected: float) -> None:
    host = snapshot(plain(8), [guest(1, 2, cpus("2-3"), pins=["4-7", "4-7"])], [process(300, 80.0, "0-1")])
    assert contention(host, planned) == pytest.approx(CONTENTION | {part: expected})


@pytest.mark.parametrize(
    ("memory", "pins", "expected"),
    [
        ({0: 10}, ["0-3", "0-3"], 0.0),
        ({0: 10}, ["0-7", "0-7"], 5.0),
        ({0: 10}, ["4", "5"], 10.0),
        ({0: 3, 1: 7}, ["4", "0"], 5.0),
        ({0: 3, 1: 7}, ["4", "5"], 3.0),
        ({}, ["4", "5"], 0.0),
    ],
)
def test_remote_memory_is_its_size_by_the_distance_as_the_mean_over_the_vcpus(
    memory: dict[int, int], pins: list[str], expected: float
) -> None:
    """Node 1 is at distance 20: once the local distance beyond it."""
    sizes = {node: mib * 1024 for node, mib in memory.items()}
    host = snapshot(plain(8, 2), [guest(1, 2, cpus("0-7"), pins=pins, memory=sizes)])
    assert values(host)["remote_memory"] == pytest.approx(expected)


def test_a_cpu_that_two_vcpus_have_counts_for_each_of_them() -> None:
    """CPU 1 is on the node of the memory, as CPU 0; CPU 4 is not."""
    host = snapshot(plain(8, 2), [guest(1, 3, cpus("0-7"), pins=["1", "1", "0"], memory={0: 3 * 1024})])
    assert values(host)["remote_memory"] == 0.0
    host = snapshot(plain(8, 2), [guest(1, 3, cpus("0-7"), pins=["1", "1", "4"], memory={0: 3 * 1024})])
    assert values(host)["remote_memory"] == 1.0


def test_memory_that_is_farther_counts_more() -> None:
    host = snapshot(plain(8, 2), [guest(1, 1, cpus("0-7"), pins=["0"], memory={1: 10 * 1024})])
    far = tuple(replace(node, distances={node.id: 10, 1 - node.id: 40}) for node in host.topology.nodes)
    assert values(replace(host, topology=replace(host.topology, nodes=far)))["remote_memory"] == 30.0


@pytest.mark.parametrize(("pins", "expected"), [(["0", "1"], 0), (["0", "4"], 1), (["0-7", "0-7"], 1)])
def test_a_guest_that_fits_one_node_needs_no_second(pins: list[str], expected: int) -> None:
    host = snapshot(plain(8, 2), [guest(1, 2, cpus("0-7"), pins=pins)])
    assert values(host)["extra_nodes"] == expected


def test_a_cell_without_a_plugged_in_vcpu_needs_no_node() -> None:
    cells = (
        GuestCell(0, cpus("0-1"), 1, MemoryBinding("strict", (0,))),
        GuestCell(1, cpus("2-3"), 1, MemoryBinding("strict", (1,))),
    )
    half = guest(1, 2, cpus("0-15"), unplugged=2, numa=GuestNuma(cells))
    whole = guest(2, 4, cpus("0-15"), numa=GuestNuma(cells))
    assert values(snapshot(plain(16, 2), [half]))["extra_nodes"] == 1
    assert values(snapshot(plain(16, 2), [whole]))["extra_nodes"] == 0


def test_a_guest_wider_than_a_node_needs_two() -> None:
    host = snapshot(plain(8, 2), [guest(1, 5, cpus("0-7"))])
    assert values(host)["extra_nodes"] == 0


@pytest.mark.parametrize(
    ("pins", "expected"), [(["0", "1"], 0), (["1", "2"], 1), (["0", "2", "3"], 0), (["0", "2", "4"], 1)]
)
def test_caches_beyond_the_need_of_a_guest_count(pins: list[str], expected: int) -> None:
    top = with_caches(plain(8), "0-1", "2-3", "4-5", "6-7")
    host = snapshot(top, [guest(1, len(pins), cpus("0-7"), pins=pins)])
    assert values(host)["extra_l3"] == expected


def test_a_host_without_known_caches_spans_none() -> None:
    assert values(snapshot(plain(8), [guest(1, 4, cpus("0-7"))]))["extra_l3"] == 0


@pytest.mark.parametrize(("first", "second", "expected"), [("0", "1", 0), ("0", "4", 1), ("0-1", "4-5", 2)])
def test_a_core_of_two_guests_counts_once(first: str, second: str, expected: int) -> None:
    host = snapshot(
        interleaved(4, 1), [guest(1, 1, cpus("0-7"), pins=[first]), guest(2, 1, cpus("0-7"), pins=[second])]
    )
    assert values(host)["shared_cores"] == expected


def test_a_device_counts_by_the_share_of_vcpus_on_other_nodes() -> None:
    card = Device("pci", "0000:3b:00.0", 1)
    host = snapshot(plain(8, 2, devices=(card,)), [guest(1, 2, cpus("0-7"), pins=["0", "4"], pci=("0000:3b:00.0",))])
    assert values(host)["remote_devices"] == pytest.approx(0.5)


def test_idle_and_immovable_processes_do_not_count() -> None:
    processes = [
        process(2, 50.0, "0", immovable_reason="per-cpu"),
        process(300, 1.0, "0-7"),
        process(11_000, 90.0, "0-7", immovable_reason="guest"),
    ]
    host = snapshot(plain(8), [guest(1, 2, cpus("2-3"), pins=["4-7", "4-7"])], processes)
    assert contention(host) == CONTENTION


def busy_iothreads(load: float, run_ns: int | None = None, delay_ns: int | None = None) -> Snapshot:
    """48 iothreads on 8 CPUs, each with ``load`` per cent of one CPU."""
    own = guest(1, 1, cpus("0-7"), pins=["8"], iothreads=48)
    qemu = process(11_500, 48 * load, *["0-7"] * 48, immovable_reason="guest")
    threads = tuple(replace(each, run_ns=run_ns, delay_ns=delay_ns) for each in qemu.threads)
    return snapshot(plain(9), [own], [replace(qemu, threads=threads)])


def test_the_load_of_iothreads_beyond_their_cpus_counts() -> None:
    assert values(busy_iothreads(95.0))["qemu_overload"] == pytest.approx(48 * 0.95 - 8)


def test_iothreads_that_wait_for_a_cpu_want_more_than_they_use() -> None:
    """They use all of 8 CPUs, a sixth of a CPU each, and wait five times as long as they run."""
    assert values(busy_iothreads(100 / 6, 1_000, 5_000))["qemu_overload"] == pytest.approx(48 - 8)
    assert values(busy_iothreads(100 / 6))["qemu_overload"] == pytest.approx(0)


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_plan_improves_a_host_where_all_threads_float(strategy: str) -> None:
    top = plain(32, 2)
    host = snapshot(top, [guest(n, 8, top.online, memory={n: 5120}) for n in (0, 1)], [process(300, 80.0, "0-31")])
    made = plan(host, "s", Request(strategy)).objective
    assert made.gain > 0
    assert made.term("remote_memory").after == (0.0 if strategy == "numa-local" else 5.0)
    assert [made.term(name).after for name in CONTENTION] == [0.0] * len(CONTENTION)


def test_offline_cpus_in_an_affinity_take_no_share() -> None:
    """The kernel keeps them in the affinity of a thread, which runs on the online ones alone."""

    def measured(mask: str) -> dict[str, float]:
        threads = guest(1, 8, cpus(mask), memory={0: 2048}, iothreads=1)
        return values(snapshot(plain(8, 2, offline="6-7"), [threads], [process(300, 80.0, mask, mask)]))

    assert measured("0-7") == measured("0-5")
    assert measured("0-7")["overcommit"] == pytest.approx(2.0)


def test_a_plan_has_every_term_with_unit_and_weight() -> None:
    made = plan(snapshot(plain(8), [guest(1, 2, cpus("0-7"))]), "s", Request(weights={"extra_l3": 3}))
    assert [(term.name, term.tier, term.unit) for term in made.objective.terms] == [
        (kind.name, kind.tier, kind.unit) for kind in TERMS
    ]
    assert {term.name: term.weight for term in made.objective.terms} == weighted({"extra_l3": 3.0})


def test_the_cost_is_in_threads_and_in_memory_that_has_to_follow() -> None:
    host = snapshot(plain(8, 2), [guest(1, 2, cpus("0-3"), memory={0: 2048})])
    made = plan(host, "s", Request("numa-local")).objective
    assert (made.term("moved_threads").after, made.term("moved_memory").after) == (4, 0)
    pinned = replace(host, topology=plain(8, 2, isolated="5-7", offline="1-3"))
    away = plan(pinned, "s", Request("isolated"))
    assert away.unplaced == ()
    assert away.objective.term("moved_memory").after == 2


def test_weights_of_the_host_hold_where_the_request_has_none() -> None:
    host = snapshot(plain(8), [guest(1, 2, cpus("0-7"))], weights={"extra_l3": 3.0, "shared_cores": 4.0})
    made = plan(host, "s", Request(weights={"shared_cores": 0})).objective
    assert (made.term("extra_l3").weight, made.term("shared_cores").weight) == (3.0, 0.0)


@pytest.mark.parametrize(
    ("weights", "field", "value", "expected"),
    [
        ({"extra_l3": -1}, "weights.extra_l3", -1, "a number from 0 to 1000000"),
        ({"extra_l3": float("inf")}, "weights.extra_l3", float("inf"), "a number from 0 to 1000000"),
        ({"extra_l3": 1e300}, "weights.extra_l3", 1e300, "a number from 0 to 1000000"),
        ({"extra_l3": "2"}, "weights.extra_l3", "2", "a number from 0 to 1000000"),
        ({"extra_l3": True}, "weights.extra_l3", True, "a number from 0 to 1000000"),
        ({"caches": 1}, "weights", "caches", "the name of a term: unplaced_guests, extra_nodes"),
    ],
)
def test_a_wrong_weight_is_refused(weights: dict, field: str, value: object, expected: str) -> None:
    with pytest.raises(Invalid) as refusal:
        Request(weights=weights)
    assert (refusal.value.details["field"], refusal.value.details["value"]) == (field, value)
    assert expected in refusal.value.message
    with pytest.raises(Invalid, match="nan is not valid: a number from 0 to 1000000"):
        Request(weights={"extra_l3": float("nan")})


def test_requests_with_the_same_weights_are_equal_in_any_order() -> None:
    assert str(Request(weights={"extra_l3": 1, "shared_cores": 2})) == str(
        Request(weights={"shared_cores": 2.0, "extra_l3": 1.0})
    )


def test_rest_has_a_field_for_the_weight_of_each_term() -> None:
    assert list(Weights.model_fields) == [kind.name for kind in TERMS]


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ({}, {"vcpu_vs_host": 1.0}, True),
        ({"overcommit": 2.0}, {"vcpu_vs_host": 1.0}, False),
        ({"extra_l3": 1}, {"vcpu_vs_host": 1.0}, False),
        ({"unplaced_guests": 1}, {"extra_nodes": 1, "vcpu_vs_host": 1.0}, False),
        ({}, {"unplaced_guests": 1}, False),
        ({}, {"unplaced_guests": 1, "extra_nodes": 1}, True),
        ({}, {"overcommit": 2.0}, False),
        ({}, {"overcommit": 3.0}, True),
        ({}, {"overcommit": 3.0, "remote_devices": 1}, True),
        ({"vcpu_vs_host": 1.0}, {"overcommit": 2.5, "remote_devices": 1}, False),
        ({"vcpu_vs_host": 1.0}, {"extra_l3": 1}, True),
        ({"shared_cores": 1}, {"extra_l3": 2}, False),
        ({"extra_l3": 2}, {"shared_cores": 1}, True),
        ({}, {"moved_threads": 9, "moved_memory": 9.0}, False),
        ({}, {"vcpu_vs_host": 0.009}, False),
    ],
)
def test_a_tier_counts_only_where_the_tiers_above_it_are_equal(before: dict, after: dict, worse: bool) -> None:
    """Of any rise, 2 CPUs of overcommit and a guest without a place are excused."""
    excused = {"overcommit": 2.0, "unplaced_guests": 1.0}
    assert bool(worsening(compared(before, after, weighted(), excused=excused))) is worse


def test_a_weight_decides_between_terms_of_one_tier() -> None:
    for weights, worse in (({}, False), ({"vcpu_vs_host": 3.0}, True), ({"vcpu_vs_host": 0.0}, False)):
        objective = compared({"vcpu_vs_emulator": 2}, {"vcpu_vs_host": 1}, weighted(weights))
        assert bool(worsening(objective)) is worse


def test_terms_that_a_strategy_does_not_ask_for_make_its_plan_not_worse() -> None:
    """Two guests on a node each: a pool of all nodes spreads them, as shared-pool is asked to do."""
    pins = {1: ["0-7"] * 2, 2: ["8-15"] * 2}
    guests = [guest(n, 2, cpus("0-15"), pins=pins[n], memory={n - 1: 1024}) for n in pins]
    made = plan(snapshot(plain(16, 2), guests, [process(300, 50.0, "0-15")]), "s", Request())
    assert made.objective.term("extra_nodes").rise == 2
    assert made.worse == ""


def test_a_plan_that_returns_vcpus_to_their_recorded_cpus_is_not_worse_where_these_are_farther() -> None:
    request = Request("numa-local")
    host = snapshot(plain(16, 2), [guest(1, 2, cpus("0-15"), memory={0: 1024})])
    made = plan_from_placement(host, "s", request, None)
    placement = record(made, host, None)
    moved = guest(1, 2, cpus("9"), pins=["10-15", "10-15"], memory={1: 1024})
    back = plan_from_placement(replace(host, guests=(moved,)), "s", request, placement)
    assert {str(change.after) for change in back.changes if change.target.kind == "vcpu"} == {"2-7"}
    assert back.objective.term("remote_memory").rise > 0
    assert back.worse == ""


def test_a_plan_that_places_a_new_guest_is_not_worse() -> None:
    request = Request("numa-local", housekeeping="0", emulator="8")
    host = snapshot(plain(16, 2), [guest(1, 7, cpus("0-15"), memory={0: 1024})])
    placement = record(plan_from_placement(host, "s", request, None), host, None)
    newcomer = guest(2, 7, cpus("0-15"), pins=["1-7"] * 7, memory={0: 1024})
    made = plan_from_placement(replace(host, guests=(*host.guests, newcomer)), "s", request, placement)
    assert (made.objective.term("unplaced_guests").before, made.objective.term("unplaced_guests").after) == (1, 0)
    assert made.worse == ""


def test_the_rise_of_a_tier_is_the_difference_of_its_values() -> None:
    """Since Python 3.12 sum() adds floats up more exactly: the rise was 0.352208 before, and the value 0.352209."""
    after = {"host_overload": 0.62572, "qemu_overload": 0.065529, "vcpu_overload": 0.013168}
    objective = compared({}, after, weighted(dict.fromkeys(after, 0.5)), frozenset(after))
    asked = tuple(term for term in objective.terms if term.asked)
    assert value_of(asked) == (0.0, rise(asked))
