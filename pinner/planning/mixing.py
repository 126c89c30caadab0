"""One plan of several strategies: the request's for the host and most guests, and others for guests whose flavor asks
for them, on the CPUs that the host's strategy leaves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest import Guest, nova_cpus
from pinner.planning import flavors
from pinner.planning.context import Context
from pinner.planning.placing import attend
from pinner.planning.strategy import Answer, Strategy


@dataclass(frozen=True, slots=True)
class _Part:
    """What a strategy that flavors ask for makes of their guests; ``back`` has those that the host's strategy gets
    instead, with why."""

    name: str
    answer: Answer | None
    back: Mapping[str, str]


def place(context: Context, strategies: Mapping[str, Strategy]) -> Answer:
    """Where everything belongs. A guest that cannot have what its flavor asks for gets the host's strategy, and a
    warning says why. Raises what the host's strategy raises."""
    host = strategies[context.request.strategy]
    wishes = {guest.uuid: flavors.strategy(guest, strategies) for guest in context.guests}
    others = sorted({wish for wish in wishes.values() if wish not in ("", host.name)})
    answer = host.place(_only(context, [guest for guest in context.guests if wishes[guest.uuid] not in others]))
    joined = replace(context, joined=answer.roles)
    parts = [
        _part(
            strategies[name], _only(joined, [guest for guest in context.guests if wishes[guest.uuid] == name]), answer
        )
        for name in others
    ]
    if back := [guest for guest in context.guests if any(guest.uuid in part.back for part in parts)]:
        ours = {guest.uuid for guest in (*back, *(g for g in context.guests if wishes[g.uuid] not in others))}
        answer = host.place(_only(context, [guest for guest in context.guests if guest.uuid in ours]))
    for part in parts:
        answer = _merged(answer, part, [g for g in context.guests if wishes[g.uuid] == part.name], host.name)
    return _attending(answer, context)


def _only(context: Context, guests: Iterable[Guest]) -> Context:
    return replace(context, guests=tuple(guests))


def _part(strategy: Strategy, context: Context, host: Answer) -> _Part:
    if any(want.target.kind == "partition" for want in host.wanted):
        why = "the host's strategy makes live partitions, which leave no CPU to others"
        return _Part(strategy.name, None, {guest.uuid: why for guest in context.guests})
    try:
        answer = strategy.place(context)
    except (Invalid, NoFit) as error:
        why = str(error.details.get("why", error.message))
        return _Part(strategy.name, None, {guest.uuid: why for guest in context.guests})
    unplaced = {left.name: left.why for left in answer.unplaced}
    names = {guest.uuid: f"guest {guest.name}" for guest in context.guests}
    if answer.blocked:
        return _Part(strategy.name, None, dict.fromkeys(names, answer.blocked))
    return _Part(strategy.name, answer, {uuid: unplaced[name] for uuid, name in names.items() if name in unplaced})


def _merged(answer: Answer, part: _Part, guests: Iterable[Guest], host: str) -> Answer:
    """The host's answer with that of a part."""
    words = f"its flavor has {flavors.STRATEGY} = {part.name!r}, but it gets {host}"
    refused = tuple(
        f"guest {guest.name}: {words}: {part.back[guest.uuid]}" for guest in guests if guest.uuid in part.back
    )
    if part.answer is None:
        return replace(answer, warnings=answer.warnings + refused)
    theirs = {guest.uuid for guest in guests}
    return replace(
        answer,
        roles=replace(answer.roles, vcpu=answer.roles.vcpu | part.answer.roles.vcpu),
        wanted=(*answer.wanted, *(want for want in part.answer.wanted if want.target.owner in theirs)),
        warnings=(*dict.fromkeys((*answer.warnings, *part.answer.warnings)), *refused),
        isolation=answer.isolation or part.answer.isolation,
    )


def _attending(answer: Answer, context: Context) -> Answer:
    """With QEMU's own threads of the guests that Nova pinned, as far as they are to be placed: near the vCPUs."""
    partitions = union(want.cpus for want in answer.wanted if want.state.startswith("isolated "))
    free, supply = answer.roles.emulator - partitions, context.supply
    wanted, warnings = list(answer.wanted), list(answer.warnings)
    for guest in context.attended:
        near = _near(free, nova_cpus(guest, supply.online), supply.nodes.values())
        wanted += attend(guest, near) if near else ()
        if not near:
            warnings.append(f"guest {guest.name}: no CPU is left for its emulator threads beside the live partitions")
    return replace(answer, wanted=tuple(wanted), warnings=tuple(warnings))


def _near(free: CpuSet, cpus: CpuSet, nodes: Iterable[CpuSet]) -> CpuSet:
    """Those of the free CPUs that are on nodes of ``cpus``; all where none is."""
    return free & union(node for node in nodes if node & cpus) or free
