"""From a snapshot and a request to a plan: pure, so the same two always give the same plan."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NotFound
from pinner.model.nova import NovaSets, configured
from pinner.model.plan import Basis, Plan, Repack
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import flavors, mixing, rules
from pinner.planning.context import Context
from pinner.planning.diff import changes
from pinner.planning.identity import plan_id
from pinner.planning.memory import guests_memory
from pinner.planning.score import score
from pinner.planning.strategy import Answer, Strategy, installed

EVERYWHERE = ("strategy", "exempt_guests", "exempt_processes", "nova_emulators", "repack")
"""The fields of a request that hold whatever the strategy."""


def plan(
    snapshot: Snapshot,
    snapshot_id: str,
    request: Request,
    strategies: Mapping[str, Strategy] | None = None,
) -> Plan:
    """What a request would change on a host, and why.

    ``snapshot_id`` is the snapshot's content hash, ``strategies`` those to choose from by name (None: the installed
    ones). "Nothing to do" is a plan without changes. Raises NotFound for an unknown strategy, guest or process; Invalid
    for a parameter that this host cannot have; NoFit where no CPU is left for vCPUs.
    """
    known = installed() if strategies is None else strategies
    require_known(request, known)
    return made(known, Context.of(snapshot, request), snapshot_id, plan_id(snapshot_id.encode(), codec.dump(request)))


def require_known(request: Request, strategies: Mapping[str, Strategy]) -> None:
    """Raises NotFound where the request's strategy is none of these."""
    if request.strategy not in strategies:
        raise NotFound("strategy", request.strategy, tuple(sorted(strategies)))


def made(strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str) -> Plan:
    """The plan with the id ``name`` that the answer of the request's strategy, which is among these, amounts to. Raises
    like ``plan``."""
    snapshot, request = context.snapshot, context.request
    answer, repack = _answer(strategies, context)
    planned = _masks(answer, context)
    return Plan(
        id=name,
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint),
        roles=answer.roles,
        wanted=answer.wanted,
        changes=changes(context, answer.wanted),
        unplaced=answer.unplaced,
        left_alone=context.left_alone,
        warnings=(*snapshot.warnings, *_warnings(context, strategies), *answer.warnings),
        score_before=score(snapshot, request.busy_threshold, {}),
        score_after=score(snapshot, request.busy_threshold, planned),
        isolation=answer.isolation,
        blocked=answer.blocked or _unknown(snapshot),
        memory=guests_memory(snapshot, answer.wanted),
        repack=repack,
    )


def _answer(strategies: Mapping[str, Strategy], context: Context) -> tuple[Answer, Repack | None]:
    """The strategy's answer; with a re-pack the one that leaves who sits well, unless the other one scores better, or
    places more. Nobody who has a place loses it to somebody who has none: repeated, that would never come to rest."""
    answer = _checked(strategies, context)
    if not context.request.repack:
        return answer, None
    leaving = replace(context, request=replace(context.request, repack=False))
    stay = _checked(strategies, leaving)
    now = {want.target: want.cpus for want in stay.wanted}
    moved = [want.target for want in answer.wanted if now.get(want.target) != want.cpus]
    threshold = context.request.busy_threshold
    gain = (
        score(context.snapshot, threshold, _masks(stay, leaving)).total
        - score(context.snapshot, threshold, _masks(answer, context)).total
    )
    homeless, homeless_now = ({left.name for left in each.unplaced} for each in (answer, stay))
    taken = homeless < homeless_now or (homeless == homeless_now and gain > 0)
    threads = sum(len(context.threads.get(target, ())) for target in moved)
    guests = len({target.owner for target in moved if target.kind == "vcpu"})
    return (answer if taken else stay), Repack(guests, threads, round(gain, 6), taken)


def _checked(strategies: Mapping[str, Strategy], context: Context) -> Answer:
    answer = mixing.place(context, strategies)
    rules.check(context.request.strategy, answer, context)
    return answer


def _unknown(snapshot: Snapshot) -> str:
    """Why it is not known which CPUs are Nova's; empty: it is."""
    try:
        configured(NovaSets(snapshot.dedicated, snapshot.shared), snapshot.nova)
    except Invalid as error:
        return f"which CPUs are Nova's is not known: {error}; mend it, or set both sets in [nova] of pinner.conf"
    return ""


def _masks(answer: Answer, context: Context) -> dict[int, CpuSet]:
    """What each placed thread may use, by thread id."""
    return {thread.tid: want.cpus for want in answer.wanted for thread in context.threads.get(want.target, ())}


def _warnings(context: Context, strategies: Mapping[str, Strategy]) -> Iterator[str]:
    """What is odd about the host or the request, whatever the strategy."""
    snapshot, request = context.snapshot, context.request
    strategy = strategies[request.strategy]
    if not snapshot.sample_seconds:
        yield "CPU use was not measured (a sample of 0 seconds): no process counts as busy"
    if missing := context.supply.online - context.supply.isolated - context.supply.partitioned - snapshot.baseline:
        yield (
            f"process 1 may not run on CPUs {missing}: systemd's CPUAffinity= or a cpuset narrows everything that it "
            "starts, and may take CPUs from what this plan places"
        )
    for claim in context.disputes():
        yield f"{claim.owner} was put on CPUs {claim.cpus} of the standing placement; only a re-pack leaves them to it"
    for guest in snapshot.guests:
        yield from flavors.doubts(guest, strategies)
    for field in fields(Request):
        unread = field.name not in (*EVERYWHERE, *strategy.parameters)
        if unread and getattr(request, field.name) != field.default:
            yield f"{field.name} {getattr(request, field.name)!r} has no effect: {strategy.name} does not read it"
