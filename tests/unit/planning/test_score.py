"""The objective, compared with results computed by hand."""

import pytest
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.request import Request
from pinner.planning.planner import plan
from pinner.planning.score import score

QUIET = {
    "vcpu_vs_host": 0,
    "vcpu_vs_emulator": 0,
    "emulator_vs_host": 0,
    "overcommit": 0,
    "remote_nodes": 0,
    "overload": 0,
}


def test_every_part_counts_where_all_threads_float_over_all_cpus() -> None:
    """Four CPUs; 2 vCPUs, one emulator, one iothread and a process of 80 % of a CPU spread over all of them."""
    host = snapshot(plain(4), [guest(1, 2, cpus("0-3"), iothreads=1)], [process(300, 80.0, "0-3", "0-3")])
    expected = {
        "vcpu_vs_host": 4 * 0.5 * 0.2,
        "vcpu_vs_emulator": 4 * 0.5 * 0.5,
        "emulator_vs_host": 4 * 0.5 * 0.2,
        "overcommit": 0.0,
        "remote_nodes": 0.0,
        "overload": 0.0,
    }
    found = score(host, 2.0, {})
    assert found.parts == pytest.approx(expected)
    assert found.total == pytest.approx(sum(expected.values()))


def test_threads_on_separate_cpus_score_zero() -> None:
    host = snapshot(plain(8), [guest(1, 2, cpus("2-3"), pins=["4-7", "4-7"])], [process(300, 80.0, "0-1")])
    assert score(host, 2.0, {}).parts == QUIET
    assert score(host, 2.0, {}).total == 0


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
    found = score(host, 2.0, {tid: cpus(text) for tid, text in planned.items()})
    assert found.parts == pytest.approx(QUIET | {part: expected})


@pytest.mark.parametrize(
    ("memory", "pins", "expected"),
    [
        ({0: 10}, ["0-3", "0-3"], 0.0),
        ({0: 10}, ["0-7", "0-7"], 1.0),
        ({0: 10}, ["4", "5"], 2.0),
        ({0: 3, 1: 7}, ["4", "0"], 0.3 + 0.7),
        ({}, ["4", "5"], 0.0),
    ],
)
def test_remote_memory_counts_once_for_each_vcpu(memory: dict[int, int], pins: list[str], expected: float) -> None:
    host = snapshot(plain(8, 2), [guest(1, 2, cpus("0-7"), pins=pins, memory=memory)])
    assert score(host, 2.0, {}).parts["remote_nodes"] == pytest.approx(expected)


def test_idle_and_immovable_processes_do_not_count() -> None:
    processes = [
        process(2, 50.0, "0", immovable_reason="per-cpu"),
        process(300, 1.0, "0-7"),
        process(11_000, 90.0, "0-7", immovable_reason="guest"),
    ]
    host = snapshot(plain(8), [guest(1, 2, cpus("2-3"), pins=["4-7", "4-7"])], processes)
    assert score(host, 2.0, {}).total == 0


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local"])
def test_a_plan_improves_a_host_where_all_threads_float(strategy: str) -> None:
    top = plain(32, 2)
    host = snapshot(top, [guest(n, 8, top.online, memory={n: 5}) for n in (0, 1)], [process(300, 80.0, "0-31")])
    made = plan(host, "s", Request(strategy))
    assert made.score_after.total < made.score_before.total
    assert made.score_after.parts["remote_nodes"] == (0.0 if strategy == "numa-local" else 8.0)
    assert {name: part for name, part in made.score_after.parts.items() if name != "remote_nodes"} == {
        name: 0 for name in QUIET if name != "remote_nodes"
    }
