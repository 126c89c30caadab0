"""Sysctls as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.change import StateChange, Target
from pinner.model.errors import Refused
from pinner.model.plan.request import Request
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record

WITH = Request(remedies=("sysctls",))
DEFAULTS = {
    "kernel.numa_balancing": 1,
    "kernel.sched_rt_runtime_us": 950000,
    "net.core.netdev_budget": 300,
    "net.core.netdev_max_backlog": 1000,
    "net.core.rmem_max": 212992,
    "net.core.somaxconn": 128,
    "vm.swappiness": 60,
}


def host(nodes=2, realtime=None, **values):
    taken = {**DEFAULTS, **{key.replace("__", "."): value for key, value in values.items()}}
    guest = hosts.guest(1, 2, cpus("0-15"))
    if realtime:
        guest = replace(
            guest, vcpus=tuple(replace(v, thread=replace(v.thread, realtime=realtime)) for v in guest.vcpus)
        )
    return hosts.snapshot(hosts.plain(16, nodes), [guest], sysctls=taken)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {each.target.owner: each.after.value for each in made.changes if each.target.kind == "sysctl"}


def after(taken, made):
    return replace(hosts.applied(taken, made), sysctls={**taken.sysctls, **changed(made)})


def test_sysctls_get_the_values_of_the_table_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert changed(made) == {
        "kernel.numa_balancing": 0,
        "net.core.netdev_budget": 600,
        "net.core.netdev_max_backlog": 4000,
        "net.core.rmem_max": 26214400,
        "net.core.somaxconn": 4096,
        "vm.swappiness": 1,
    }
    assert [each for each in made.changes if each.target.kind != "sysctl"]
    assert plan(after(host(), made)).changes == ()


@pytest.mark.parametrize("rule", SYSCTLS.values(), ids=str)
def test_a_better_value_stays(rule):
    better = rule.value + (1 if rule.at == "least" else -1)
    taken = host(realtime="fifo")
    seen = replace(taken, sysctls={**taken.sysctls, rule.key: better})
    assert rule.key in changed(plan(taken))
    assert rule.key not in changed(plan(seen))


def test_some_values_are_set_only_on_hosts_that_need_them():
    assert "kernel.numa_balancing" not in changed(plan(host(nodes=1)))
    assert changed(plan(host(realtime="fifo")))["kernel.sched_rt_runtime_us"] == -1


def test_throttling_stays_where_a_thread_would_have_no_other_cpu_after_the_plan():
    taken, fix = host(realtime="fifo"), Request(fix=("rt-throttling",))
    made = plan(taken, fix)
    assert changed(made) == {}
    (left,) = [each for each in made.skipped if each.target.kind == "sysctl"]
    assert left.why == "threads that have only CPUs 0-15 would never run beside real-time vCPUs"
    moved = replace(after(taken, plan(taken, Request())), sysctls=taken.sysctls)
    assert changed(plan(moved, fix)) == {"kernel.sched_rt_runtime_us": -1}


def test_a_sysctl_that_the_kernel_lacks_is_left_out_with_the_reason():
    taken = host()
    made = plan(replace(taken, sysctls={k: v for k, v in taken.sysctls.items() if k != "net.core.somaxconn"}))
    assert "net.core.somaxconn" not in changed(made)
    (left,) = [each for each in made.skipped if each.target.kind == "sysctl"]
    assert (left.target.owner, left.why) == ("net.core.somaxconn", "this kernel has no such sysctl")


def test_a_drift_shows_what_another_program_set():
    made = plan(host())
    placement, placed = record(made, host(), None), after(host(), made)
    seen = replace(placed, sysctls={**placed.sysctls, "vm.swappiness": 60})
    again = planner.plan_from_placement(seen, "s2", WITH, placement)
    (drift,) = drifts(again, placement, seen)
    assert (str(drift.target), drift.cause) == ("sysctl vm.swappiness", "unknown")
    assert tuple(map(str, drift.states)) == ("60", "1")
    better = replace(placed, sysctls={**placed.sysctls, "net.core.rmem_max": 1 << 30})
    assert planner.plan_from_placement(better, "s2", WITH, placement).changes == ()


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


def forged(key, before, after, request=WITH):
    change = StateChange(Target("sysctl", key, None, key), Number(before), Number(after), "so")
    return replace(plan(host()), changes=(change,), request=request)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (forged("vm.swappiness", 60, 1, Request()), "does not ask for sysctls"),
        (forged("vm.swappiness", 60, 0), "a plan gives it the value 1, and no other"),
        (forged("net.core.rmem_max", 212992, 1 << 40), "a plan gives it the value 26214400, and no other"),
        (forged("net.core.rmem_max", 1 << 30, 26214400), "it has the value 1073741824, which is as good or better"),
        (forged("kernel.sched_rt_runtime_us", 950000, -1), "only a host with real-time vCPUs needs it"),
        (forged("kernel.core_pattern", 0, 1), "a plan changes only these sysctls: kernel.numa_balancing, "),
        (forged("../../../etc/passwd", 0, 1), "a plan changes only these sysctls"),
    ],
)
def test_the_agent_refuses_other_changes(made, why):
    with pytest.raises(Refused, match=why):
        permit(made, host())


@pytest.mark.parametrize(
    "change",
    [
        StateChange(SYSCTLS["vm.swappiness"].target, cpus("1"), Number(1), "so"),
        StateChange(SYSCTLS["vm.swappiness"].target, Number(60), cpus("1"), "so"),
        StateChange(Target("workqueue", "", None, "x"), Number(60), Number(1), "so"),
    ],
    ids=str,
)
def test_the_agent_refuses_a_state_of_another_kind(change):
    with pytest.raises(Refused, match="of this form"):
        permit(replace(plan(host()), changes=(change,)), host())
