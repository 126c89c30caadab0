from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import EVIL, make_plan

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.plan.objective import Term
from pinner.model.plan.plan import LeftOut, Rebalance
from pinner.model.plan.request import Request
from pinner.planning import planner
from pinner.render import before_and_after, visible
from pinner.render.text import rebalance as rebalance_text
from pinner.render.text import render


def planned(strategy):
    pinned = process(95, 99.0, "6", name="pmd", reasons=["restricted"])
    seen = snapshot(plain(8), [guest(1, 2, cpus("0-7"))], [process(90, 60.0, "0-7", "0-7", name="ceph"), pinned])
    return planner.plan(seen, "basis", Request(strategy))


def test_every_change_is_shown_with_before_after_and_why():
    plan = planned("shared-pool")
    text = render(plan)
    assert len(plan.changes) >= 4
    for change in plan.changes:
        (line,) = (line for line in text.splitlines() if line.strip().startswith(f"{change.target}:"))
        assert f"0-7 -> {change.after} (" in line
        assert change.reason in line
    for role in (plan.roles.housekeeping, plan.roles.emulator, plan.roles.vcpu):
        assert f"CPUs: {role} ({len(role)})" in text
    assert "  tier 6, overcommit: 0 -> 0 CPUs\n" in text
    assert "  tier 3, remote_memory: 0 -> 0 MiB x distance, not asked for\n" in text


def test_where_memory_lies_is_shown():
    seen = snapshot(plain(8, 2), [guest(1, 2, cpus("0-7"), memory={0: 1024, 1: 3072})])
    text = render(planner.plan(seen, "basis", Request("numa-local")))
    assert "memory of guest g1: node 0: 1.0 MiB, node 1: 3.0 MiB; remote: 2.0 MiB now, 1.0 MiB as planned" in text


def test_what_is_not_touched_is_shown_with_its_reason():
    plan = planned("shared-pool")
    text = render(plan)
    assert plan.skipped
    for item in (*plan.skipped, *plan.unplaced):
        assert f"  {item.label}: {item.why}\n" in text
    for warning in (*plan.warnings, *plan.roles.notes):
        assert warning in text


def test_a_blocked_plan_says_so_first_and_names_the_kernel_arguments():
    plan = planned("isolated")
    text = render(plan)
    assert text.splitlines()[2] == f"CANNOT BE APPLIED: {plan.blocked}"
    assert plan.isolation.kernel_arguments in text
    assert plan.isolation.grub_line in text
    for command in plan.isolation.partition:
        assert f"    {command}\n" in text


def test_nothing_to_do_is_a_plan():
    assert "changes: none, everything is where this plan wants it\n" in render(make_plan())
    blocked = replace(make_plan(), blocked="reboot first")
    assert "changes: none, the plan is blocked\n" in render(blocked)


def test_threads_that_differ_are_all_shown():
    masks = tuple(ThreadMask(n, 1, cpus(text)) for n, text in enumerate(("4-7", "0-3", "0-3")))
    change = AffinityChange(Target("process", "9", 1, "x"), masks, cpus("0"), "busy")
    assert before_and_after(change) == ("0-3 (2 threads); 4-7 (1 thread)", "0")
    assert "process x (9): 0-3 (2 threads); 4-7 (1 thread) -> 0 (3 threads; busy)" in render(
        make_plan(changes=(change,))
    )


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain name", "plain name"),
        ("a\nb", r"a\nb"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp", r"\u202egnp"),
        ("\u2028", r"\u2028"),
        ("naïve 网", "naïve 网"),
        ("\x00\x7f", r"\x00\x7f"),
    ],
)
def test_visible(raw, shown):
    assert visible(raw) == shown


@given(st.text(), st.text())
def test_no_name_reaches_a_terminal_as_it_is(name, why):
    left = tuple(
        LeftOut(Target(kind, "1", None, text), why, threads)
        for text in (name, EVIL)
        for kind, threads in (("guest", ()), ("process", (1, 2)))
    )
    plan = replace(make_plan(blocked=why), unplaced=left, skipped=left, warnings=(name,))
    text = render(plan)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text.splitlines()) == len(text.split("\n")) - 1


@pytest.mark.parametrize(
    ("rebalance", "words"),
    [
        (
            Rebalance(2, 6, 3, taken=True, terms=(Term("extra_l3", 5, "L3 domains", 1.0, 4, 1),)),
            "2 guests (6 threads) move, a gain (extra_l3 4 -> 1)",
        ),
        (Rebalance(1, 1, 0, taken=False), "1 guest (1 thread) move, no gain: not worth it, no guest moves"),
        (Rebalance(0, 0, 0.0, taken=False), "no gain, every guest gets the same CPUs without it"),
    ],
)
def test_the_cost_and_the_gain_of_a_rebalance(rebalance, words):
    assert rebalance_text(rebalance) == words
    assert f"rebalance: {words}\n" in render(replace(make_plan(), rebalance=rebalance))
