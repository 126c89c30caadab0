"""Interrupts of virtio cards inside guests. One with chosen vCPUs keeps them: the guest's owner, its irqbalance or its
driver has chosen them."""

from collections.abc import Iterator

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Wanted
from pinner.model.settings.inside import GuestIrqs
from pinner.model.states import GuestCpus, State
from pinner.planning.settings.inside.common import STAYS, row

_WHY = "no vCPU was chosen for it: each queue gets a vCPU of its own, as far as there are enough"


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


ROW = row("guest_irq", "interrupts", _wanted, _commands)
