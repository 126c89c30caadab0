"""The live form of isolated: the partition of each guest, and the hosts that cannot have any."""

from dataclasses import replace

import pytest
from support.hosts import KERNEL, cpus, guest, plain, snapshot
from support.values import MEMBER

from pinner.model.change import PartitionState, StateChange
from pinner.model.cpuset import CpuSet
from pinner.model.guest import Cgroup
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
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
        (
            lambda host: replace(host, guests=tuple(replace(g, cgroups=()) for g in host.guests)),
            "guests g1 are not in a systemd scope",
        ),
        (
            lambda host: with_kernel(host, cgroup="v1", partitions=False),
            "Needs the cpuset controller of cgroup v2",
        ),
    ],
)
def test_a_host_that_cannot_have_partitions_gets_a_blocked_plan_with_the_reason(change: object, why: str) -> None:
    made = plan(change(host(2)), "s", LIVE)
    assert made.blocked.startswith(why)
    assert not [want for want in made.wanted if want.state]


def test_a_guest_without_an_emulator_cpu_of_its_own_is_unplaced() -> None:
    made = plan(host(1, 1, 1), "s", LIVE)
    assert [left.label for left in made.unplaced] == ["guest g3"]
    assert "need a CPU of the emulator set for themselves" in made.unplaced[0].why


def test_the_boot_form_stays_blocked_and_other_strategies_do_not_use_the_live_form() -> None:
    assert "are not isolated: reboot" in plan(host(2), "s", Request("isolated")).blocked
    made = plan(host(2), "s", Request("shared-pool", isolation="live"))
    assert "isolation 'live' has no effect: the strategy shared-pool does not use it" in made.warnings
