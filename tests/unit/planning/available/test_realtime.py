"""Real-time threads: of host processes, which pinner does not move, and of vCPUs."""

from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Process, RealTime
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

ALL = "0-31"


def realtime(each: Process, policy: RealTime = "fifo", *, threads: int = 99) -> Process:
    """The process with so many threads of a real-time policy."""
    found = (replace(t, realtime=policy if n < threads else "") for n, t in enumerate(each.threads))
    return replace(each, threads=tuple(found))


@pytest.mark.fault(51)
@pytest.mark.parametrize("policy", ["fifo", "rr", "deadline"])
@pytest.mark.parametrize("asked", [(), ("spinner",)])
def test_a_real_time_process_stays_and_its_cpus_are_told(policy: RealTime, asked: tuple[str, ...]) -> None:
    spinners = [realtime(process(n, 100.0, ALL, ALL, name="spinner"), policy, threads=1) for n in (300, 400)]
    made = plan(snapshot(plain(32), [], [*spinners, process(500, 40.0, ALL)]), "s", Request(processes=asked))
    assert [str(want.target) for want in made.wanted] == ["process daemon (500)"]
    assert {left.label: left.why for left in made.skipped}["process spinner (300)"] == (
        f"100.0 % of one CPU; it has real-time threads ({policy}), which would stop the other processes on "
        "housekeeping's CPUs; they may use CPUs 0-31"
    )
    told = [warning for warning in made.warnings if "real-time threads" in warning]
    assert len(told) == 2
    assert f"process spinner (300) has real-time threads ({policy}) that use 50.0 % of one CPU" in told[0]
    assert "other threads on CPUs 0-31" in told[0]


@pytest.mark.fault(51)
def test_a_restricted_real_time_process_keeps_its_cpus() -> None:
    pmd = realtime(process(300, 100.0, "9", name="pmd", reasons=["restricted"]))
    made = plan(snapshot(plain(32), [], [pmd]), "s", Request())
    assert 9 not in made.roles.cpus
    assert not [warning for warning in made.warnings if "real-time" in warning]


def real_time_guest(number: int, vcpus: int, floor: str) -> Guest:
    made = guest(number, vcpus, cpus(floor))
    return replace(
        made, vcpus=tuple(replace(each, thread=replace(each.thread, realtime="fifo")) for each in made.vcpus)
    )


@pytest.mark.fault(64)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_the_emulator_of_a_guest_with_real_time_vcpus_leaves_their_cpus_first(strategy: str) -> None:
    top = plain(32, isolated="8-31" if strategy == "isolated" else "")
    made = plan(snapshot(top, [real_time_guest(1, 2, ALL)]), "s", Request(strategy))
    kinds = [change.target.kind for change in made.changes]
    assert kinds == sorted(kinds, key=["emulator", "vcpu"].index)
    placed = {want.target.kind: want.cpus for want in made.wanted}
    assert not placed["emulator"] & placed["vcpu"]
    told = [warning for warning in made.warnings if "real-time" in warning]
    assert len(told) == (strategy != "isolated")
    assert all("g1: its real-time vCPUs (fifo) float over CPUs 8-31 and stop other threads there" in t for t in told)


@pytest.mark.fault(64)
def test_a_real_time_vcpu_on_the_cpus_of_its_emulator_is_told() -> None:
    made = plan(snapshot(plain(2), [real_time_guest(1, 1, "0-1")]), "s", Request())
    (told,) = (warning for warning in made.warnings if "real-time" in warning)
    assert told.startswith("guest g1: its real-time vCPUs (fifo) share CPUs 1 with its emulator threads")
    assert "does not boot" in told
