"""Interrupts of virtio cards inside guests. One with chosen vCPUs keeps them: the guest's owner, its irqbalance or its
driver has chosen them."""

from collections.abc import Iterator

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.inside import GuestIrqs
from pinner.model.states import GuestCpus, State
from pinner.planning.request.context import Context
from pinner.planning.settings.inside.common import EXPECTED, STAYS, additions, guest_of, why_left_out
from pinner.planning.settings.row import Additions, PlanRow

_WHY = "no vCPU was chosen for it: each queue gets a vCPU of its own, as far as there are enough"


def _additions(plan: Plan, context: Context) -> Additions:
    return additions("interrupts", context.snapshot.guest_irqs, _wanted, plan, context)


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    irqs = guest_of(change.target, context.snapshot.guest_irqs)
    if why := why_left_out(irqs, plan, context):
        return why
    if irqs.guest not in context.wanted_irqs:
        context.wanted_irqs[irqs.guest] = {want.target: want for want in _wanted(irqs)}
    wanted = context.wanted_irqs[irqs.guest][change.target]
    if wanted.reason == STAYS:
        return f"its vCPUs {change.before} were chosen already"
    if change.after != wanted.state:
        return f"a plan gives it vCPU {wanted.state}, and no other"
    return ""


def _wanted(irqs: GuestIrqs) -> Iterator[Wanted]:
    """The receiving and the sending interrupt of a queue get the same vCPU. The last vCPU comes first: most other
    interrupts of a guest go to the first one."""
    queues = {queue: place for place, queue in enumerate(sorted({(irq.index, irq.queue) for irq in irqs.irqs}))}
    vcpus = sorted(irqs.online)
    for irq in irqs.irqs:
        place = queues[irq.index, irq.queue] * len(vcpus) // len(queues)
        is_free = irqs.online <= irq.vcpus
        own = CpuSet.of([vcpus[-1 - place]]) if is_free else irq.vcpus
        yield Wanted(irqs.target(irq), CpuSet(), _WHY if is_free else STAYS, GuestCpus(own))


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"# inside the guest: echo {state} > /proc/irq/{target.part}/smp_affinity_list"


ROW = PlanRow(_objection, _commands, _additions, "interrupts inside guests", EXPECTED)
