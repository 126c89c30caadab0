"""Plans from a recorded placement: guests start and stop, daemons restart, threads are moved, CPUs go offline."""

from dataclasses import replace

import pytest
from support.hosts import GIB, applied, cpus, guest, interleaved, plain, process, snapshot
from support.made_up.anyhost import STRATEGIES
from support.made_up.placed_hosts import idle, moved, with_guests

from pinner.model.guest.guest import Guest, NovaIdentity
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.planning.planner import plan
from pinner.planning.policy.backoff_counts import leave_out
from pinner.planning.request.processes import watched

ALL = cpus("0-15")
TWO_NODES = plain(16, nodes=2)
"""Housekeeping 0 and 8, emulators 1 and 9, vCPUs 2-7 and 10-15."""
ISOLATED = plain(16, nodes=2, isolated="2-7,10-15")
"""The same host with the vCPUs' CPUs isolated at boot."""


def placed(host: Snapshot, request: Request, before: Placement | None = None) -> tuple[Snapshot, Placement]:
    """The host after the policy's plan, and the placement recorded then."""
    made = planner.plan_from_placement(host, "s", request, before)
    return applied(host, made), record(made, host, before)


def vcpu_cpus(made: Plan, name: str) -> list[str]:
    return [str(want.cpus) for want in made.wanted if want.target.kind == "vcpu" and want.target.name == name]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_guest_moves_no_other_guest(strategy):
    request = Request(strategy)
    host, placement = placed(snapshot(ISOLATED if strategy == "isolated" else TWO_NODES, [guest(1, 2, ALL)]), request)
    newcomer = guest(2, 2, ALL, memory={1: GIB})
    made = planner.plan_from_placement(with_guests(host, [*host.guests, newcomer]), "s", request, placement)
    assert moved(made) == {"g2"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_guest_that_stops_moves_no_other_guest(strategy):
    request = Request(strategy)
    top = ISOLATED if strategy == "isolated" else TWO_NODES
    host, placement = placed(snapshot(top, [guest(n, 2, ALL) for n in (1, 2, 3)]), request)
    assert planner.plan_from_placement(with_guests(host, host.guests[1:]), "s", request, placement).changes == ()


@pytest.mark.parametrize("strategy", ["numa-local", "isolated"])
def test_a_guest_that_restarts_gets_its_recorded_cpus(strategy):
    request = Request(strategy)
    top = ISOLATED if strategy == "isolated" else TWO_NODES
    guests = [guest(n, 2, ALL, memory={1: GIB}) for n in (1, 2, 3)]
    host, placement = placed(snapshot(top, guests), request)
    before = vcpu_cpus(planner.plan_from_placement(host, "s", request, placement), "g2")
    # The placement is recorded again while the guest is off. After its start its memory is on the other node.
    away = with_guests(host, [host.guests[0], host.guests[2]])
    placement = record(planner.plan_from_placement(away, "s", request, placement), away, placement)
    again = replace(guest(2, 2, ALL, memory={0: GIB}), pid=77_000)
    made = planner.plan_from_placement(with_guests(away, [*away.guests, again]), "s", request, placement)
    assert moved(made) == {"g2"}
    assert vcpu_cpus(made, "g2") == before


@pytest.mark.parametrize("strategy", ["numa-local", "isolated"])
def test_a_guest_observed_while_it_starts_gets_its_recorded_cpus(strategy):
    request = Request(strategy)
    top = ISOLATED if strategy == "isolated" else TWO_NODES
    host, placement = placed(snapshot(top, [guest(n, 2, ALL, memory={1: GIB}) for n in (1, 2)]), request)
    before = vcpu_cpus(planner.plan_from_placement(host, "s", request, placement), "g2")
    # QEMU has just started: its vCPUs have no threads yet.
    early = with_guests(host, [host.guests[0], guest(2, 0, ALL, memory={0: GIB}, unplugged=2)])
    made = planner.plan_from_placement(early, "s", request, placement)
    placement = record(made, early, placement)
    later = with_guests(host, [host.guests[0], guest(2, 2, ALL, memory={0: GIB})])
    assert vcpu_cpus(planner.plan_from_placement(later, "s", request, placement), "g2") == before


def test_one_guest_moves_to_make_room_for_a_guest_that_fits_no_node():
    request = Request("isolated")
    # Node 0 has 6 CPUs, of which g1 has 4; node 1 has 6, of which g2 and g3 have 2 each.
    host, placement = placed(
        snapshot(
            ISOLATED,
            [
                guest(1, 4, ALL),
                guest(2, 2, ALL, memory={1: GIB}),
                guest(3, 2, ALL, memory={1: GIB}),
            ],
        ),
        request,
    )
    newcomer = guest(4, 4, ALL, memory={1: GIB})
    crowded = with_guests(host, [*host.guests, newcomer])
    made = planner.plan_from_placement(crowded, "s", request, placement)
    assert made.unplaced == ()
    assert moved(made) == {"g2", "g4"}
    assert plan(applied(crowded, made), "s", request).changes == ()


def test_no_guest_moves_where_that_makes_no_room():
    request = Request("isolated")
    host, placement = placed(snapshot(ISOLATED, [guest(n, 3, ALL) for n in (1, 2, 3)]), request)
    made = planner.plan_from_placement(with_guests(host, [*host.guests, guest(4, 5, ALL)]), "s", request, placement)
    assert moved(made) == set()
    assert [left.label for left in made.unplaced] == ["guest g4"]


def test_a_rebalance_moves_guests_to_their_memory_and_gives_cost_and_gain():
    request = Request("numa-local")
    # Both guests are on node 1, where their memory was when the policy placed them.
    host, placement = placed(snapshot(TWO_NODES, [guest(n, 2, ALL, memory={1: GIB}) for n in (1, 2)]), request)
    host = with_guests(host, [replace(each, memory_per_node={0: GIB}) for each in host.guests])
    assert planner.plan_from_placement(host, "s", request, placement).changes == ()
    rebalanced = plan(host, "s", replace(request, rebalance=True))
    assert vcpu_cpus(rebalanced, "g1") == ["2-7", "2-7"]
    assert rebalanced.rebalance is not None
    assert rebalanced.objective.term("remote_memory").after == 0
    assert rebalanced.objective.gain == 2 * 1024


def test_a_rebalance_that_gains_nothing_has_no_changes():
    request = Request("isolated")
    host, _ = placed(snapshot(ISOLATED, [guest(n, 2, ALL) for n in (1, 2, 3)]), request)
    without_the_first = with_guests(host, host.guests[1:])
    made = plan(without_the_first, "s", replace(request, rebalance=True))
    assert made.changes == ()
    assert made.rebalance is not None
    assert (made.rebalance.taken, made.rebalance.gain <= 0, made.rebalance.guests) == (False, True, 2)


CACHES = replace(
    plain(18, isolated="2-17"),
    cpus=tuple(replace(cpu, l3=0 if cpu.id < 2 else 1 + (cpu.id - 2) // 4) for cpu in plain(18, isolated="2-17").cpus),
)
"""Isolated CPUs 2-17 with four level-3 caches of four CPUs each."""


def test_a_rebalance_is_taken_where_guests_span_fewer_caches_anew():
    floor = cpus("0-1")
    apart = [guest(1, 4, floor, pins=["2", "3", "6", "7"]), guest(2, 4, floor, pins=["4", "5", "8", "9"])]
    made = plan(snapshot(CACHES, apart), "s", Request("isolated", rebalance=True))
    assert made.rebalance is not None
    assert made.rebalance.taken
    assert made.rebalance.gain == 2
    assert [(term.name, term.before, term.after) for term in made.rebalance.terms] == [("extra_l3", 2, 0)]
    assert plan(applied(snapshot(CACHES, apart), made), "s", Request("isolated", rebalance=True)).changes == ()


def test_a_rebalance_that_gains_takes_no_guests_place_for_another_guest():
    """The two isolated CPUs are near the memory of both guests, and the first guest has none: it would gain 2 GiB."""
    top, near = plain(8, 2, isolated="6-7"), {1: 2 * GIB}
    placed, other = guest(2, 2, cpus("4-5"), pins=["6", "7"], memory=near), guest(1, 2, cpus("0-1"), memory=near)
    made = plan(snapshot(top, [other, placed]), "s", Request("isolated", rebalance=True))
    assert made.rebalance is not None
    assert (made.rebalance.taken, made.rebalance.gain) == (False, 2048)
    assert [left.target.name for left in made.unplaced] == ["g1"]
    assert vcpu_cpus(made, "g2") == ["6", "7"]


def test_a_rebalance_is_not_taken_for_a_term_without_weight():
    apart = [guest(1, 4, cpus("0-1"), pins=["2", "3", "6", "7"])]
    request = Request("isolated", rebalance=True, weights={"extra_l3": 0})
    made = plan(snapshot(CACHES, apart), "s", request)
    assert made.rebalance is not None
    assert (made.rebalance.taken, made.rebalance.gain, made.changes[:0]) == (False, 0, ())
    assert not [change for change in made.changes if change.target.kind == "vcpu"]


def test_a_rebalance_is_taken_where_guests_share_fewer_cores_anew():
    top = interleaved(8, 1, isolated="4-7,12-15")
    apart = [guest(1, 2, cpus("0-3"), pins=["4", "5"]), guest(2, 2, cpus("0-3"), pins=["12", "13"])]
    made = plan(snapshot(top, apart), "s", Request("isolated", rebalance=True))
    assert made.rebalance is not None
    assert (made.rebalance.taken, made.objective.term("shared_cores").after) == (True, 0)


def test_a_rebalance_counts_the_guests_and_threads_that_it_moves():
    request = Request("isolated")
    top = interleaved(8, isolated="4-7,12-15")
    apart = [
        guest(1, 2, cpus("0-15"), pins=["4", "12"], memory={1: GIB}),
        guest(2, 2, cpus("0-15"), pins=["5", "13"], memory={0: GIB}),
    ]
    stay = plan(snapshot(top, apart), "s", request)
    rebalanced = plan(snapshot(top, apart), "s", replace(request, rebalance=True))
    assert rebalanced.rebalance is not None
    assert (rebalanced.rebalance.taken, rebalanced.rebalance.guests) == (True, 2)
    elsewhere = [new for old, new in zip(stay.wanted, rebalanced.wanted, strict=True) if old.cpus != new.cpus]
    threads = {"emulator": 2, "vcpu": 1}
    assert rebalanced.rebalance.threads == sum(threads[want.target.kind] for want in elsewhere)
    gain = stay.objective.term("remote_memory").after - rebalanced.objective.term("remote_memory").after
    assert rebalanced.rebalance.gain == pytest.approx(gain)


DAEMON = process(500, 50.0, "0-15", "0-15", name="daemon")


def test_a_restarted_daemon_goes_to_housekeeping_without_a_measurement():
    request = Request()
    host, placement = placed(snapshot(TWO_NODES, [], [DAEMON, process(600, 0.0, "0-15", name="idle")]), request)
    again = replace(process(900, 0.0, "0-15", name="daemon"), started=70)
    made = planner.plan_from_placement(idle(host, again, host.processes[1]), "s", request, placement)
    assert [(str(change.target), str(change.after)) for change in made.changes] == [("process daemon (900)", "0,8")]
    assert watched(placement) == ("daemon",)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"name": "other"}, False),
        ({"unit": "daemon.service", "command": "/usr/bin/daemon --other"}, True),
        ({"unit": "another.service"}, False),
        ({"unit": "session-3.scope", "command": "/usr/bin/daemon --other"}, False),
    ],
)
def test_a_restarted_daemon_is_found_by_its_service_and_name(other, expected):
    host, placement = placed(snapshot(TWO_NODES, [], [DAEMON]), Request())
    again = replace(process(900, 0.0, "0-15", name="daemon"), started=70, **other)
    made = planner.plan_from_placement(idle(host, again), "s", Request(), placement)
    assert bool(made.changes) is expected


def test_a_restarted_process_without_a_service_is_found_by_its_command_line():
    script = replace(DAEMON, unit="session-3.scope", command="python3 work.py")
    host, placement = placed(snapshot(TWO_NODES, [], [script]), Request())
    for command, expected in (("python3 work.py", 1), ("python3 play.py", 0)):
        again = replace(process(900, 0.0, "0-15", name="daemon"), started=70, unit="user-9.scope", command=command)
        assert len(planner.plan_from_placement(idle(host, again), "s", Request(), placement).changes) == expected


def test_an_older_idle_process_of_the_same_name_stays_where_it_is():
    sibling = process(510, 0.0, "0-15", name="daemon")
    host, placement = placed(snapshot(TWO_NODES, [], [DAEMON, sibling]), Request())
    assert planner.plan_from_placement(idle(host), "s", Request(), placement).changes == ()


def test_a_daemon_is_found_after_a_reboot_although_start_times_are_lower():
    host, placement = placed(snapshot(TWO_NODES, [], [replace(DAEMON, started=90_000)]), Request())
    again = replace(process(400, 0.0, "0-15", name="daemon"), started=3)
    assert len(planner.plan_from_placement(idle(host, again), "s", Request(), placement).changes) == 1


def test_a_moved_daemon_is_moved_back_and_its_new_cpus_stay_allocatable():
    host, placement = placed(snapshot(TWO_NODES, [guest(1, 2, ALL)], [DAEMON]), Request())
    threads = tuple(
        replace(each, affinity=cpus("3"), immovable_reason="restricted") for each in host.processes[0].threads
    )
    tampered = idle(host, replace(host.processes[0], threads=threads))
    made = planner.plan_from_placement(tampered, "s", Request(), placement)
    assert moved(made) == {"daemon"}
    assert 3 in made.roles.vcpu


def test_a_thread_restricted_before_the_placement_stays_restricted():
    pinned = process(500, 50.0, "0-15", "5", name="daemon", reasons=["", "restricted"])
    host, placement = placed(snapshot(TWO_NODES, [], [pinned]), Request())
    assert 5 not in placement.roles.vcpu
    made = planner.plan_from_placement(idle(host), "s", Request(), placement)
    assert made.changes == ()
    assert made.roles == placement.roles


def test_a_process_that_restricts_itself_later_moves_no_guest():
    host, placement = placed(snapshot(TWO_NODES, [guest(1, 2, ALL)], [DAEMON]), Request())
    newcomer = process(700, 0.0, "5", name="pmd", reasons=["restricted"], reserves="privileged")
    crowded = idle(host, *host.processes, newcomer)
    made = planner.plan_from_placement(crowded, "s", Request(), placement)
    assert (made.changes, made.roles) == ((), placement.roles)
    assert [warning for warning in made.warnings if "pmd (700)" in warning and "restricted it to CPUs 5," in warning]
    assert 5 not in plan(crowded, "s", Request(rebalance=True)).roles.vcpu


def assert_second_run_changes_nothing(host: Snapshot, request: Request, placement: Placement) -> None:
    again = planner.plan_from_placement(host, "s", request, placement)
    assert again.changes == ()
    assert record(again, host, placement).roles == placement.roles


def offline(host: Snapshot, cpu: int) -> Snapshot:
    gone = tuple(replace(each, online=each.online and each.id != cpu) for each in host.topology.cpus)
    return replace(host, topology=replace(host.topology, cpus=gone))


def test_an_offline_cpu_moves_only_its_guest_and_is_used_again_when_it_is_online():
    request = Request("isolated")
    whole, placement = placed(snapshot(ISOLATED, [guest(n, 2, ALL) for n in (1, 2)]), request)
    made = planner.plan_from_placement(offline(whole, 2), "s", request, placement)
    assert moved(made) == {"g1"}
    assert made.roles.vcpu == placement.roles.vcpu - cpus("2")
    later = record(made, offline(whole, 2), placement)
    assert later.roles == placement.roles
    back = planner.plan_from_placement(applied(whole, made), "s", request, later)
    assert back.roles == placement.roles


def test_a_role_without_any_of_its_cpus_makes_do_with_others_until_they_are_online_again():
    whole, placement = placed(snapshot(plain(8), [guest(1, 2, cpus("0-7"))]), Request())
    host, later = placed(offline(whole, 0), Request(), placement)
    assert str(planner.plan_from_placement(host, "s", Request(), later).roles.housekeeping) == "1"
    assert later.roles == placement.roles
    assert_second_run_changes_nothing(host, Request(), later)
    back = planner.plan_from_placement(replace(host, topology=whole.topology), "s", Request(), later)
    assert back.roles == placement.roles


def dedicated_guest(mask: str) -> Guest:
    """A guest that Nova pinned to these CPUs, one for each vCPU."""
    return guest(9, len(cpus(mask)), cpus(mask), pins=[str(cpu) for cpu in cpus(mask)], dedicated=True)


@pytest.mark.parametrize("claimed", ["4-15", "2-15", "4-14"])
def test_guests_are_on_their_cpus_again_after_nova_has_pinned_a_guest_to_all_of_them_for_a_while(claimed):
    whole, placement = placed(snapshot(plain(16), [guest(1, 2, ALL), guest(2, 2, ALL)]), Request())
    host, squeezed = placed(with_guests(whole, [*whole.guests, dedicated_guest(claimed)]), Request(), placement)
    assert not host.guests[0].vcpus[0].thread.affinity & cpus(claimed)
    assert_second_run_changes_nothing(host, Request(), squeezed)
    alone, after = placed(with_guests(host, host.guests[:2]), Request(), squeezed)
    assert (alone.guests, after.roles) == (whole.guests, placement.roles)
    assert_second_run_changes_nothing(alone, Request(), after)


def test_floating_guests_are_on_their_cpus_again_beside_guests_of_another_strategy():
    """The isolated CPUs of one guest stay, and the floating set of the other has lost all of its own."""
    request, flavor = Request(), NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "isolated"})
    isolated = replace(guest(2, 2, ALL), nova=flavor)
    host = snapshot(plain(16, isolated="12-15"), [guest(1, 2, cpus("0-11")), isolated])
    whole, placement = placed(host, request)
    host, squeezed = placed(with_guests(whole, [*whole.guests, dedicated_guest("4-11")]), request, placement)
    assert not host.guests[0].vcpus[0].thread.affinity & cpus("4-11")
    assert_second_run_changes_nothing(host, request, squeezed)
    alone, after = placed(with_guests(host, host.guests[:2]), request, squeezed)
    assert (alone.guests, after.roles) == (whole.guests, placement.roles)


def test_a_rebalance_sets_the_roles_anew_where_no_cpu_of_a_role_is_left():
    whole, placement = placed(snapshot(plain(8), [guest(1, 2, cpus("0-7"))]), Request())
    host = offline(whole, 0)
    made = planner.plan_from_placement(host, "s", Request(rebalance=True), placement)
    assert str(record(made, host, placement).roles.housekeeping) == "1"


@pytest.mark.parametrize("mark", ["metadata", "name", "uuid"])
def test_an_excluded_guest_is_skipped_and_the_cpus_it_is_pinned_to_are_in_no_set(mark):
    own = guest(1, 2, ALL, pins=["4", "5"], excluded=mark == "metadata")
    request = Request(excluded_guests={"name": ("g1",), "uuid": (own.uuid,), "metadata": ("absent",)}[mark])
    made = plan(snapshot(TWO_NODES, [own, guest(2, 2, ALL)]), "s", request)
    assert moved(made) == {"g2"}
    assert not made.roles.vcpu & cpus("4-5")
    assert [left.label == "guest g1" for left in made.skipped] == [True]


def test_the_cpus_of_an_excluded_guest_that_floats_are_allocatable():
    made = plan(snapshot(TWO_NODES, [guest(1, 2, cpus("2-7,10-15"), excluded=True), guest(2, 2, ALL)]), "s", Request())
    assert str(made.roles.vcpu) == "2-7,10-15"


@pytest.mark.parametrize("mark", ["excluded", "leaving"])
def test_a_guest_in_a_pool_of_one_cpu_does_not_take_the_pool_away_from_the_others(mark):
    """Two CPUs: one for the host, and one on which all guests float. An excluded guest keeps none of them."""
    host, placement = placed(snapshot(plain(2), [guest(1, 1, cpus("0-1")), guest(2, 2, cpus("0-1"))]), Request())
    floating = next(each for each in host.guests if each.name == "g1")
    assert {str(vcpu.thread.affinity) for vcpu in floating.vcpus} == {"1"}
    floating = replace(floating, pooled=cpus("1"), **{mark: True})
    restarted = guest(2, 2, cpus("0"))
    made = planner.plan_from_placement(snapshot(plain(2), [floating, restarted]), "s", Request(), placement)
    assert {str(change.target): str(change.after) for change in made.changes} == dict.fromkeys(
        ("guest g2 emulator", "guest g2 vcpu 0", "guest g2 vcpu 1"), "1"
    )
    assert made.roles == placement.roles


@pytest.mark.parametrize("named", ["daemon", "daemon.service"])
def test_an_excluded_process_stays_even_when_it_is_asked_for(named):
    host = snapshot(TWO_NODES, [], [DAEMON])
    made = plan(host, "s", Request(excluded_processes=(named,), processes=("daemon",)))
    assert made.changes == ()
    assert [left.why for left in made.skipped] == ["50.0 % of one CPU; the request excludes it (excluded_processes)"]


def test_a_policy_may_name_absent_guests_and_processes():
    request = Request(guests=("absent",), processes=("absent",))
    made = planner.plan_from_placement(snapshot(TWO_NODES, [guest(1, 2, ALL)]), "s", request, None)
    assert made.changes == ()


def test_the_changes_of_given_targets_can_be_left_out_of_a_plan():
    host = snapshot(TWO_NODES, [guest(1, 2, ALL)])
    made = planner.plan_from_placement(host, "s", Request(), None)
    excluded = ("vcpu", host.guests[0].uuid, 1)
    less = leave_out(made, {excluded: "it waits"}, None, host)
    assert len(less.changes) == len(made.changes) - 1
    assert less.id != made.id
    assert leave_out(made, {("vcpu", "absent", 0): "it waits"}, None, host) is made
