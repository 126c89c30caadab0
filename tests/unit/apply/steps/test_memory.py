"""Memory that follows its guest's vCPUs, and how much of it an undo can restore."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, memory, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.change import MemoryChange
from pinner.model.errors import ApplyFailed, Gone, Invalid, StalePlan
from pinner.model.plan.plan import GuestMemory
from pinner.model.run.journal import NodeMemory

MIB = 1024
HOME, AWAY, THIRD = 0, 1, 4


def host_with(per_node, numatune=""):
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.per_node[memory()] = dict(per_node)
    if numatune:
        host.numatunes[memory()] = numatune
    return host


def the_plan(host, home=HOME):
    plan = host.plan(host.change(vcpu(0), "0-3"))
    per_node = dict(host.per_node.get(memory(), {AWAY: 1}))
    return replace(plan, memory=(GuestMemory(memory(), per_node, 0, 0, home),))


def apply(plan, host, journal, name="run-1"):
    run = make_run(name, migrate_memory=True)
    return executor.apply(plan, run, host, journal, lambda: NOON, lambda *_: None)


def rollback(host, journal):
    run = make_run("back", kind="rollback", undoes="run-1")
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


def entry(journal, run="run-1"):
    return journal.entries(run)[-1]


def test_there_and_back_from_one_node_exactly(journal):
    host = host_with({AWAY: 500 * MIB})
    assert apply(the_plan(host), host, journal).state == "applied"
    assert host.per_node[memory()] == {HOME: 500 * MIB, AWAY: 0}
    made = entry(journal)
    reason = "500.0 MiB are remote: its vCPUs get node 0"
    assert made.change == MemoryChange(memory(), {AWAY: 500 * MIB}, HOME, "", reason)
    assert made.memory == (
        NodeMemory(HOME, before_kib=0, moved_kib=-500 * MIB, stayed_kib=500 * MIB),
        NodeMemory(AWAY, before_kib=500 * MIB, moved_kib=500 * MIB, stayed_kib=0),
    )
    assert rollback(host, journal).state == "rolled_back"
    assert host.per_node[memory()] == {HOME: 0, AWAY: 500 * MIB}
    assert host.kernel() == {100: "0-7"}
    assert (entry(journal).state, entry(journal).error) == ("undone", "")


def test_it_is_journaled_before_it_is_made_and_after_the_pins(journal):
    host = host_with({HOME: 1, AWAY: 500 * MIB})
    seen = []
    host.before_write = lambda write: seen.append((write, entry(journal).state, entry(journal).change.before))
    apply(the_plan(host), host, journal)
    before = {HOME: 1, AWAY: 500 * MIB}
    assert seen == [
        (("guest g1 vcpu 0", "0-3"), "intent", before),
        (("guest g1 memory", "[1] -> 0"), "intent", before),
    ]


def test_memory_that_stays_is_reported_and_no_failure(journal):
    host = host_with({HOME: MIB, AWAY: 300 * MIB, THIRD: 200 * MIB})
    host.pages_stay = {AWAY: 100 * MIB, THIRD: 200 * MIB}
    assert apply(the_plan(host), host, journal).state == "applied"
    found = {part.node: (part.moved_kib, part.stayed_kib) for part in entry(journal).memory}
    assert found == {
        HOME: (-200 * MIB, 201 * MIB),
        AWAY: (200 * MIB, 100 * MIB),
        THIRD: (0, 200 * MIB),
    }


def test_a_second_apply_changes_nothing(journal):
    host = host_with({AWAY: 500 * MIB})
    plan = the_plan(host)
    apply(plan, host, journal)
    host.per_node[memory()].pop(AWAY)
    host.writes.clear()
    assert apply(plan, host, journal, "run-2").state == "applied"
    assert journal.entries("run-2") == ()
    assert host.writes == []


def test_without_the_option_no_memory_moves(journal):
    host = host_with({AWAY: 500 * MIB})
    executor.apply(the_plan(host), make_run(), host, journal, lambda: NOON, lambda *_: None)
    assert [str(each.change.target) for each in journal.entries("run-1")] == ["guest g1 vcpu 0"]


@pytest.mark.parametrize("cut", [{"memory": ()}, {}])
def test_a_plan_that_gives_no_node_is_refused(journal, cut):
    host = host_with({AWAY: 5})
    with pytest.raises(Invalid, match="migrate_memory: True is not valid: false: this plan gives no guest one"):
        apply(replace(the_plan(host, home=None), **cut), host, journal)
    assert host.writes == []


def test_a_guest_that_was_started_anew_makes_the_plan_stale(journal):
    host = host_with({AWAY: 5})
    plan = the_plan(host)
    del host.per_node[memory()]
    with pytest.raises(StalePlan, match="guest g1 memory is gone"):
        apply(plan, host, journal)
    assert host.writes == []


def test_a_numatune_is_changed_through_libvirt_and_restored(journal):
    host = host_with({AWAY: 500 * MIB}, numatune="1,4")
    apply(the_plan(host), host, journal)
    assert host.writes[1:] == [("numatune of g1", "0"), ("guest g1 memory", "[1] -> 0")]
    assert rollback(host, journal).state == "rolled_back"
    assert host.numatunes == {memory(): "1,4"}
    assert host.per_node[memory()] == {HOME: 0, AWAY: 500 * MIB}


def test_a_kernel_that_refuses_undoes_the_run(journal):
    host = host_with({AWAY: 500 * MIB}, numatune="1")

    def refuse(write):
        if write == ("guest g1 memory", "[1] -> 0"):
            raise ApplyFailed("memory", "node 0 has too little free memory")

    host.before_write = refuse
    run = apply(the_plan(host), host, journal)
    assert (run.state, run.error) == ("undone", "memory: node 0 has too little free memory")
    assert [each.state for each in journal.entries("run-1")] == ["undone", "failed"]
    assert host.kernel() == {100: "0-7"}
    assert host.numatunes == {memory(): "1"}
    assert host.per_node[memory()] == {AWAY: 500 * MIB}


def test_a_guest_that_ends_meanwhile_is_gone(journal):
    host = host_with({AWAY: 500 * MIB})

    def end(write):
        if write[0] == "guest g1 memory":
            raise Gone("guest g1")

    host.before_write = end
    assert apply(the_plan(host), host, journal).state == "applied"
    assert entry(journal).state == "gone"


@pytest.mark.parametrize(
    ("before", "back", "state", "misplaced"),
    [
        ({HOME: 3 * MIB, AWAY: 500 * MIB}, {HOME: 0, AWAY: 503 * MIB}, "undone", "3.0 MiB"),
        ({HOME: 4, AWAY: 500 * MIB}, {HOME: 0, AWAY: 500 * MIB + 4}, "undone", "4 KiB"),
        ({AWAY: 200 * MIB, THIRD: 300 * MIB}, {HOME: 0, AWAY: 0, THIRD: 500 * MIB}, "stuck", "200.0 MiB"),
        ({HOME: 500 * MIB, AWAY: 100 * MIB}, {HOME: 600 * MIB, AWAY: 0}, "stuck", "100.0 MiB"),
    ],
    ids=["libraries", "a-page", "two-sources", "most-was-at-home"],
)
def test_pages_that_cannot_be_separated_are_reported_with_numbers(journal, before, back, state, misplaced):
    host = host_with(before)
    apply(the_plan(host), host, journal)
    run = rollback(host, journal)
    assert host.per_node[memory()] == back
    undone = entry(journal)
    assert undone.state == state
    assert undone.error.startswith(f"{misplaced} are not on their prior node")
    assert "now node 0: " in undone.error
    assert run.state == ("rolled_back" if state == "undone" else "rolled_back_partly")


def test_pages_that_do_not_go_back_are_stuck(journal):
    host = host_with({AWAY: 500 * MIB})
    apply(the_plan(host), host, journal)
    host.pages_stay = {HOME: 400 * MIB}
    assert rollback(host, journal).state == "rolled_back_partly"
    assert entry(journal).error.startswith("400.0 MiB are not on their prior node")
    host.pages_stay = {}
    again = make_run("again", kind="rollback", undoes="run-1")
    assert executor.rollback(again, host, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
    assert host.per_node[memory()] == {HOME: 0, AWAY: 500 * MIB}


@pytest.mark.parametrize("now", [{AWAY: 400 * MIB}, {AWAY: 500 * MIB}, {HOME: 50 * MIB, AWAY: 500 * MIB}])
def test_memory_that_was_moved_back_or_freed_meanwhile_stays(journal, now):
    host = host_with({AWAY: 500 * MIB})
    apply(the_plan(host), host, journal)
    host.per_node[memory()] = dict(now)
    host.writes.clear()
    assert rollback(host, journal).state == "rolled_back"
    assert host.per_node[memory()] == now


def test_a_guest_that_has_ended_is_gone_on_rollback(journal):
    host = host_with({AWAY: 500 * MIB})
    apply(the_plan(host), host, journal)
    del host.per_node[memory()]
    assert rollback(host, journal).state == "rolled_back_partly"
    assert entry(journal).state == "gone"


def test_memory_that_the_guest_allocated_later_is_not_moved_to_a_node_that_lacks_none(journal):
    """The node that had most has all of that: the pages of the third node are mixed with new ones."""
    host = host_with({HOME: 100 * MIB, AWAY: 500 * MIB, THIRD: 200 * MIB})
    host.pages_stay = {AWAY: 500 * MIB}
    apply(the_plan(host), host, journal)
    assert host.per_node[memory()] == {HOME: 300 * MIB, AWAY: 500 * MIB, THIRD: 0}
    rollback(host, journal)
    assert host.per_node[memory()] == {HOME: 300 * MIB, AWAY: 500 * MIB, THIRD: 0}
