"""The remedies: the kinds of settings that a plan may change besides the CPUs of threads. Pure.

A plan gets the additions of each kind for which its request asks, and an agent objects to each change of another kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pinner.model.change import StateChange
from pinner.model.errors import Invalid
from pinner.model.kinds import INSIDE, Remedy, TargetKind
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import (
    COALESCING,
    CPU_WEIGHTS,
    GOVERNORS,
    GUEST_RPS,
    IRQBALANCE,
    IRQS,
    QUEUES,
    RINGS,
    RPS,
    SYSCTLS,
)
from pinner.model.snapshot import Snapshot
from pinner.planning.changes.diff import changes
from pinner.planning.request.context import Context
from pinner.planning.settings import (
    coalescing,
    cpu_weights,
    governors,
    guest_rps,
    irqbalance,
    irqs,
    queues,
    rings,
    rps,
    sysctls,
)
from pinner.planning.settings.additions import Additions


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of remedy. ``additions`` is called only with a snapshot in which the settings are known."""

    name: Remedy
    """The name in a request."""
    noun: str
    """The settings, for people."""
    expected: str
    """What the request needs, where the snapshot does not have it."""
    is_known: Callable[[Snapshot], bool]
    """Whether the snapshot has the settings."""
    additions: Callable[[Plan, Context], Additions]
    """The addition to a plan."""
    objection: Callable[[StateChange, Plan, Context], str]
    """Why an agent does not make a change that the request asks for; empty where it does."""


_KINDS: Mapping[TargetKind, _Kind] = {
    # irqbalance moves interrupts as soon as it gets other CPUs, so its change comes after theirs.
    "irqbalance": _Kind(
        IRQBALANCE,
        "the banned CPUs of irqbalance",
        "a host whose irqbalance is known; this snapshot does not have it, so take a new one",
        lambda snapshot: snapshot.irqbalance is not None,
        irqbalance.additions,
        irqbalance.objection,
    ),
    "irq": _Kind(
        IRQS,
        "interrupts",
        "a host whose interrupts are known; this snapshot has none, so take a new one",
        lambda snapshot: snapshot.irqs is not None,
        irqs.additions,
        irqs.objection,
    ),
    "rps": _Kind(
        RPS,
        "RPS",
        "a host whose RPS is known; this snapshot does not have it, so take a new one",
        lambda snapshot: snapshot.rps is not None,
        rps.additions,
        rps.objection,
    ),
    "sysctl": _Kind(
        SYSCTLS,
        "sysctls",
        "a host whose sysctls are known; this snapshot has none, so take a new one",
        lambda snapshot: snapshot.sysctls is not None,
        sysctls.additions,
        sysctls.objection,
    ),
    "ring": _Kind(
        RINGS,
        "rings",
        "a host whose rings are known; this snapshot has none, so take a new one",
        lambda snapshot: snapshot.rings is not None,
        rings.additions,
        rings.objection,
    ),
    "governor": _Kind(
        GOVERNORS,
        "governors",
        "a host whose frequency governors are known; this snapshot has none, so take a new one",
        lambda snapshot: snapshot.governors is not None,
        governors.additions,
        governors.objection,
    ),
    "coalescing": _Kind(
        COALESCING,
        "coalescing",
        "a host whose coalescing of cards is known; this snapshot does not have it, so take a new one",
        lambda snapshot: snapshot.coalescing is not None,
        coalescing.additions,
        coalescing.objection,
    ),
    "queues": _Kind(
        QUEUES,
        "queues of cards",
        "a host whose queues of cards are known; this snapshot does not have them, so take a new one",
        lambda snapshot: snapshot.queues is not None,
        queues.additions,
        queues.objection,
    ),
    "guest_rps": _Kind(
        GUEST_RPS,
        "RPS inside guests",
        "a host that asks the agents of its guests; set [libvirt] guest_agents = true in its pinner.conf, restart "
        "pinner there, and take a new snapshot",
        lambda snapshot: snapshot.guest_rps is not None,
        guest_rps.additions,
        guest_rps.objection,
    ),
    "weight": _Kind(
        CPU_WEIGHTS,
        "CPU weights",
        "a host whose CPU weights are known; this snapshot has none, so take a new one",
        lambda snapshot: snapshot.cpu_weights is not None,
        cpu_weights.additions,
        cpu_weights.objection,
    ),
}
"""The kinds of remedies by the kind of their targets, each before the kinds that a plan makes earlier."""


def with_remedies(plan: Plan, context: Context) -> Plan:
    """The plan, with the remedies for which its request asks. Raises Invalid where the snapshot lacks their settings.

    The changes of remedies come first: interrupts leave the CPUs before guests get them. Those inside guests come last,
    because nothing should wait for the answers of a guest.
    """
    for target, kind in _KINDS.items():
        if not plan.request.asks_for(kind.name):
            continue
        if not kind.is_known(context.snapshot):
            raise Invalid("with", kind.name, kind.expected)
        added = kind.additions(plan, context)
        made = changes(context, added.wanted)
        plan = replace(
            plan,
            changes=(*plan.changes, *made) if target in INSIDE else (*made, *plan.changes),
            wanted=(*plan.wanted, *added.wanted),
            skipped=(*plan.skipped, *added.skipped),
            warnings=(*plan.warnings, *added.warnings),
        )
    return plan


def is_remedy(change: StateChange) -> bool:
    """Whether the change is one of a remedy."""
    return change.target.kind in _KINDS


def objection(change: StateChange, plan: Plan, context: Context) -> str:
    """Why an agent does not make this change of a remedy; empty where it does."""
    kind = _KINDS[change.target.kind]
    if not plan.request.asks_for(kind.name):
        return f"the plan's request does not ask for {kind.noun}"
    return kind.objection(change, plan, context)
