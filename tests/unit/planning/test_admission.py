"""The agent's rules for a plan: every plan of the planner is admitted, and no plan that breaks its rules."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, KERNEL, applied, cpus, guest, plain, process, snapshot
from support.made_up.anyhost import STRATEGIES, parameters, snapshots
from support.values import MEMBER, isolated, recorded, root

from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict, Refused, StalePlan
from pinner.model.guest.guest import Cgroup
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import NOT_PERMITTED
from pinner.model.plan.plan import GuestMemory, Plan, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.snapshot import settings as settings_of
from pinner.model.states import PartitionState, State
from pinner.planning import planner
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.changes import require_free
from pinner.planning.placement import record
from pinner.planning.policy.release import past_of, release
from pinner.planning.request.processes import process_target

pytestmark = pytest.mark.fault(41)

SLICE, SCOPE = "machine.slice", "machine.slice/g1.scope"
ALL = cpus("0-15")
NOBODY = Past()


def inventory() -> list[Target]:
    """The processes and the guests' parts of HOST."""
    parts = [target for each in HOST.guests for target in each.threads_by_target]
    return [*map(process_target, HOST.processes), *settings_of(HOST), *parts]


def agents_view(host: Snapshot) -> Snapshot:
    """The snapshot of the agent: it measures no load."""
    idle = (
        replace(each, load=0.0, threads=tuple(replace(t, load=0.0) for t in each.threads)) for each in host.processes
    )
    return replace(host, sample_seconds=0.0, processes=tuple(idle))


def admit(plan: Plan, host: Snapshot, past: Past = NOBODY, *, migrate_memory: bool = False) -> None:
    known, _ = identified(plan, host)
    if plan.purpose == "place":
        require_free(known, host)
    require_permitted(known, host, past, migrate_memory=migrate_memory)


HOST = snapshot(
    plain(16, 2, kernel=replace(KERNEL, unbound=ALL), offline="15"),
    [
        guest(1, 2, cpus("0-14"), vhost_threads=1, iothreads=1, cgroups=(Cgroup(SLICE, MEMBER), Cgroup(SCOPE, MEMBER))),
        guest(2, 1, cpus("0-14"), excluded=True),
        guest(3, 1, cpus("0-14"), pins=["13"], dedicated=True),
    ],
    [
        process(300, 50.0, "0-14", "0-14", name="busy"),
        process(400, 0.0, "0-14", name="idle"),
        process(500, 70.0, "12", "0-14", name="pmd", reasons=["restricted", ""], reserves="privileged"),
        process(600, 70.0, "11", name="storage", reasons=["restricted"], reserves="configured"),
        process(700, 0.0, "3", name="migration/3", reasons=["per-cpu"], immovable_reason="per-cpu"),
        process(800, 0.0, "0-14", name="pinner", immovable_reason="pinner"),
        process(11_000, 0.0, "0-14", name="qemu", immovable_reason="guest"),
    ],
    dedicated=cpus("14"),
)
G1, G2, G3 = HOST.guests
REQUEST = Request()
MADE = planner.plan(HOST, "s", REQUEST)
VIEW = agents_view(HOST)


LATE = process(900, 0.0, "5", name="late", reasons=["restricted"], reserves="privileged")
"""A process that an administrator restricted after the plan."""


def forged(*changes: PlannedChange, plan: Plan = MADE, **more: object) -> Plan:
    """The plan with other changes, whose roles allow all CPUs to everybody."""
    everything = Roles(*[cpus("0-99")] * 3, ("notes allow roles to share CPUs",))
    return replace(plan, **{"changes": changes, "roles": everything, **more})  # type: ignore[arg-type]


def thread_change(kind: TargetKind, owner: str, part: int | None, after: str, *before: ThreadMask) -> AffinityChange:
    return AffinityChange(Target(kind, owner, part, "name"), before, cpus(after), "so")


def of_process(pid: int, after: str = "0-3", *before: ThreadMask) -> AffinityChange:
    return thread_change("process", str(pid), 5, after, *before)


def state_change(owner: str, after: State, before: State = MEMBER, kind: TargetKind = "partition") -> StateChange:
    return StateChange(Target(kind, owner, None, owner), before, after, "so")


def test_the_plan_of_the_planner_is_admitted() -> None:
    assert MADE.changes
    admit(MADE, VIEW)


LIVE = Request("isolated", isolation="live", housekeeping="0", emulator="1-3")


def live(host: Snapshot = HOST) -> Plan:
    return replace(planner.plan(host, "s", REQUEST), request=LIVE)


def test_partitions_of_the_planner_are_admitted() -> None:
    host = replace(HOST, guests=(G1,), processes=(), dedicated=CpuSet())
    made = planner.plan(host, "s", Request("isolated", isolation="live"))
    assert {change.target.kind for change in made.changes} >= {"partition", "workqueue", "vcpu"}
    admit(made, agents_view(host))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=snapshots(), asked=parameters, half=st.booleans())
def test_every_plan_of_every_strategy_is_admitted(host: Snapshot, asked: dict, half: bool, strategy: str) -> None:
    try:
        made = planner.plan(host, "s", Request(strategy, **asked))
    except (Invalid, NoFit, NotFound, NovaConflict):
        assume(False)
    assume(not made.blocked)
    admit(made, agents_view(host), migrate_memory=True)
    if half:
        # A policy plans again after a part of the host has been changed, with the masks that pinner set.
        now = applied(host, made)
        placement = record(made, host, None)
        again = planner.plan_from_placement(now, "s2", made.request, placement)
        admit(again, agents_view(now), Past(cpus=made.roles.cpus))


def test_the_plan_of_a_rebalance_is_admitted() -> None:
    admit(planner.plan(HOST, "s", Request(rebalance=True)), VIEW)


def test_the_request_may_name_processes_although_their_owner_restricted_them() -> None:
    made = planner.plan(HOST, "s", Request(processes=("pmd", "600")))
    assert {change.target.owner for change in made.changes} >= {"500", "600"}
    admit(made, VIEW)
    with pytest.raises(Refused, match="does not name"):
        admit(replace(made, request=REQUEST), VIEW)


def test_a_real_time_process_stays_whatever_the_request_names() -> None:
    busy = HOST.processes[0]
    threads = (replace(busy.threads[0], realtime="fifo"), *busy.threads[1:])
    view = replace(VIEW, processes=(replace(busy, threads=threads), *VIEW.processes[1:]))
    with pytest.raises(Refused, match="it has real-time threads"):
        admit(forged(of_process(300), plan=replace(MADE, request=Request(processes=("busy",)))), view)


def test_what_pinner_moved_before_is_not_restricted_by_its_owner() -> None:
    made = planner.plan(HOST, "s", Request(processes=("storage",)))
    policy = replace(made, request=REQUEST)
    with pytest.raises(Refused):
        admit(policy, VIEW)
    admit(policy, VIEW, Past(names=frozenset({"storage"})))


def test_cpus_that_pinner_gave_to_threads_stay_usable_after_another_use_of_taskset() -> None:
    pinned = replace(VIEW, processes=(*VIEW.processes, LATE))
    with pytest.raises(Refused, match="in the restricted affinity of process late"):
        admit(MADE, pinned)
    admit(MADE, pinned, Past(cpus=MADE.roles.cpus))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (of_process(700), "kernel thread"),
        (of_process(800), "pinner itself"),
        (of_process(11_000), "moves only with that guest"),
        (of_process(600), "restricted"),
        (of_process(500, "0-3", ThreadMask(500, 5, cpus("12"))), "thread 500 must not move"),
        (of_process(500, "0-3", ThreadMask(999_999, 5, cpus("12"))), "thread 500 must not move"),
        (of_process(300, "15"), "offline"),
        (of_process(300, "0-3,90"), "absent"),
        (of_process(300, ""), "has no CPU"),
        (of_process(300, "12"), "restricted affinity of process pmd"),
        (thread_change("vcpu", G1.uuid, 0, "0-12"), "restricted affinity"),
        (thread_change("vcpu", G2.uuid, 0, "1"), r"its metadata excludes it \(pin-off\)$"),
        (thread_change("process", "300 ", 5, "1"), "named by its id"),
        (thread_change("process", "../300", 5, "1"), "named by its id"),
        (thread_change("process", "300", None, "1"), "named by its id"),
        (thread_change("partition", SCOPE, None, "1"), "no affinity of this form"),
        (thread_change("memory", G1.uuid, 7, "1"), "no affinity of this form"),
        (thread_change("guest", G1.uuid, None, "1"), "no affinity of this form"),
        (StateChange(Target("process", "300", 5, "busy"), MEMBER, isolated("1"), "so"), "no state of this form"),
        (state_change(SCOPE, cpus("1")), "no state of this form"),
        (state_change("/etc", isolated("1")), "no guest with such a cgroup"),
        (state_change("../../etc", isolated("1")), "no guest with such a cgroup"),
        (state_change(f"{SLICE}/../system.slice/ssh.service", isolated("1")), "no guest with such a cgroup"),
        (state_change("system.slice/ssh.service", isolated("1")), "no guest with such a cgroup"),
        (state_change(SCOPE + "\0", isolated("1")), "no guest with such a cgroup"),
        (state_change(SCOPE, isolated("1")), "does not ask for live isolation"),
        (state_change("", cpus("0-3"), ALL, "workqueue"), "does not ask for live isolation"),
    ],
)
def test_a_change_that_breaks_a_rule_is_refused_with_its_target_and_the_reason(change: PlannedChange, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        admit(forged(change), VIEW)
    assert set(refused.value.details) == {"target", "asked", "why"}
    names = {target.key: target for target in inventory()}
    assert refused.value.details["target"] in (str(change.target), str(names.get(change.target.key)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (state_change(SLICE, root("1-14")), "restricted affinity"),
        (state_change(SLICE, root("0-10")), "no CPU would be left"),
        (state_change(SCOPE, isolated("14")), "Nova dedicates"),
        (state_change(SCOPE, isolated("15")), "offline"),
        (state_change(SCOPE, PartitionState("isolated", CpuSet())), "has no CPU"),
        (state_change(SCOPE, isolated("2", "because")), "cannot be set"),
        (state_change("", CpuSet(), ALL, "workqueue"), "has no CPU"),
        (state_change("", cpus("0-90"), ALL, "workqueue"), "not online"),
    ],
)
def test_a_partition_that_breaks_a_rule_is_refused(change: StateChange, why: str) -> None:
    free = Roles(CpuSet(), CpuSet(), CpuSet(), ("none",))
    host = VIEW
    if "no CPU would" in why:
        # All other CPUs are isolated at boot, so that nothing else is left for the host.
        host = replace(
            HOST, topology=plain(16, isolated="11-15"), processes=(), guests=(G1,), dedicated=CpuSet(), baseline=ALL
        )
    with pytest.raises(Refused, match=why):
        admit(forged(change, plan=live(), roles=free), host)


@pytest.mark.parametrize(
    "change",
    [
        thread_change("vcpu", G3.uuid, 0, "1"),
        thread_change("emulator", G3.uuid, None, "1"),
        thread_change("vcpu", G1.uuid, 0, "13"),
        thread_change("vcpu", G1.uuid, 0, "14"),
        of_process(300, "13-14"),
    ],
)
def test_cpus_and_guests_of_nova_are_refused_whatever_the_plan_claims_to_want(change: AffinityChange) -> None:
    with pytest.raises(NovaConflict):
        admit(forged(change, wanted=()), VIEW)


def test_two_vcpus_on_one_isolated_cpu_are_refused() -> None:
    host = snapshot(plain(16, isolated="8-15"), [guest(1, 2, cpus("0-7"))])
    made = planner.plan(host, "s", Request("isolated"))
    changes = [thread_change("vcpu", G1.uuid, part, "8") for part in (0, 1)]
    admit(forged(changes[0], plan=made), host)
    with pytest.raises(Refused, match="several threads"):
        admit(forged(*changes, plan=made), host)


def test_a_target_that_is_changed_twice_is_refused() -> None:
    twice = (of_process(300, "0"), replace(of_process(300, "1"), target=Target("process", "300", 5, "another name")))
    with pytest.raises(Refused, match="more than once"):
        admit(forged(*twice), VIEW)


@pytest.mark.parametrize(
    "change",
    [
        thread_change("vcpu", "00000000-0000-4000-8000-000000000099", 0, "1"),
        thread_change("vcpu", G1.uuid, 7, "1"),
        thread_change("vhost", G1.uuid, 300, "1"),
        thread_change("vhost", G1.uuid, 1, "1"),
        thread_change("iothread", G1.uuid, 9, "1"),
    ],
)
def test_a_thread_that_the_guest_does_not_have_makes_the_plan_stale(change: AffinityChange) -> None:
    """The guest may have ended since the plan was made, so this is no attack by itself."""
    with pytest.raises(StalePlan, match="is gone"):
        admit(forged(change), VIEW)


def test_what_the_agent_may_not_move_is_refused_with_the_reason() -> None:
    (vhost,) = G1.vhost_threads
    guest = replace(G1, vhost_threads=(replace(vhost, immovable_reason="not-permitted"),))
    processes = [replace(each, immovable_reason="not-permitted") for each in VIEW.processes if each.name == "busy"]
    host = replace(VIEW, guests=(guest, G2, G3), processes=tuple(processes))
    for change in (thread_change("vhost", G1.uuid, vhost.tid, "1"), of_process(300)):
        with pytest.raises(Refused, match=NOT_PERMITTED):
            admit(forged(change), host)


def test_a_process_that_has_ended_is_named_and_its_cpus_do_not_matter() -> None:
    ended = (of_process(4711, "15"), replace(of_process(300), target=Target("process", "300", 6, "earlier")))
    plan = forged(*ended)
    known, gone = identified(plan, VIEW)
    assert gone == {change.target for change in ended}
    require_permitted(known, VIEW, NOBODY, migrate_memory=False)


def test_changes_of_a_guest_that_cannot_be_read_are_not_compared_and_the_others_are() -> None:
    unread = replace(G1, unread="libvirt does not answer", excluded=True)
    host = replace(VIEW, guests=(unread, G2, G3))
    of_unread = thread_change("vcpu", G1.uuid, 0, "1")
    admit(forged(of_unread), host)
    with pytest.raises(Refused, match="guest g2"):
        admit(forged(of_unread, thread_change("vcpu", G2.uuid, 0, "1")), host)


def test_a_target_gets_the_name_of_the_inventory() -> None:
    known, _ = identified(forged(of_process(300), thread_change("vcpu", G1.uuid, 0, "1")), VIEW)
    assert [change.target.name for change in known.changes] == ["busy", "g1"]


def test_wanted_guests_that_have_ended_are_left_out() -> None:
    """An apply searches for every wanted guest on the host: made-up ones would take long."""
    made_up = tuple(
        replace(want, target=replace(want.target, owner=f"00000000-0000-4000-8000-{number:012d}"))
        for number, want in enumerate(MADE.wanted * 3, 100)
    )
    known, _ = identified(replace(MADE, wanted=(*MADE.wanted, *made_up)), VIEW)
    assert {want.target.owner for want in known.wanted} == {G1.uuid}


def released(after: Callable[[CpuSet], CpuSet] = lambda cpus: cpus, within: str = "") -> tuple[Plan, Snapshot, Past]:
    """A release of g1, the host then, and the agent's journal."""
    now = applied(HOST, MADE)
    done = tuple(c for c in MADE.changes if isinstance(c, AffinityChange) and c.target.owner == G1.uuid)
    plan = release(now, "s2", G1.uuid, recorded(done), cpus(within), "it leaves")
    changes = tuple(replace(change, after=after(change.after)) for change in plan.changes)  # type: ignore[call-arg]
    return replace(plan, changes=changes), agents_view(now), Past(placed=past_of(recorded(done)))


@pytest.mark.parametrize("within", ["", "0-3", "2-9", "90", "14"])
def test_a_release_is_admitted_wherever_it_leads(within: str) -> None:
    """Before pinner placed it, the guest floated over the CPUs of others, too."""
    plan, host, past = released(within=within)
    assert plan.changes
    admit(plan, host, past)


def test_a_release_that_confines_a_guest_to_cpus_of_others_is_refused() -> None:
    plan, host, past = released(lambda _: cpus("14"))
    with pytest.raises(Refused, match="14 belong to Nova's cpu_dedicated_set 14"):
        admit(plan, host, past)


@pytest.mark.parametrize("after", ["15", "2-15", ""], ids=["offline", "some-offline", "none"])
def test_a_release_to_cpus_that_are_not_online_is_refused(after: str) -> None:
    plan, host, past = released(lambda _: cpus(after))
    with pytest.raises(Refused, match=r"a release needs online CPUs \(online: 0-14\)"):
        admit(plan, host, past)


def test_a_release_to_all_that_is_online_of_the_prior_cpus_is_admitted_whoever_has_them() -> None:
    """CPU 15 of these is offline."""
    plan, host, past = released(lambda _: cpus("14"))
    prior = {key: cpus("14-15") for key in past.placed.first}
    admit(plan, host, replace(past, placed=replace(past.placed, first=prior)))


def test_a_release_of_threads_that_pinner_never_placed_is_refused() -> None:
    plan, host, _ = released()
    with pytest.raises(Refused, match="nothing to release"):
        admit(plan, host, NOBODY)
    for change in (of_process(300), state_change(SCOPE, isolated("1"))):
        with pytest.raises(Refused, match="only the threads of guests"):
            admit(replace(plan, changes=(change,)), host, NOBODY)


def test_memory_moves_only_to_the_node_of_all_vcpus() -> None:
    host = replace(HOST, guests=(replace(G1, memory_per_node={1: GIB}),))
    made = planner.plan(host, "s", Request("numa-local", housekeeping="0", emulator="1"))
    (memory,) = made.memory
    assert memory.home is not None
    admit(made, agents_view(host), migrate_memory=True)

    def asks(**more: object) -> Plan:
        return replace(made, memory=(replace(memory, **more),))  # type: ignore[arg-type]

    for home in (1 - memory.home, 7, -1):
        with pytest.raises(Refused, match="memory on node"):
            admit(asks(home=home), agents_view(host), migrate_memory=True)
        admit(asks(home=home), agents_view(host))
    for target in (Target("memory", "x", 7, "x"), replace(memory.target, part=8), Target("process", "300", 5, "busy")):
        with pytest.raises(StalePlan):
            admit(asks(target=target), agents_view(host), migrate_memory=True)


def test_every_part_of_a_guest_is_in_the_inventory() -> None:
    assert {part.kind for part in G1.threads_by_target} == {"emulator", "vcpu", "iothread", "vhost"}
    admit(forged(*(AffinityChange(part, (), cpus("4"), "so") for part in G1.threads_by_target)), VIEW)
    assert isinstance(MADE.memory[0], GuestMemory)
