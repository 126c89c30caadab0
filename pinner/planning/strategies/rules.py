"""Rules for every strategy's answer, also a plug-in's. Each guest is placed with all its parts, or unplaced, once: a
forgotten one would pass as "nothing to do"."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import or_
from types import NoneType
from typing import TypeVar, get_args

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Cgroup, Guest, own_vcpu_pins
from pinner.model.guest.nova import require_clear
from pinner.model.kinds import KINDS, QEMUS_OWN, TargetKind
from pinner.model.plan.plan import Isolation, LeftOut, Roles, Wanted
from pinner.model.states import PartitionKind, PartitionState, State, cpus_of
from pinner.model.text import and_more
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer

T = TypeVar("T")

_PARTITION_KINDS = frozenset(get_args(PartitionKind))
_STATES = (*get_args(State), NoneType)


def read(name: str, answer: object) -> Answer:
    """Each iterable as a tuple: an iterator can be read only once.

    Raises Invalid for a value of another type: mypy does not check a plug-in, and a plan with such a value could be
    stored, but not read again.
    """
    if not isinstance(answer, Answer):
        raise Invalid("strategy", name, f"a strategy that answers with an Answer, not with {_short(answer)}")
    answer = replace(
        answer,
        wanted=_tuple(name, "wanted", answer.wanted),
        unplaced=_tuple(name, "unplaced", answer.unplaced),
        warnings=_tuple(name, "warnings", answer.warnings),
    )
    _refuse(name, _mistyped(answer))
    return answer


def check(name: str, answer: Answer, context: Context) -> None:
    """Raises NovaConflict for CPUs that Nova owns, Invalid with the first broken rule."""
    check_guests(name, answer, context)
    _refuse(name, broken(answer, context))
    _refuse(name, map(str, without_cpus(answer.wanted, context)))


def check_guests(name: str, answer: Answer, context: Context) -> None:
    """Complete, and only targets that may be placed. Raises like ``check``."""
    require_clear(answer.wanted, context.allocatable.nova, emulators=context.request.nova_emulators)
    _refuse(name, _incomplete(answer, context))


def _refuse(name: str, wrongs: Iterator[str]) -> None:
    if wrong := next(wrongs, ""):
        raise Invalid("strategy", name, f"a strategy whose answer follows the rules; in this answer, {wrong}")


def _tuple(name: str, field: str, values: Iterable[T]) -> tuple[T, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise Invalid(
            "strategy", name, f"a strategy whose answer has a tuple as {field}, not {_short(values)}"
        ) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _mistyped(answer: Answer) -> Iterator[str]:
    for field, expected in (("roles", Roles), ("isolation", Isolation | None), ("blocked", str)):
        if not isinstance(getattr(answer, field), expected):
            yield f"{field} is {_short(getattr(answer, field))}"
    for want in answer.wanted:
        if not _is_wanted(want):
            yield from _mistyped_wanted(want)
    for left in answer.unplaced:
        if not (isinstance(left, LeftOut) and _is_target(left.target) and isinstance(left.why, str)):
            yield f"unplaced has {_short(left)}"
    for warning in answer.warnings:
        if not isinstance(warning, str):
            yield f"warnings has {_short(warning)}"


def _is_wanted(want: object) -> bool:
    return (
        isinstance(want, Wanted)
        and _is_target(want.target)
        and isinstance(want.cpus, CpuSet)
        and isinstance(want.reason, str)
        and (want.state is None or isinstance(want.state, _STATES))
    )


def _mistyped_wanted(want: object) -> Iterator[str]:
    if not (isinstance(want, Wanted) and _is_target(want.target)):
        yield f"wanted has {_short(want)}"
        return
    for field, value, expected in (
        ("cpus", want.cpus, CpuSet),
        ("reason", want.reason, str),
        ("state", want.state, _STATES),
    ):
        if not isinstance(value, expected):
            yield f"{want.target} has {_short(value)} for {field}"


def _is_target(target: object) -> bool:
    return isinstance(target, Target) and target.kind in KINDS


def _incomplete(answer: Answer, context: Context) -> Iterator[str]:
    yield from _unplaced(answer, context)
    yield from _others(answer.wanted, context)
    wanted = {want.target for want in answer.wanted}
    yield from _targets(answer.wanted, wanted, context)
    unplaced = {left.target for left in answer.unplaced}
    for guest in () if context.request.placement else context.guests:  # a placement by hand may name some parts only
        parts = guest.threads_by_target
        # A set of the keys of a dict keeps their hashes.
        missing = [] if set(parts) <= wanted else [target for target in parts if target not in wanted]
        if guest.target in unplaced:
            if len(missing) < len(parts):
                yield f"{guest.target} is both placed and listed as unplaced"
        elif parts and len(missing) == len(parts):
            yield f"{guest.target} is neither placed nor listed as unplaced"
        elif missing:
            yield f"{guest.target} is placed only in part: {missing[0]}{and_more(len(missing) - 1)} has no place"


def _unplaced(answer: Answer, context: Context) -> Iterator[str]:
    if not answer.unplaced:
        return
    known = {guest.target for guest in context.guests}
    if context.request.placement:
        known.update(context.threads)
    for target, times in Counter(left.target for left in answer.unplaced).items():
        if target not in known:
            yield f"{target} is listed as unplaced, but is not among the guests to place"
        if times > 1:
            yield f"{target} is listed as unplaced {times} times"
    for left in answer.unplaced:
        if left.threads:
            yield f"{left.target} is listed as unplaced, but only with threads {', '.join(map(str, left.threads))}"


def _others(wanted: tuple[Wanted, ...], context: Context) -> Iterator[str]:
    ours = {guest.uuid for guest in context.guests}
    if not (theirs := {guest.uuid for guest in context.snapshot.guests} - ours):
        return
    nova_pinned = {guest.uuid for guest in context.nova_pinned}
    for want in wanted:
        target = want.target
        if target.owner in theirs and not (target.owner in nova_pinned and target.kind in QEMUS_OWN):
            yield f"{target} is placed, but is not among the guests to place"


def broken(answer: Answer, context: Context) -> Iterator[str]:
    yield from _roles(answer.roles)
    yield from _cpus(answer, context)
    for want in answer.wanted if context.bounds else ():
        yield from outside_bound(want, context)
    yield from _across_clusters(answer.wanted, context.snapshot.topology.clusters)
    yield from _alone(answer.wanted, context)
    for want in answer.wanted:
        if want.state is not None:
            yield from _state(want.target, want.cpus, want.state, context)
        if want.target.kind == "partition" and (both := want.cpus & answer.roles.housekeeping):
            yield f"{want.target} takes CPUs {both} from housekeeping"


def _state(target: Target, cpus: CpuSet, state: State, context: Context) -> Iterator[str]:
    """Other rules check the CPUs that a strategy wants, but a run sets the state."""
    if not isinstance(state, KINDS[target.kind].state or ()):
        yield f"{target} gets the state '{state}', which is of another kind"
    if cpus != cpus_of(state):
        yield f"{target} gets the state '{state}', but is placed on CPUs {cpus}"
    match state:
        case PartitionState(kind, _, invalid):
            if kind not in _PARTITION_KINDS or invalid:
                yield f"{target} gets the state '{state}', which cannot be set"
            if not cpus and kind != "member":
                yield f"{target} has no CPU"
            own = context.own_within(target.owner)
            forbidden = context.allocatable.objections(cpus - own, floating=False)
            if kind == "isolated" and (dedicated := cpus & context.allocatable.dedicated):
                forbidden.append(f"Nova dedicates {dedicated}")
            if forbidden:
                yield f"{target} takes CPUs that pinner may not allocate: {'; '.join(forbidden)}"
            if kind != "member" and (lost := own - cpus):
                yield f"{target} leaves out CPUs {lost}, which guests inside own"
        case CpuSet() if not cpus and not KINDS[target.kind].may_be_off:
            yield f"{target} has no CPU"


def _roles(roles: Roles) -> Iterator[str]:
    sets = (("housekeeping", roles.housekeeping), ("emulator", roles.emulator), ("vCPU", roles.vcpu))
    for (one, cpus), (other, others) in combinations(sets, 2):
        if (both := cpus & others) and not roles.notes:
            yield f"{one} and {other} share CPUs {both}, and no note says why"


def _targets(wanted: tuple[Wanted, ...], targets: set[Target], context: Context) -> Iterator[str]:
    with_state = {want.target for want in wanted if want.state is not None}
    known = with_state.issubset(context.settings) and (targets - with_state).issubset(context.threads)
    if not known or len(targets) < len(wanted):
        yield from _wrong_targets(wanted, context)


def _wrong_targets(wanted: tuple[Wanted, ...], context: Context) -> Iterator[str]:
    for target, times in Counter(want.target for want in wanted).items():
        if times > 1:
            yield f"{target} is placed {times} times"
        if target not in context.threads and target not in context.settings:
            yield f"{target} is not on the host, or not to be moved"
    for want in wanted:
        if want.state is not None and want.target in context.threads:
            yield f"{want.target} has a state, but its kind has threads instead"
        if want.state is None and want.target in context.settings:
            yield f"{want.target} has no state, but its kind has one instead of threads"


def _cpus(answer: Answer, context: Context) -> Iterator[str]:
    """Thousands of threads share a handful of sets: each is looked at only where the union of a kind breaks a rule."""
    sets: dict[tuple[TargetKind, bool, bool, str], dict[int, Wanted]] = {}
    confined = {guest.uuid for guest in context.guests if guest.restriction}
    # A placement by hand may place parts of a guest that an operator pinned.
    pinned = {each.guest for each in context.allocatable.restrictions}
    for want in answer.wanted:
        if want.state is None:
            kind, bits = want.target.kind, want.cpus.bits
            guest = owner if (owner := want.target.owner) in pinned else ""
            alike = kind, kind == "vcpu" and bits.bit_count() == 1, owner in confined, guest
            if (wanted := sets.get(alike)) is None:
                wanted = sets[alike] = {}
            wanted.setdefault(bits, want)
    for (kind, one_to_one, is_confined, guest), wanted in sets.items():
        allowed = _role(kind, answer.roles, confined=is_confined)
        every, floating = CpuSet(reduce(or_, wanted)), not one_to_one
        wrong = context.allocatable.objections(every, floating=floating, guest=guest)
        if wrong or not (all(wanted) and every <= allowed):
            for want in wanted.values():
                yield from _wrong_cpus(want, allowed, context, floating=floating)


def _role(kind: TargetKind, roles: Roles, *, confined: bool) -> CpuSet:
    """A definition may leave a guest no CPU of the emulator set."""
    beside = roles.emulator | roles.vcpu if confined else roles.emulator
    return {"process": roles.housekeeping, "vcpu": roles.vcpu}.get(kind, beside)


def _wrong_cpus(want: Wanted, allowed: CpuSet, context: Context, *, floating: bool) -> Iterator[str]:
    if not want.cpus:
        yield f"{want.target} has no CPU"
    if outside := want.cpus - allowed:
        yield f"{want.target} is placed on CPUs {outside}, outside the set of its role ({allowed})"
    if forbidden := context.allocatable.objections(want.cpus, floating=floating, guest=want.target.owner):
        yield f"{want.target} is placed on CPUs that pinner may not allocate: {'; '.join(forbidden)}"


def outside_bound(want: Wanted, context: Context) -> Iterator[str]:
    bound = context.bounds.get(want.target.owner)
    if bound is None or want.state is not None:
        return
    group = bound.of(want.target)
    if outside := want.cpus - group.within(want.cpus):
        yield f"{want.target} is placed on CPUs {outside}, but {group.why}"


def _across_clusters(wanted: tuple[Wanted, ...], clusters: tuple[CpuSet, ...]) -> Iterator[str]:
    for want in wanted if clusters else ():
        if want.target.kind == "vcpu" and not any(want.cpus <= cluster for cluster in clusters):
            yield f"{want.target} is placed on CPUs {want.cpus}, but a KVM vCPU must stay in one cluster"


def _alone(wanted: tuple[Wanted, ...], context: Context) -> Iterator[str]:
    isolated = context.allocatable.isolated
    if not isolated:
        return
    used = several = 0
    for want in wanted:
        if want.state is None:
            several |= used & want.cpus.bits
            used |= want.cpus.bits
    if shared := CpuSet(several) & isolated:
        yield f"isolated CPUs {shared} get several threads each, but the kernel does not balance their load"


@dataclass(frozen=True, slots=True)
class WithoutCpus:
    """A guest without a partition of its own whose bound or pin has no CPU that the others' partitions leave: the
    kernel would let its threads run on any CPU of the slice (admin-guide/cgroup-v2.rst)."""

    guest: Guest
    slice_: str
    mask: CpuSet
    inside: CpuSet
    """Of these, the CPUs of the slice."""

    def __str__(self) -> str:
        return f"partitions in {self.slice_} would leave guest {self.guest.name} none of its CPUs {self.mask}"


def without_cpus(wanted: Iterable[Wanted], context: Context) -> Iterator[WithoutCpus]:
    """After all these changes together."""
    states = {want.target.owner: want.state for want in wanted if isinstance(want.state, PartitionState)}
    if not states:
        return

    def after(cgroup: Cgroup) -> PartitionState:
        return states.get(cgroup.path, cgroup.state)

    guests = [guest for guest in context.snapshot.guests if guest.cgroups]
    scopes = {g.uuid: after(g.cgroups[-1]).cpus for g in guests if after(g.cgroups[-1]).kind == "isolated"}
    taken = union(scopes.values())
    for guest in guests:
        slice_ = guest.cgroups[0]
        if guest.uuid in scopes or after(slice_).kind == "member":
            continue
        for mask in _claimed(guest, context):
            if not mask & (after(slice_).cpus - taken):
                yield WithoutCpus(guest, slice_.path, mask, mask & after(slice_).cpus)


def _claimed(guest: Guest, context: Context) -> Iterator[CpuSet]:
    """Pinner's own pins are no claim of its owner's; strict memory binds no thread to a CPU."""
    masks = [pin.cpus for pin in guest.operator_pins]
    if any(guest.uuid == other.uuid for other in context.others):
        own = own_vcpu_pins(guest)
        masks += (mask for vcpu, mask in guest.vcpu_affinities.items() if mask != own.get(vcpu))
    if guest.restriction:
        masks.append(guest.restriction)
    yield from dict.fromkeys(here for mask in masks if (here := mask & context.allocatable.online))
