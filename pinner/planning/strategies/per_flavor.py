"""One plan of several strategies: those that flavors ask for place their guests on CPUs that the request's leaves."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.guest import Guest, nova_cpus
from pinner.model.plan.plan import Wanted
from pinner.model.plan.request import ISOLATED, OPTIMAL
from pinner.model.states import PartitionState
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


LIVE = "the host's strategy makes live partitions, which leave no CPU for another strategy"


def place(context: Context, strategies: Mapping[str, Strategy]) -> Answer:
    """Raises the errors of the host's strategy. A guest that cannot have its flavor's strategy gets the host's, with a
    warning. No flavor decides where a request names CPUs by hand."""
    if context.request.placement:
        return strategies[context.request.strategy].place(context)
    answer, parts = _parts(context, strategies)
    for part in parts:
        answer = _merged(answer, part, context.request.strategy)
    answer = _within_limits(_with_nova_pinned(answer, context), context)
    return replace(answer, warnings=(*_unused(answer, context), *answer.warnings))


def refusals(context: Context, strategies: Mapping[str, Strategy]) -> dict[str, str]:
    """Raises the errors of the host's strategy."""
    _, parts = _parts(context, strategies)
    return {uuid: why for part in parts for uuid, why in part.refused.items()}


def _parts(context: Context, strategies: Mapping[str, Strategy]) -> tuple[Answer, list[_Part]]:
    """The host's strategy's answer, for the guests that others refuse, too, and the others'."""
    host = strategies[context.request.strategy]
    groups = _groups(context, strategies)
    ours = {guest.uuid for guest in groups.pop(host.name, ())}
    own = replace(_only(context, ours), taken=_pinned(groups, context))
    answer = rules.read(host.name, host.place(own))
    if groups:
        # The merged answer, which is checked later, does not show which strategy it was.
        rules.check_guests(host.name, answer, own)
    parts: list[_Part] = []
    taken, later = CpuSet(), dict(groups)
    for name, guests in groups.items():
        del later[name]
        beside = _own(answer, context) | _unplaced(answer, context) | taken | _pinned(later, context)
        joined = _only(replace(context, joined=answer.roles, taken=beside), {guest.uuid for guest in guests})
        parts.append(_part(strategies[name], joined, answer, host))
        taken |= _own(parts[-1].answer, context)
    if refused := {uuid for part in parts for uuid in part.refused}:
        answer = _complete(host, replace(_only(context, ours | refused), taken=taken))
        if any(part.answer for part in parts) and is_live(host, answer.wanted, context):
            return _complete(host, context), [_refused(part.name, part.guests, LIVE) for part in parts]
    return answer, parts


def is_live(host: Strategy, wanted: Iterable[Wanted], context: Context) -> bool:
    """Also where it has placed no guest yet, if no CPU is isolated otherwise and guests can have partitions."""
    guests = context.snapshot.guests
    asked = context.request.isolation == "live" and "isolation" in host.parameters and not context.allocatable.exclusive
    made = any(want.target.kind == "partition" for want in wanted)
    return made or (asked and (not guests or any(guest.cgroups for guest in guests)))


def _refused(name: str, guests: tuple[Guest, ...], why: str) -> _Part:
    return _Part(name, guests, None, {guest.uuid: why for guest in guests})


def _own(answer: Answer | None, context: Context) -> CpuSet:
    """Two strategies can have isolated CPUs: isolated and optimal."""
    vcpus = (want.cpus for want in answer.wanted if want.target.kind == "vcpu") if answer else ()
    return union(vcpus) & context.allocatable.exclusive


def _unplaced(answer: Answer, context: Context) -> CpuSet:
    """The isolated CPUs on which guests without a place stay."""
    unplaced = {left.target for left in answer.unplaced}
    return union(pinned_cpus(guest) for guest in context.guests if guest.target in unplaced)


def _pinned(groups: Mapping[str, list[Guest]], context: Context) -> CpuSet:
    """The isolated CPUs that guests keep whose strategy comes later; a rebalance places them anew."""
    if context.request.rebalance:
        return CpuSet()
    guests = (guest for name in (ISOLATED, OPTIMAL) for guest in groups.get(name, ()))
    return union(map(pinned_cpus, guests)) & context.allocatable.exclusive


def _groups(context: Context, strategies: Mapping[str, Strategy]) -> dict[str, list[Guest]]:
    groups: dict[str, list[Guest]] = {}
    for guest in context.guests:
        groups.setdefault(exclusions.strategy_of_flavor(guest, strategies) or context.request.strategy, []).append(
            guest
        )
    return groups


def _only(context: Context, guests: Collection[str]) -> Context:
    return replace(context, guests=tuple(guest for guest in context.guests if guest.uuid in guests))


def _complete(strategy: Strategy, context: Context) -> Answer:
    answer = rules.read(strategy.name, strategy.place(context))
    rules.check_guests(strategy.name, answer, context)
    return answer


def _part(strategy: Strategy, context: Context, answer_of_host: Answer, host: Strategy) -> _Part:
    def refuse(why: str) -> _Part:
        return _refused(strategy.name, context.guests, why)

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
    return _Part(strategy.name, context.guests, answer, refused)


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
    unused = context.allocatable.exclusive
    if unused and not unused & answer.roles.vcpu:
        yield (
            f"CPUs {unused} are isolated from the kernel's scheduler and stay unused: threads cannot float over them; "
            "only the strategy isolated uses them"
        )


def _near(free: CpuSet, cpus: CpuSet, nodes: Iterable[CpuSet]) -> CpuSet:
    return free & union(node for node in nodes if node & cpus) or free
