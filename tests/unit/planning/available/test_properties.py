"""Properties of plans on any host: sparse and interleaved ids, SMT, offline, isolated, dedicated and restricted CPUs,
and nodes without CPUs or memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import applied
from support.made_up.anyhost import STRATEGIES, parameters, snapshots

from pinner import codec
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import RESERVING_LOAD
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available import exclusions
from pinner.planning.available.numa import bounds_of
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.free_cpus import free_slots


def planned(host: Snapshot, request: Request) -> Plan:
    """The plan, where the host can have one; a refusal must be about a literal set, or say that no CPU is left."""
    assume(not request.guests or any(guest.name == "g0" for guest in host.guests))
    assume(not request.processes or any(process.pid == 300 for process in host.processes))
    try:
        return plan(host, "s", request)
    except Invalid as refusal:
        assert refusal.details["field"] in ("housekeeping", "emulator")
        assert getattr(request, refusal.details["field"]) == refusal.details["value"] != "auto"
    except NovaConflict as refusal:
        field, _, value = refusal.details["ours"].partition(" ")
        assert (field in ("housekeeping", "emulator"), getattr(request, field)) == (True, value)
    except NoFit as refusal:
        assert refusal.details["free"] == 0
    return assume(False)


FLOATING = ("shared-pool", "numa-local")


def guests_by_uuid(host: Snapshot) -> dict[str, Guest]:
    return {guest.uuid: guest for guest in host.guests}


def on_any_host(test):
    """Run a test for each strategy on many hosts, with many parameters."""
    quietly = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    run = settings(max_examples=examples(80), suppress_health_check=quietly)(test)
    return pytest.mark.parametrize("strategy", STRATEGIES)(run)


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_a_plan_uses_only_cpus_that_pinner_may_allocate(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    top = host.topology
    dedicated = union(
        pin
        for guest in host.guests
        if guest.dedicated
        for pin in [
            *(vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread and len(vcpu.thread.affinity) == 1),
            *([guest.emulator.pin] if guest.emulator.policy == "isolate" else []),
        ]
    )
    aside = {each.cpus for each in Context.of(host, request).allocatable.set_aside}
    restricted = union(
        thread.affinity
        for process in host.processes
        if str(process.pid) not in request.processes
        for thread in process.threads
        if thread.immovable_reason == "restricted" and thread.affinity not in (made.roles.housekeeping, *aside)
        if process.reserves or thread.load > RESERVING_LOAD
    )
    for want in made.wanted:
        assert want.cpus
        assert want.cpus <= top.online - dedicated - host.dedicated - restricted
        if want.target.kind == "vcpu" and host.shared:
            assert want.cpus <= host.shared
        if want.cpus & top.isolated:
            assert want.target.kind == "vcpu"
            assert len(want.cpus) == 1
    alone = Counter(cpu for want in made.wanted for cpu in want.cpus & top.isolated)
    assert set(alone.values()) <= {1}


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_a_vcpu_of_an_exclusive_guest_shares_its_cpu_with_no_other_thread_of_the_plan(
    host: Snapshot, asked: dict, strategy: str
) -> None:
    made = planned(host, Request(strategy, **asked))
    guests = guests_by_uuid(host)
    exclusive = {uuid for uuid, guest in guests.items() if exclusions.is_exclusive(guest, made.request)}
    # These get the host's strategy, and others that of their flavor.
    exclusive -= {uuid for uuid in exclusive if f"guest {guests[uuid].name}: its flavor" in "".join(made.warnings)}
    exclusive -= {uuid for uuid in exclusive if exclusions.strategy_of_flavor(guests[uuid], FLOATING)}
    own = [want for want in made.wanted if want.target.kind == "vcpu" and want.target.owner in exclusive]
    assert {len(want.cpus) for want in own} <= {1}
    assert not union(want.cpus for want in own) & (made.roles.housekeeping | made.roles.emulator)
    for want in own:
        assert [other.target for other in made.wanted if other.cpus & want.cpus] == [want.target]


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_every_thread_of_a_guest_stays_within_the_guests_bound(host: Snapshot, asked: dict, strategy: str) -> None:
    made = planned(host, Request(strategy, **asked))
    bounds = bounds_of(host.guests, host.topology)
    for want in made.wanted:
        # QEMU's own threads of a guest with dedicated CPUs go near its vCPUs, which Nova pinned.
        if want.state is None and want.target.owner in bounds and not guests_by_uuid(host)[want.target.owner].dedicated:
            assert bounds[want.target.owner].of(want.target).within(want.cpus) == want.cpus
    bound = {guest.name for guest in host.guests if guest.uuid in bounds}
    # With another smt, a guest may have too few threads: of cores of its own, or of whole ones.
    anywhere = strategy == "shared-pool" and made.request.smt == "prefer"
    if anywhere and not any(guest.nova.extra_specs for guest in host.guests):
        assert {left.target.name for left in made.unplaced} <= bound


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_no_process_takes_a_role_its_last_core_of_a_node(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **(asked | {"processes": (), "housekeeping": "auto", "emulator": "auto"}))
    # On a node that is small anyway, roles may share the CPUs that privileged processes leave.
    host = replace(host, processes=tuple(replace(each, reserves="") for each in host.processes))
    alone = planned(replace(host, processes=()), request).roles
    made = plan(host, "s", request)
    assert bool(made.roles.notes) <= bool(alone.notes)
    for node in host.topology.nodes:
        for role in ("housekeeping", "emulator", "vcpu"):
            assert bool(getattr(made.roles, role) & node.cpus) >= bool(getattr(alone, role) & node.cpus)


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_roles_share_cpus_only_on_nodes_too_small_for_them(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    roles = made.roles
    shared = roles.housekeeping & roles.emulator | roles.housekeeping & roles.vcpu | roles.emulator & roles.vcpu
    assert bool(shared) == bool(roles.notes)
    assert not made.isolation or not roles.vcpu & (roles.housekeeping | roles.emulator)
    allowed = {"process": roles.housekeeping, "vcpu": roles.vcpu}
    for want in made.wanted:
        assert want.cpus <= allowed.get(want.target.kind, roles.emulator)


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_a_plan_names_only_targets_of_the_host_and_each_guest_once(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    guests = {guest.uuid: guest for guest in host.guests}
    pids = {(str(process.pid), process.started) for process in host.processes}
    threads = {t.tid: t for p in host.processes for t in p.threads}
    for g in host.guests:
        threads |= {t.tid: t for t in (*g.emulator.threads, *g.vhost_threads)}
        threads |= {part.thread.tid: part.thread for part in (*g.vcpus, *g.iothreads) if part.thread}
    for want in made.wanted:
        target = want.target
        assert target.owner in guests or (target.owner, target.part) in pids
    assert len({want.target for want in made.wanted}) == len(made.wanted)
    for change in made.changes:
        assert all(threads[one.tid].affinity == one.cpus for one in change.before)
        assert any(one.cpus != change.after for one in change.before)
    placed = {guests[want.target.owner].name for want in made.wanted if want.target.kind == "vcpu"}
    unplaced = {left.target.name for left in made.unplaced}
    asked_for = [
        g for g in host.guests if g.name in (request.guests or (g.name,)) and not exclusions.is_excluded_by_flavor(g)
    ]
    scope = {g.name for g in asked_for if not g.dedicated}
    novas = {g.uuid: g for g in asked_for if g.dedicated}
    for want in made.wanted:
        if want.target.owner in novas:
            assert request.nova_emulators
            assert not novas[want.target.owner].emulator.policy
            assert want.target.kind in ("emulator", "iothread", "vhost")
    assert placed | unplaced == scope
    assert not placed & unplaced


@on_any_host
@given(host=snapshots(), asked=parameters, by_hand=st.booleans())
def test_a_second_plan_after_applying_is_empty(host: Snapshot, asked: dict, by_hand: bool, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    assume(not made.blocked)
    # The affinity of a process that the configuration names is its owner's, also where an administrator set it by hand.
    named = {(str(each.pid), each.started) for each in host.processes if each.reserves == "configured"}
    assume(not by_hand or not any((change.target.owner, change.target.part) in named for change in made.changes))
    # From the masks alone, a restricted affinity with lower CPUs than housekeeping could be the housekeeping set.
    restricted = [t.affinity for p in host.processes for t in p.threads if t.immovable_reason == "restricted"]
    assume(not by_hand or all(min(restriction) >= min(made.roles.housekeeping) for restriction in restricted))
    again = plan(applied(host, made, by_hand=by_hand), "s", request)
    assert again.changes == ()
    assert again.roles == made.roles
    assert [term.after for term in again.objective.terms] == [term.before for term in again.objective.terms]


@on_any_host
@given(host=snapshots(), asked=parameters)
def test_the_same_input_gives_the_same_plan_also_from_a_file(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    assert plan(codec.load(Snapshot, codec.dump(host)), "s", request) == made


def shuffled(chance: Random, host: Snapshot) -> Snapshot:
    """The host, whose lists libvirt and the kernel wrote in another order."""

    def mixed(values: Iterable) -> tuple:
        return tuple(chance.sample(found := tuple(values), len(found)))

    guests = (
        replace(
            guest,
            vcpus=mixed(guest.vcpus),
            emulator=replace(guest.emulator, threads=mixed(guest.emulator.threads)),
            iothreads=mixed(guest.iothreads),
            vhost_threads=mixed(guest.vhost_threads),
            memory_per_node=dict(mixed(guest.memory_per_node.items())),
        )
        for guest in host.guests
    )
    return replace(
        host,
        topology=replace(host.topology, cpus=mixed(host.topology.cpus), nodes=mixed(host.topology.nodes)),
        guests=mixed(guests),
        processes=mixed(replace(each, threads=mixed(each.threads)) for each in host.processes),
    )


@on_any_host
@given(host=snapshots(), asked=parameters, chance=st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_lists(
    host: Snapshot, asked: dict, chance: Random, strategy: str
) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    assert codec.dump(plan(shuffled(chance, host), "s", request)) == codec.dump(made)


@pytest.mark.parametrize("smt", ["prefer", "isolate", "require"])
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(host=snapshots())
def test_isolated_places_vcpus_with_the_same_bound_on_one_node_and_follows_its_smt_policy(
    host: Snapshot, smt: str
) -> None:
    made = planned(host, Request("isolated", smt=smt))
    pinned: dict[tuple[str, CpuSet | None], list[int]] = {}
    bounds = bounds_of(host.guests, host.topology)
    others = {guest.uuid for guest in host.guests if exclusions.strategy_of_flavor(guest, (*FLOATING, "exclusive"))}
    for want in made.wanted:
        if want.target.kind == "vcpu" and want.target.owner not in others:
            bound = bounds[want.target.owner].of(want.target).cpus if want.target.owner in bounds else None
            pinned.setdefault((want.target.owner, bound), []).extend(want.cpus)
    facts = {cpu.id: cpu for cpu in host.topology.cpus}
    cores = Counter(facts[cpu].siblings for cpus in pinned.values() for cpu in cpus)
    context = Context.of(host, made.request)
    widest = max(free_slots(context, context.allocatable.unbalanced, CpuSet()).values(), default=0)
    for cpus in pinned.values():
        assert len({facts[cpu].node for cpu in cpus}) == 1 or len(cpus) > widest
    if smt == "isolate":
        assert set(cores.values()) <= {1}
    if smt == "require":
        assert all(len(core) > 1 for core in cores)
