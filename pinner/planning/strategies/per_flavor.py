"""One plan of several strategies: those that flavors ask for place their guests on CPUs that the request's leaves."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.guest import Guest, nova_cpus
from pinner.model.plan.plan import CpusByGuest, LeftOut, Wanted, vcpus_by_guest
from pinner.model.plan.request import EXCLUSIVE, ISOLATED, ONE_TO_ONE, OPTIMAL
from pinner.model.states import PartitionState
from pinner.model.text import counted
from pinner.planning.available import exclusions
from pinner.planning.available.exclusions import pinned_cpus
from pinner.planning.available.numa import allowed
from pinner.planning.request.context import Context
from pinner.planning.strategies import rules
from pinner.planning.strategies.strategy import Answer, Strategy, place_emulator


@dataclass(frozen=True, slots=True)
class _Part:
    """``refused``: guests that the host's strategy places instead."""

    name: str
    guests: tuple[Guest, ...]
    answer: Answer | None
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Parts:
    answer: Answer
    """The host's strategy's, also for the guests that others refuse."""
    others: tuple[_Part, ...] = ()
    first: CpusByGuest = field(default_factory=dict)
    """CPUs of their own of the host's guests before those of flavors were placed: some may have lost them to these."""

    @property
    def refused(self) -> dict[str, str]:
        """Why, by UUID."""
        return {uuid: why for part in self.others for uuid, why in part.refused.items()}

    @property
    def vcpus(self) -> CpusByGuest:
        answers = (self.answer, *(part.answer for part in self.others if part.answer))
        return vcpus_by_guest([want for answer in answers for want in answer.wanted])

    @property
    def cpus(self) -> dict[str, CpuSet]:
        return {uuid: union(vcpus.values()) for uuid, vcpus in self.vcpus.items()}


LIVE = "the host's strategy makes live partitions, which leave no CPU for another strategy"


def place(context: Context, strategies: Mapping[str, Strategy]) -> Answer:
    """Raises the errors of the host's strategy. A guest that cannot have its flavor's strategy gets the host's, with a
    warning. No flavor decides where a request names CPUs by hand."""
    if context.request.placement:
        return strategies[context.request.strategy].place(context)
    parts = _parts(context, strategies)
    answer = parts.answer
    for part in parts.others:
        answer = _merged(answer, part, context.request.strategy)
    answer = _within_limits(_with_nova_pinned(answer, context), context)
    _require_alone(answer, parts, context, strategies)
    return replace(answer, warnings=(*_unused(answer, context), *answer.warnings))


def refusals(context: Context, strategies: Mapping[str, Strategy]) -> dict[str, str]:
    """Raises the errors of the host's strategy."""
    return _parts(context, strategies).refused


def _parts(context: Context, strategies: Mapping[str, Strategy]) -> _Parts:
    """A guest of ``exclusive`` that yields gets CPUs of its own where there is room for it once the others have theirs:
    else the next plan would give it some."""
    parts, yielding = _after_yielding(context, strategies)
    while yielding:
        exclusive = {guest.uuid for guest in _groups(context, strategies).get(EXCLUSIVE, ())} - yielding.keys()
        own = {
            TargetKey("vcpu", uuid, vcpu): cpus
            for uuid, vcpus in parts.vcpus.items()
            if uuid in exclusive
            for vcpu, cpus in vcpus.items()
        }
        again, still = _after_yielding(replace(context, places={**context.places, **own}), strategies)
        if len(still) >= len(yielding):
            break
        parts, yielding = again, still
    return parts


def _after_yielding(context: Context, strategies: Mapping[str, Strategy]) -> tuple[_Parts, dict[str, str]]:
    """Also why guests yield, by UUID. A new guest of ``exclusive`` does, the widest first, as long as only such guests
    leave one that floats without a place, or with fewer CPUs, and fewer than vCPUs."""
    names = {guest.uuid: _strategy_of(guest, context, strategies) for guest in context.guests}
    floating = {guest.uuid: guest for guest in context.guests if names[guest.uuid] not in ONE_TO_ONE}
    exclusive = [guest for guest in context.guests if names[guest.uuid] == EXCLUSIVE]
    new = _without_own_cpus(context, exclusive) if floating and exclusive else []
    if not new:
        return _complete_parts(context, strategies, {}), {}
    parts = _possible_parts(context, strategies, {})
    if parts and not any(_crowding(parts, floating).values()):
        return parts, {}
    without = _complete_parts(context, strategies, dict.fromkeys((guest.uuid for guest in new), _FEW))
    least, yielding = _crowding(without, floating), dict[str, str]()
    while worse := [uuid for uuid, crowding in _crowding(parts, floating).items() if crowding > least[uuid]]:
        left = {**parts.first, **parts.vcpus} if parts else {guest.uuid: {} for guest in new}
        widest = next((guest for guest in new if guest.uuid in left and guest.uuid not in yielding), None)
        if widest is None:
            break
        yielding[widest.uuid] = _too_few(widest, floating[worse[0]], left)
        parts = _possible_parts(context, strategies, yielding)
    return parts or without, yielding


def _require_alone(answer: Answer, parts: _Parts, context: Context, strategies: Mapping[str, Strategy]) -> None:
    """Raises Invalid where the host's strategy, a plug-in, gives CPUs of ``exclusive`` guests to others."""
    names = {guest.uuid: _strategy_of(guest, context, strategies) for guest in context.guests}
    names |= dict.fromkeys(parts.refused, context.request.strategy)
    if not (alone := {uuid for uuid, name in names.items() if name == EXCLUSIVE}):
        return
    ours = (want for want in answer.wanted if want.target.kind == "vcpu" and want.target.owner in alone)
    own = {want.target: want.cpus for want in ours}
    others = union(want.cpus for want in answer.wanted if want.target not in own and want.state is None)
    if shared := others & union(own.values()):
        expected = f"a strategy that leaves CPUs {shared} to the guests that have them to themselves"
        raise Invalid("strategy", context.request.strategy, expected)


_FEW = "CPUs of its own would leave guests that float too few"


def _without_own_cpus(context: Context, guests: Iterable[Guest]) -> list[Guest]:
    """The others have a CPU for each vCPU, which is no other vCPU's only one: that may be a pool. Also those that a
    trial places anew."""
    now = replace(context, replaced=frozenset())
    masks = {guest.uuid: (now.recorded(guest) or guest.vcpu_affinities).values() for guest in context.snapshot.guests}
    used = Counter(chain.from_iterable(masks.values()))
    alone = {mask for mask, count in used.items() if len(mask) == count == 1}
    return [
        guest
        for guest in guests
        if len(masks[guest.uuid]) != len(guest.plugged) or not alone.issuperset(masks[guest.uuid])
    ]


def _crowding(parts: _Parts | None, floating: Mapping[str, Guest]) -> dict[str, int]:
    """The CPUs that each has too few, by UUID: all without a place, one more where there is no answer."""
    if parts is None:
        return {uuid: len(guest.plugged) + 1 for uuid, guest in floating.items()}
    refused, vcpus = parts.refused, parts.vcpus
    counts = {uuid: 0 if uuid in refused else len(union(vcpus.get(uuid, {}).values())) for uuid in floating}
    return {uuid: max(0, len(floating[uuid].plugged) - count) for uuid, count in counts.items()}


def _too_few(guest: Guest, other: Guest, left: CpusByGuest) -> str:
    count = len(union(left.get(other.uuid, {}).values()))
    what = f"{counted(count, 'CPU')} for {counted(len(other.plugged), 'vCPU')}" if count else "no place"
    return f"{counted(len(guest.plugged), 'CPU')} of its own would leave guest {other.name}, which floats, {what}"


def _possible_parts(context: Context, strategies: Mapping[str, Strategy], yielding: Mapping[str, str]) -> _Parts | None:
    with suppress(Invalid, NoFit):
        return _complete_parts(context, strategies, yielding)
    return None


def _complete_parts(context: Context, strategies: Mapping[str, Strategy], refused: Mapping[str, str]) -> _Parts:
    """Raises the errors of the host's strategy. Where that is ``exclusive``, guests that others refuse take CPUs from
    those that float: these are placed again."""
    parts = _made(context, strategies, refused)
    while context.request.strategy == EXCLUSIVE and not parts.refused.keys() <= refused.keys():
        refused = {**refused, **parts.refused}
        parts = replace(_made(context, strategies, refused), first=parts.first)
    return parts


def _made(context: Context, strategies: Mapping[str, Strategy], refused: Mapping[str, str]) -> _Parts:
    """``refused``, by UUID: guests of flavors get the host's strategy, those of the host's are unplaced."""
    host = strategies[context.request.strategy]
    groups = _groups(context, strategies)
    hosts = groups.pop(host.name, [])
    left_out = tuple(LeftOut(guest.target, refused[guest.uuid]) for guest in hosts if guest.uuid in refused)
    ours = {guest.uuid for guest in hosts}.symmetric_difference(refused)
    own = replace(_only(context, ours), taken=context.taken | _pinned(groups, context))
    answer = rules.read(host.name, host.place(own))
    if groups:
        # The merged answer, which is checked later, does not show which strategy it was.
        rules.check_guests(host.name, answer, own)
    first = vcpus_by_guest(answer.wanted) if host.name == EXCLUSIVE else {}
    parts: list[_Part] = []
    taken, later = context.taken, dict(groups)
    for name in sorted(groups, key=EXCLUSIVE.__ne__):
        guests = later.pop(name)
        unplaced = _unplaced(answer, context)
        unplaced = unplaced if name == EXCLUSIVE else unplaced & context.allocatable.unbalanced
        beside = _own(host.name, answer, context) | unplaced | taken | _pinned(later, context)
        joined = replace(context, joined=answer.roles, taken=beside, elsewhere=_Parts(answer, tuple(parts)).cpus)
        parts.append(_part(strategies[name], guests, refused, joined, answer, host))
        taken |= _own(name, parts[-1].answer, context)
    new = {uuid for part in parts for uuid in part.refused if uuid not in refused}
    if new or taken - context.allocatable.isolated - context.taken:
        placed = replace(context, taken=taken, elsewhere=_Parts(answer, tuple(parts)).cpus)
        answer = _complete_beside(host, _only(placed, ours | new))
        if any(part.answer for part in parts) and is_live(host, answer.wanted, context):
            answer = _complete(host, context)
            return _Parts(answer, tuple(_refused(part.name, part.guests, LIVE) for part in parts))
    return _Parts(replace(answer, unplaced=(*answer.unplaced, *left_out)), tuple(parts), first)


def is_live(host: Strategy, wanted: Iterable[Wanted], context: Context) -> bool:
    """Also where it has placed no guest yet, if no CPU is isolated otherwise and guests can have partitions."""
    guests = context.snapshot.guests
    asked = (
        context.request.isolation == "live" and "isolation" in host.parameters and not context.allocatable.unbalanced
    )
    made = any(want.target.kind == "partition" for want in wanted)
    return made or (asked and (not guests or any(guest.cgroups for guest in guests)))


def _refused(name: str, guests: tuple[Guest, ...], why: str) -> _Part:
    return _Part(name, guests, None, {guest.uuid: why for guest in guests})


def _own(name: str, answer: Answer | None, context: Context) -> CpuSet:
    """Two strategies can have isolated CPUs: isolated and optimal."""
    vcpus = union(want.cpus for want in answer.wanted if want.target.kind == "vcpu") if answer else CpuSet()
    return vcpus if name == EXCLUSIVE else vcpus & context.allocatable.unbalanced


def _unplaced(answer: Answer, context: Context) -> CpuSet:
    """The isolated CPUs on which guests without a place stay."""
    unplaced = {left.target for left in answer.unplaced}
    return union(pinned_cpus(guest) for guest in context.guests if guest.target in unplaced)


def _pinned(groups: Mapping[str, list[Guest]], context: Context) -> CpuSet:
    """The isolated CPUs that guests keep whose strategy comes later; a rebalance places them anew."""
    if context.request.rebalance:
        return CpuSet()
    guests = (guest for name in (ISOLATED, OPTIMAL) for guest in groups.get(name, ()))
    return union(map(pinned_cpus, guests)) & context.allocatable.unbalanced


def _groups(context: Context, strategies: Mapping[str, Strategy]) -> dict[str, list[Guest]]:
    groups: dict[str, list[Guest]] = {}
    for guest in context.guests:
        groups.setdefault(_strategy_of(guest, context, strategies), []).append(guest)
    return groups


def _strategy_of(guest: Guest, context: Context, strategies: Collection[str]) -> str:
    return exclusions.strategy_of_flavor(guest, strategies) or context.request.strategy


def _only(context: Context, guests: Collection[str]) -> Context:
    """Of the others, only those with CPUs of their own stay where they are, whatever the plan does."""
    if not (others := [guest for guest in context.guests if guest.uuid not in guests]):
        return context
    without = {guest.uuid for guest in _without_own_cpus(context, others)}
    stay = {each.uuid: CpuSet() if each.uuid in without else union(each.vcpu_affinities.values()) for each in others}
    ours = tuple(guest for guest in context.guests if guest.uuid in guests)
    return replace(context, guests=ours, elsewhere=stay | dict(context.elsewhere))


def _complete(strategy: Strategy, context: Context) -> Answer:
    answer = rules.read(strategy.name, strategy.place(context))
    rules.check_guests(strategy.name, answer, context)
    return answer


def _complete_beside(strategy: Strategy, context: Context) -> Answer:
    """Guests have no place where those of ``exclusive`` leave none."""
    try:
        return _complete(strategy, context)
    except NoFit as error:
        if not context.taken - context.allocatable.isolated:
            raise
        answer, why = _complete(strategy, _only(context, ())), str(error.details.get("why", error.message))
        return replace(answer, unplaced=tuple(LeftOut(guest.target, why) for guest in context.guests))


def _part(
    strategy: Strategy,
    guests: Collection[Guest],
    before: Mapping[str, str],
    context: Context,
    answer_of_host: Answer,
    host: Strategy,
) -> _Part:
    """``before``: guests, by UUID, that are refused whatever the strategy says."""
    before = {guest.uuid: before[guest.uuid] for guest in guests if guest.uuid in before}
    context = _only(context, {guest.uuid for guest in guests} - before.keys())

    def refuse(why: str) -> _Part:
        return _Part(strategy.name, tuple(guests), None, {**{guest.uuid: why for guest in guests}, **before})

    if is_live(host, answer_of_host.wanted, context):
        return refuse(LIVE)
    try:
        place = strategy.place(context)
    except (Invalid, NoFit) as error:
        return refuse(str(error.details.get("why", error.message)))
    answer = rules.read(strategy.name, place)
    if answer.blocked:
        return refuse(answer.blocked)
    rules.check_guests(strategy.name, answer, context)
    if any(want.state is not None for want in answer.wanted):
        return refuse("only the host's strategy may change partitions and work queues")
    theirs = {guest.uuid for guest in context.guests}
    placed = tuple(want for want in answer.wanted if want.target.owner in theirs)
    answer = replace(answer, wanted=placed)
    # The host's strategy gives all guests the emulator CPUs. Checked here, a wrong CPU is blamed on this strategy.
    rules.check(strategy.name, replace(answer, roles=replace(answer_of_host.roles, vcpu=answer.roles.vcpu)), context)
    unplaced = {left.target: left.why for left in answer.unplaced}
    refused = {guest.uuid: unplaced[target] for guest in context.guests if (target := guest.target) in unplaced}
    return _Part(strategy.name, tuple(guests), answer, before | refused)


def _merged(answer: Answer, part: _Part, host: str) -> Answer:
    gets_host = f"its flavor has {exclusions.STRATEGY} = {part.name!r}, but it gets {host}"
    warnings = tuple(
        f"guest {guest.name}: {gets_host}: {part.refused[guest.uuid]}"
        for guest in part.guests
        if guest.uuid in part.refused
    )
    if part.answer is None:
        return replace(answer, warnings=answer.warnings + warnings)
    return replace(
        answer,
        roles=replace(answer.roles, vcpu=answer.roles.vcpu | part.answer.roles.vcpu),
        wanted=(*answer.wanted, *part.answer.wanted),
        warnings=(*dict.fromkeys((*answer.warnings, *part.answer.warnings)), *warnings),
    )


def _with_nova_pinned(answer: Answer, context: Context) -> Answer:
    if not context.nova_pinned:
        return answer
    partitions = union(want.cpus for want in answer.wanted if _is_isolated(want))
    free, allocatable = answer.roles.emulator - partitions, context.allocatable
    wanted, warnings = list(answer.wanted), list(answer.warnings)
    for guest in context.nova_pinned:
        near = _near(allowed(guest, free), nova_cpus(guest, allocatable.online), allocatable.nodes.values())
        wanted += place_emulator(guest, near, answer.roles) if near else ()
        if not near:
            why = f"in {guest.cpu_limits[-1]}" if free and guest.cpu_limits else "beside the live partitions"
            warnings.append(f"guest {guest.name}: no CPU is left for its emulator threads {why}")
    return replace(answer, wanted=tuple(wanted), warnings=tuple(warnings))


def _within_limits(answer: Answer, context: Context) -> Answer:
    """Reasons name the cgroup that leaves out CPUs. A process that the request names gets what its cgroup allows, and
    stays where that is no CPU of its set."""
    snapshot = context.snapshot
    limits = {guest.uuid: guest.cpu_limits[-1] for guest in snapshot.guests if guest.cpu_limits}
    limits |= {str(process.pid): process.cpu_limits[-1] for process in snapshot.processes if process.cpu_limits}
    wanted, warnings = list[Wanted](), list(answer.warnings)
    for want in answer.wanted:
        limit = limits.get(want.target.owner) if want.state is None else None
        if limit is None:
            wanted.append(want)
            continue
        allows = f"{limit} allows CPUs {limit.cpus}"
        cpus = want.cpus & limit.cpus if want.target.kind == "process" else want.cpus
        if not cpus:
            warnings.append(f"{want.target} stays: {allows}, where the housekeeping set ({want.cpus}) has no CPU")
        else:
            reason = want.reason if str(limit) in want.reason else f"{want.reason}; {allows}"
            wanted.append(replace(want, cpus=cpus, reason=reason))
    return replace(answer, wanted=tuple(wanted), warnings=tuple(warnings)) if limits else answer


def _is_isolated(want: Wanted) -> bool:
    match want.state:
        case PartitionState(kind="isolated"):
            return True
    return False


def _unused(answer: Answer, context: Context) -> Iterator[str]:
    unused = context.allocatable.unbalanced
    if unused and not unused & answer.roles.vcpu:
        yield (
            f"CPUs {unused} are isolated from the kernel's scheduler and stay unused: threads cannot float over them; "
            "only the strategy isolated uses them"
        )


def _near(free: CpuSet, cpus: CpuSet, nodes: Iterable[CpuSet]) -> CpuSet:
    return free & union(node for node in nodes if node & cpus) or free
