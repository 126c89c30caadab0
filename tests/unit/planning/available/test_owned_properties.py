"""No CPU that an operator's pin owns goes to anybody else, and none is taken from its owner, on random hosts."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import KERNEL, applied
from support.made_up.anyhost import snapshots
from support.values import MEMBER

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.guest.guest import Cgroup, Guest, OperatorPin
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import record
from pinner.planning.request.processes import process_target

STRATEGIES = ("shared-pool", "numa-local", "isolated", "optimal", "exclusive")
requests = st.fixed_dictionaries(
    {"isolation": st.sampled_from(["boot", "live"])},
    optional={"released_guests": st.just(("g1",)), "excluded_guests": st.just(("g2",)), "guests": st.just(("g0",))},
)


@st.composite
def pinned(draw, guest: Guest, online: list[int]) -> Guest:
    """Its vCPUs one to one, or over CPUs that all of them share, sometimes in real time; often its emulator, too."""
    single = st.sampled_from(online).map(CpuSet.one)
    some = st.lists(st.sampled_from(online), min_size=1, max_size=4).map(CpuSet.of)
    shared, policy = draw(st.one_of(st.none(), some)), draw(st.sampled_from(["", "", "fifo"]))
    vcpus, pins = [], []
    for vcpu in guest.vcpus:
        mask = shared or draw(single)
        pins.append(OperatorPin("vcpu", vcpu.id, mask, "definition"))
        thread = vcpu.thread and replace(vcpu.thread, affinity=mask, realtime=policy)
        vcpus.append(replace(vcpu, thread=thread))
    if draw(st.booleans()):
        pins.append(OperatorPin("emulator", None, draw(single), "definition"))
    return replace(guest, vcpus=tuple(vcpus), operator_pins=tuple(pins), dedicated=False)


@st.composite
def hosts(draw) -> tuple[Snapshot, Snapshot]:
    """One whose guests float, in systemd scopes of two slices, and the same one with pins of operators."""
    host = draw(snapshots())
    scopes = [st.sampled_from(["a.slice", "a.slice", "b.slice"]) for _ in host.guests]
    guests = [
        replace(each, cgroups=(Cgroup(slice_, MEMBER), Cgroup(f"{slice_}/{each.name}.scope", MEMBER)))
        for each, slice_ in zip(host.guests, map(draw, scopes), strict=True)
    ]
    free = replace(host, guests=tuple(guests), topology=replace(host.topology, kernel=KERNEL))
    online = sorted(host.topology.online)
    some = (draw(pinned(each, online)) if draw(st.booleans()) else each for each in guests)
    return free, replace(free, guests=tuple(some))


def owned(host: Snapshot, request: Request) -> dict[str, CpuSet]:
    """By the table of docs/strategies.md."""
    pins, realtime = [], set()
    for guest in host.guests:
        left_alone = guest.operator_pins and guest.name not in (*request.guests, *request.released_guests)
        for pin in guest.operator_pins if left_alone else ():
            if pin.kind == "vcpu":
                pins.append((guest.uuid, pin.part, pin.cpus))
                realtime |= {
                    (guest.uuid, v.id) for v in guest.vcpus if v.id == pin.part and v.thread and v.thread.realtime
                }
    own: dict[str, CpuSet] = {}
    for uuid, vcpu, mask in pins:
        cores = {host.topology.online_cores[cpu] for cpu in mask}
        if (uuid, vcpu) in realtime or sum(other <= mask for _, _, other in pins) >= len(cores):
            own[uuid] = own.get(uuid, CpuSet()) | mask
    return own


def require_owned(host: Snapshot, request: Request, made: Plan) -> None:
    own = owned(host, request)
    every = union(own.values())
    assert not made.roles.cpus & every
    for want in made.wanted:
        if want.target.kind == "partition":
            paths = {guest.uuid: {each.path for each in guest.cgroups} for guest in host.guests}
            inside = union(cpus for uuid, cpus in own.items() if want.target.owner in paths[uuid])
            assert inside <= want.cpus
            assert not want.cpus & every - inside
        elif want.target.kind != "workqueue":
            assert want.target.owner not in own
            assert not want.cpus & every
    processes = {process_target(process): process for process in host.processes}
    for left in made.skipped:
        if (process := processes.get(left.target)) and not process.immovable_reason:
            threads = [each for each in process.threads if not left.threads or each.tid in left.threads]
            if union(thread.affinity for thread in threads) & every:
                assert any("CPUs that pins of guests own" in warning for warning in made.warnings)
    for guest in host.guests:
        if guest.uuid in own:
            whys = [left.why for left in made.skipped if left.target == guest.target]
            assert all("it owns CPUs " in why for why in whys)


def planned(host: Snapshot, request: Request, placement: Placement | None = None) -> Plan | None:
    try:
        return planner.plan_from_placement(host, "s", request, placement)
    except (Invalid, NoFit, NovaConflict) as error:
        assert not any(words in str(error) for words in ("pinner may not allocate", "guests inside own"))
        return None


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(pair=hosts(), asked=requests)
def test_nobody_else_gets_the_cpus_that_pins_own_and_no_owner_loses_them(pair, asked: dict, strategy: str) -> None:
    free, host = pair
    request = Request(strategy, **asked)
    if made := planned(host, request):
        require_owned(host, request, made)
    # The same pins, set after a run.
    if (before := planned(free, request)) and not before.blocked:
        placement = record(before, free, None)
        after = {guest.uuid: guest for guest in applied(free, before).guests}
        pins = {guest.uuid: guest for guest in host.guests if guest.operator_pins}
        later = replace(applied(free, before), guests=tuple((after | pins).values()))
        if made := planned(later, request, placement):
            require_owned(later, request, made)
