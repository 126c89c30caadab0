"""The difference between a placement and a snapshot, and its cause."""

from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import Vcpu
from pinner.model.machine.process import Thread
from pinner.model.plan.plan import Placement
from pinner.model.plan.request import Request
from pinner.model.policy import Drift
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import drifts, reasoned, record

ALL = cpus("0-15")
REQUEST = Request()
FREE = snapshot(plain(16), [guest(1, 2, ALL, iothreads=1)], [process(500, 50.0, "0-15", "0-15", name="daemon")])
PLAN = planner.plan_from_placement(FREE, "s", REQUEST, None)
PLACEMENT = record(PLAN, FREE, None)
HOST = replace(applied(FREE, PLAN), sample_seconds=0.0)
"""Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
(G1,) = HOST.guests
(DAEMON,) = HOST.processes


def found(host: Snapshot, placement: Placement | None = PLACEMENT) -> list[tuple[str, str]]:
    return [(str(drift.target), drift.cause) for drift in drifts_of(host, placement)]


def drifts_of(host: Snapshot, placement: Placement | None = PLACEMENT) -> tuple[Drift, ...]:
    return drifts(planner.plan_from_placement(host, "s", REQUEST, placement), placement, host)


def with_guest(changed: object) -> Snapshot:
    return replace(HOST, guests=(changed,))


def with_process(**changed: object) -> Snapshot:
    return replace(HOST, processes=(replace(DAEMON, **changed),))


def on(part: object, mask: str, **other: object) -> object:
    """A vCPU or iothread whose thread may run elsewhere."""
    return replace(part, thread=replace(part.thread, affinity=cpus(mask), **other))


def test_a_host_with_the_recorded_affinities_has_no_drift():
    assert drifts_of(HOST) == ()


def test_without_a_placement_every_target_is_newly_placed():
    assert {cause for _, cause in found(FREE, None)} == {"arrived", "busy"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        pytest.param(
            with_guest(replace(G1, vcpus=(on(G1.vcpus[0], "4"), G1.vcpus[1]))),
            [("guest g1 vcpu 0", "unknown")],
            id="a vCPU was moved",
        ),
        pytest.param(
            with_guest(replace(G1, vcpus=(*G1.vcpus, Vcpu(2, Thread(77, 9, "CPU 2/KVM", ALL), ALL)))),
            [("guest g1 vcpu 2", "hotplug")],
            id="a vCPU was plugged in",
        ),
        pytest.param(
            with_guest(replace(G1, iothreads=(on(G1.iothreads[0], "0-15", tid=88, started=9),))),
            [("guest g1 iothread 1", "restarted")],
            id="an iothread was plugged out and in",
        ),
        pytest.param(
            with_guest(
                replace(
                    G1,
                    emulator=replace(G1.emulator, threads=(*G1.emulator.threads, Thread(99, 9, "worker", ALL))),
                )
            ),
            [("guest g1 emulator", "thread")],
            id="a new worker runs elsewhere",
        ),
        pytest.param(
            with_process(pid=900, started=9, threads=(Thread(900, 9, "daemon", ALL),)),
            [("process daemon (900)", "restarted")],
            id="the daemon was restarted",
        ),
        pytest.param(
            with_process(threads=(*DAEMON.threads, Thread(555, 9, "daemon", ALL))),
            [("process daemon (500)", "thread")],
            id="a new thread of the daemon runs elsewhere",
        ),
        pytest.param(
            with_process(
                threads=(
                    replace(DAEMON.threads[0], affinity=cpus("9"), immovable_reason="restricted"),
                    DAEMON.threads[1],
                )
            ),
            [("process daemon (500)", "unknown")],
            id="a thread of the daemon was moved",
        ),
        pytest.param(
            replace(
                HOST,
                sample_seconds=5.0,
                processes=(*HOST.processes, process(600, 30.0, "0-15", name="worker")),
            ),
            [("process worker (600)", "busy")],
            id="another process became busy",
        ),
        pytest.param(
            replace(HOST, guests=(G1, guest(2, 1, ALL))),
            [("guest g2 emulator", "arrived"), ("guest g2 vcpu 0", "arrived")],
            id="a guest was started",
        ),
        pytest.param(
            with_guest(replace(guest(3, 2, ALL, iothreads=1), uuid=G1.uuid, name="g1")),
            [
                ("guest g1 emulator", "restarted"),
                ("guest g1 iothread 1", "restarted"),
                ("guest g1 vcpu 0", "restarted"),
                ("guest g1 vcpu 1", "restarted"),
            ],
            id="the guest was stopped and started",
        ),
    ],
)
def test_the_cause_of_a_drift_follows_from_the_change_of_the_host(host: Snapshot, expected: list[tuple[str, str]]):
    assert found(host) == expected


def test_a_cpu_that_goes_offline_or_comes_online_is_the_cause():
    gone = tuple(replace(each, online=each.id != 15) for each in HOST.topology.cpus)
    host = replace(HOST, topology=replace(HOST.topology, cpus=gone))
    assert set(found(host)) == {("guest g1 vcpu 0", "offline"), ("guest g1 vcpu 1", "offline")}
    made = planner.plan_from_placement(host, "s", REQUEST, PLACEMENT)
    later = record(made, host, PLACEMENT)
    assert {cause for _, cause in found(applied(HOST, made), later)} == {"offline"}


def test_a_guest_that_moves_to_make_room_has_the_cause_moved():
    isolated = snapshot(
        plain(16, nodes=2, isolated="2-7,10-15"), [guest(1, 4, ALL), *(guest(n, 2, ALL, memory={1: 9}) for n in (2, 3))]
    )
    request = Request("isolated")
    first = planner.plan_from_placement(isolated, "s", request, None)
    placement, host = record(first, isolated, None), applied(isolated, first)
    host = replace(host, guests=(*host.guests, guest(4, 4, ALL, memory={1: 9})))
    found = drifts(planner.plan_from_placement(host, "s", request, placement), placement, host)
    assert {(each.target.name, each.cause) for each in found} >= {("g2", "moved"), ("g4", "arrived")}


def test_a_drift_shows_only_the_misplaced_threads():
    (drift,) = drifts_of(with_process(threads=(replace(DAEMON.threads[0], affinity=cpus("9")), DAEMON.threads[1])))
    assert [(mask.tid, str(mask.cpus)) for mask in drift.actual] == [(500, "9")]
    assert str(drift.expected) == "0-1"


def test_the_reason_of_each_change_starts_with_its_cause():
    host = with_guest(replace(G1, vcpus=(on(G1.vcpus[0], "4"), on(G1.vcpus[1], "5"))))
    made = planner.plan_from_placement(host, "s", REQUEST, PLACEMENT)
    first, second = drifts(made, PLACEMENT, host)
    explained = reasoned(made, (replace(first, cause="libvirt", detail="virsh vcpupin at 12:00"), second))
    assert [change.reason.partition(";")[0] for change in explained.changes] == [
        "virsh vcpupin at 12:00",
        "moved by another program",
    ]


def test_what_pinner_may_not_move_is_no_drift_although_it_was_placed_before():
    free = snapshot(plain(16), [guest(1, 2, ALL, vhost_threads=1)], FREE.processes)
    made = planner.plan_from_placement(free, "s", REQUEST, None)
    placement = record(made, free, None)
    assert {"process", "vhost"} < {each.target.kind for each in placement.placed}
    (placed,) = applied(free, made).guests
    (vhost,) = free.guests[0].vhost_threads
    lost = replace(placed, vhost_threads=(replace(vhost, immovable_reason="not-permitted"),))
    daemon = replace(free.processes[0], immovable_reason="not-permitted")
    assert drifts_of(replace(HOST, guests=(lost,), processes=(daemon,)), placement) == ()
