"""The role of each CPU in the drawing of a host."""

from dataclasses import replace

import pytest
from support.hosts import plain
from support.values import NOON, cpus, make_plan

from pinner.cli.show.draw import uses_now, uses_planned
from pinner.cli.show.plantable import isolation
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Emulator, Guest, Vcpu
from pinner.model.machine.process import Process, Thread
from pinner.model.plan.plan import Isolation, Roles
from pinner.model.snapshot import Snapshot


def thread(mask, immovable_reason=""):
    return Thread(tid=1, started=1, name="t", affinity=cpus(mask), immovable_reason=immovable_reason)


def process(mask, load, immovable_reason="", thread_reason=""):
    return Process(1, 1, "p", "p", "", False, load, (thread(mask, thread_reason),), immovable_reason)


def guest(vcpu, emulator, dedicated=False):
    vcpus = (Vcpu(0, thread(vcpu), cpus(vcpu)), Vcpu(1, None, cpus(vcpu)))
    threads = Emulator(cpus(emulator), (thread(emulator),))
    return Guest("u", "g", "running", 1, vcpus, threads, (), (), 1, {}, dedicated=dedicated)


def snapshot(guests=(), processes=(), isolated="", offline="", dedicated=""):
    topology = plain(8, offline=offline, isolated=isolated)
    return Snapshot(
        host="h1",
        taken_at=NOON,
        sample_seconds=1.0,
        topology=topology,
        guests=tuple(guests),
        processes=tuple(processes),
        baseline=topology.online,
        dedicated=cpus(dedicated),
    )


def letters(uses):
    return "".join(uses[cpu].letter for cpu in sorted(uses))


def test_roles_now_follow_the_affinities_of_the_kernel():
    seen = snapshot(
        guests=[guest("4-6", "3"), guest("7", "7", dedicated=True)],
        processes=[process("0-1", 50.0), process("0-7", 1.0), process("0-7", 90.0, immovable_reason="guest")],
        isolated="2",
    )
    assert letters(uses_now(seen, 2.0)) == "HHIEVVVD"


def test_a_cpu_with_several_uses_names_them():
    seen = snapshot(guests=[guest("0-7", "0-1")], processes=[process("0", 50.0)], offline="6-7")
    uses = uses_now(seen, 2.0)
    assert letters(uses) == "**VVVVxx"
    assert [uses[cpu].name for cpu in (0, 1)] == ["housekeeping + emulator + vCPU", "emulator + vCPU"]


def test_a_restricted_thread_of_a_busy_process_is_no_housekeeping():
    seen = snapshot(processes=[process("5", 99.0, thread_reason="restricted")])
    assert letters(uses_now(seen, 2.0)) == "........"


def test_planned_sets_and_cpus_that_are_never_allocated():
    plan = replace(make_plan(), roles=Roles(cpus("0"), cpus("1"), cpus("2-4")))
    seen = snapshot(dedicated="5", isolated="6", offline="7")
    assert letters(uses_planned(seen, plan)) == "HEVVVDIx"


def test_planned_isolated_vcpus():
    needed = Isolation(cpus("3-4"), CpuSet(), "isolcpus=3-4", "", (), "")
    plan = replace(make_plan(), roles=Roles(cpus("0"), cpus("1"), cpus("2-4")), isolation=needed)
    assert letters(uses_planned(snapshot(), plan)) == "HEVII..."


@pytest.mark.parametrize(("present", "told"), [("", "none of them is"), ("3", "all but 4 are"), ("3-4", "all are")])
def test_the_table_of_isolation_says_what_is_isolated_now(present, told):
    (line, *others) = isolation(Isolation(cpus("3-4"), cpus(present), "", "", (), "live")).plain(80)
    assert line == f"isolated CPUs  3-4: {told} isolated now"
    assert [other.split()[0] for other in others] == ["live"]


def test_merged_roles_on_a_small_host():
    plan = replace(make_plan(), roles=Roles(cpus("0"), cpus("1-7"), cpus("1-7")))
    uses = uses_planned(snapshot(), plan)
    assert letters(uses) == "H*******"
    assert uses[1].name == "emulator + vCPU"
