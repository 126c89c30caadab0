"""From a snapshot and a request to a plan: pure, so the same two always give the same plan."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields

from pinner import codec
from pinner.model.errors import NotFound
from pinner.model.plan import Basis, Plan
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import rules
from pinner.planning.context import Context
from pinner.planning.diff import changes
from pinner.planning.memory import guests_memory
from pinner.planning.score import score
from pinner.planning.strategy import Strategy, installed


def plan(
    snapshot: Snapshot, snapshot_id: str, request: Request, strategies: Mapping[str, Strategy] | None = None
) -> Plan:
    """What a request would change on a host, and why.

    ``snapshot_id`` is the snapshot's content hash, ``strategies`` those to choose from by name (None: the installed
    ones). "Nothing to do" is a plan without changes. Raises NotFound for an unknown strategy, guest or process; Invalid
    for a parameter that this host cannot have; NoFit where no CPU is left for vCPUs.
    """
    known = installed() if strategies is None else strategies
    strategy = known.get(request.strategy)
    if strategy is None:
        raise NotFound("strategy", request.strategy, tuple(sorted(known)))
    context = Context.of(snapshot, request)
    answer = strategy.place(context)
    rules.check(strategy.name, answer, context)
    planned = {thread.tid: want.cpus for want in answer.wanted for thread in context.threads.get(want.target, ())}
    return Plan(
        id=_identity(snapshot_id, request),
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint),
        roles=answer.roles,
        wanted=answer.wanted,
        changes=changes(context, answer.wanted),
        unplaced=answer.unplaced,
        left_alone=context.left_alone,
        warnings=(*snapshot.warnings, *_warnings(context, strategy), *answer.warnings),
        score_before=score(snapshot, request.busy_threshold, {}),
        score_after=score(snapshot, request.busy_threshold, planned),
        isolation=answer.isolation,
        blocked=answer.blocked,
        memory=guests_memory(snapshot, answer.wanted),
    )


def _identity(snapshot_id: str, request: Request) -> str:
    digest = hashlib.sha256(snapshot_id.encode() + b"\n" + codec.dump(request)).hexdigest()
    return f"plan-{digest[:16]}"


def _warnings(context: Context, strategy: Strategy) -> Iterator[str]:
    """What is odd about the host or the request, whatever the strategy."""
    snapshot, request = context.snapshot, context.request
    if not snapshot.sample_seconds:
        yield "CPU use was not measured (a sample of 0 seconds): no process counts as busy"
    if missing := context.supply.online - context.supply.isolated - context.supply.partitioned - snapshot.baseline:
        yield (
            f"process 1 may not run on CPUs {missing}: systemd's CPUAffinity= or a cpuset narrows everything that it "
            "starts, and may take CPUs from what this plan places"
        )
    for field in fields(Request):
        unread = field.name != "strategy" and field.name not in strategy.parameters
        if unread and getattr(request, field.name) != field.default:
            yield f"{field.name} {getattr(request, field.name)!r} has no effect: {strategy.name} does not read it"
