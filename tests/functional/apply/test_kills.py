"""kill -9 at every point of the journal and around every write to the host, then a recovery in a new process.

PINNER_KILLS=all tries every point (make test-kills), --all every ninth point; the fast set tries every 27th.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from support import needs
from support.examples import are_all
from support.fakes.in_memory_host import daemon as busyd
from support.fakes.in_memory_host import emulator, memory, vcpu, vhost
from support.guests.agent_guest import AGENT, BOOT_SECONDS, AgentGuest, agent_guest
from support.guests.measured_host import wait_until
from support.guests.real_guests import FIRST, ONLINE, SECOND, change, daemon, plan_of, whole
from support.kills.kill_environment import Environment, prepared
from support.kills.kills import FileHost, Work, run_forked
from support.system.kernel import THREADS, masks, process
from support.values import MEMBER, cpus, isolated

from pinner.host.inventory import LIVE
from pinner.host.live import LiveHost
from pinner.host.settings import table
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.interrupts import Balancer
from pinner.model.plan.plan import GuestMemory
from pinner.model.states import GuestCpus

pytestmark = pytest.mark.needs("two_cpus")

KILLS = pytest.mark.slow("kill -9 with a real guest")
EVERY = os.environ.get("PINNER_KILLS") == "all"
STRIDE = 1 if EVERY else 9 if are_all() else 27


@pytest.fixture(params=[pytest.param("real", marks=KILLS), "simulated", pytest.param("agent", marks=KILLS)])
def environment(request: pytest.FixtureRequest, kills: Counter[str]) -> Iterator[Environment]:
    """``real``: this machine with a libvirtd. ``simulated``: a host with two NUMA nodes and cgroup v2 partitions.
    ``agent``: RPS inside a Linux guest with a real agent."""
    with prepared(request.getfixturevalue(request.param)) as environment:
        yield environment
        kills.update(environment.kills)


@pytest.fixture
def real(tmp_path: Path, host: LiveHost, libvirtd: str, start_guest: Callable[..., Guest]) -> Iterator[Environment]:
    """A guest and two processes, one in the role of a vhost thread; their threads have different masks."""
    guest = start_guest(vcpus=2, persistent=True)
    worker = next(thread.tid for thread in guest.emulator.threads if thread.tid != guest.pid)
    with process(THREADS.format(count=4)) as pid, process(THREADS.format(count=1)) as vhost:
        own = dict(zip(sorted(masks(pid)), ONLINE, strict=False))

        def spread() -> None:
            os.sched_setaffinity(worker, SECOND)
            for tid, cpu in own.items():
                os.sched_setaffinity(tid, [cpu])

        spread()
        initial = masks(guest.pid) | masks(pid) | masks(vhost)

        def observe() -> object:
            now = masks(guest.pid) | masks(pid) | masks(vhost)
            assert {tid for tid in initial if tid not in now} <= set(masks(guest.pid)) | set(initial)
            names = host.guests.named_pins(guest.uuid)
            return {tid: now[tid] for tid in initial if tid in now}, host.guests.definition(guest.uuid), names

        changes = [
            change(host, daemon(pid), FIRST),
            *whole(host, guest),
            change(host, Target("vhost", guest.uuid, vhost, guest.name), FIRST),
        ]
        work = Work(tmp_path, libvirtd, plan_of(host, changes), persist=True)

        def restore() -> None:
            if observe() != before:
                run_forked(work, "rollback")

        before = observe()
        yield Environment(work, observe, restore)


@pytest.fixture
def simulated(tmp_path: Path) -> Environment:
    """A host and a plan with every kind of change, including work queues, a partition, and memory with a numatune."""
    file = tmp_path / "host"
    host = FileHost(file)
    host.has_metadata = True
    scope = Target("partition", "g1.scope", None, "g1.scope")
    queues = Target("workqueue", "", None, "unbound")
    host.add(emulator(), "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(vhost(300), "0-7")
    host.add(busyd(400), "0-7", "2-5", "4")
    host.definitions["uuid-g1"] = "<cputune/>"
    balancer = Balancer(812, "", None, 7).target
    host.states |= {scope: MEMBER, queues: cpus("0-7"), balancer: cpus("")}
    host.per_node[memory()] = {1: 1024}
    host.numatunes[memory()] = "1"
    host.save()
    initial = file.read_bytes()
    wanted = {emulator(): "1", vcpu(0): "4-7", vhost(300): "1", busyd(400): "0"}
    settings = (
        StateChange(balancer, cpus(""), cpus("4-7"), "so"),
        StateChange(queues, cpus("0-7"), cpus("0-3"), "so"),
        StateChange(scope, MEMBER, isolated("4-7"), "so"),
    )
    plan = host.plan(*settings, *(host.change(target, after) for target, after in wanted.items()))
    plan = replace(plan, memory=(GuestMemory(memory(), {1: 1024}, 0, 0, 0),))
    work = Work(tmp_path, file, plan, persist=True, migrate_memory=True)
    return Environment(work, lambda: FileHost(file).changeable_state(), lambda: file.write_bytes(initial) and None)


@pytest.fixture(scope="module")
def linux(libvirtd: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGuest]:
    """A Linux guest with two vCPUs, cards with one queue each, and an agent."""
    if not AGENT:
        pytest.skip("needs qemu-guest-agent")
    needs.require("taps")
    with agent_guest(libvirtd, tmp_path_factory.mktemp("linux")) as guest:
        yield guest


@pytest.fixture
def agent(tmp_path: Path, host: LiveHost, libvirt: Libvirt, linux: AgentGuest) -> Iterator[Environment]:
    """RPS of both cards of the guest, and a process whose threads have different masks."""
    queues = linux.queues(libvirt)
    with process(THREADS.format(count=4)) as pid:
        for tid, cpu in zip(sorted(masks(pid)), ONLINE, strict=False):
            os.sched_setaffinity(tid, [cpu])

        def observe() -> object:
            return [table.state_of(LIVE, queue, libvirt) for queue in queues], masks(pid)

        rps = (StateChange(queue, GuestCpus(CpuSet()), GuestCpus(linux.vcpus), "a test") for queue in queues)
        work = Work(tmp_path, linux.uri, plan_of(host, [*rps, change(host, daemon(pid), FIRST)]))

        def restore() -> None:
            if observe() != before:
                run_forked(work, "rollback")

        before = observe()
        yield Environment(work, observe, restore)
        wait_until(lambda: linux.masks() == {0}, BOOT_SECONDS)


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_an_apply_killed_at_any_point_is_recovered(environment, policy):
    environment.kill_apply(policy, STRIDE)


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("whole_run", [True, False])
def test_an_apply_killed_during_its_undo_is_recovered(environment, policy, whole_run):
    """The last process refuses its change, so that the apply undoes every change before it, or those of its guest."""
    last = next(
        change for change in reversed(environment.work.plan.changes) if change.target.kind in ("vhost", "process")
    )
    environment.work = replace(environment.work, refused=last.before[-1].tid, all_or_nothing=whole_run)
    assert not run_forked(environment.work, "apply")
    environment.partly = environment.observe()
    assert (environment.partly == environment.before) == (environment.run_state("run-1") == "undone")
    environment.reset()
    for point in count(0, STRIDE):
        killed = environment.run_killed_at(point, "apply")
        environment.work = replace(environment.work, refused=0)
        assert not run_forked(environment.work, policy)
        environment.check_consistent()
        environment.reset()
        environment.work = replace(environment.work, refused=last.before[-1].tid)
        if not killed:
            break


@pytest.mark.fault(32)
def test_a_rollback_killed_at_any_point_is_recovered(environment):
    environment.kill_rollback(STRIDE)


@pytest.mark.fault(32)
@pytest.mark.fault(59)
def test_a_rollback_of_all_runs_killed_at_any_point_is_recovered(environment):
    for point in count(0, STRIDE):
        assert not run_forked(environment.work, "apply")
        killed = environment.run_killed_at(point, "rollback_all")
        assert not run_forked(environment.work, "back")
        environment.check_consistent("all")
        state = environment.run_state("run-1")
        assert state == ("rolled_back" if environment.run_state("all") else "applied")
        environment.reset()
        if not killed:
            break


@pytest.mark.fault(32)
@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("first", [12, 25])
def test_a_recovery_killed_at_any_point_is_recovered(environment, policy, first):
    for point in count(0, STRIDE):
        assert environment.run_killed_at(first, "apply")
        killed = environment.run_killed_at(point, policy)
        assert not run_forked(environment.work, policy)
        environment.check_consistent()
        environment.reset()
        if not killed:
            break
