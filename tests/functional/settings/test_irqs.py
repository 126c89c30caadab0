"""Interrupts of PCI devices on this machine: moved within its CPUs, read from the kernel, and restored exactly."""

from pathlib import Path

import pytest

from pinner.host.settings import irqs
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.machine.interrupts import DeviceIrq
from pinner.planning.settings.irqs import immovable_reason

ROOT = Path("/")
ONLINE = CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text())

pytestmark = pytest.mark.needs("root", "two_cpus")


def found(*, managed: bool) -> DeviceIrq:
    read = irqs.read_device_irqs(ROOT, ())
    known = read.irqs if read else ()
    fitting = [irq for irq in known if (irq.managed if managed else not immovable_reason(irq))]
    if not fitting:
        pytest.skip("needs a PCI device with such an interrupt")
    return fitting[0]


def in_the_kernel(irq: DeviceIrq) -> str:
    return Path(f"/proc/irq/{irq.number}/smp_affinity_list").read_text().strip()


def test_an_interrupt_is_moved_and_restored():
    irq = found(managed=False)
    before = in_the_kernel(irq)
    other = CpuSet.of([max(ONLINE)]) if str(irq.cpus) != str(max(ONLINE)) else CpuSet.of([min(ONLINE)])
    try:
        irqs.set_affinity(ROOT, irq.target, other)
        assert in_the_kernel(irq) == str(other)
        assert irqs.affinity(ROOT, irq.target) == other
    finally:
        irqs.set_affinity(ROOT, irq.target, irq.cpus)
    assert in_the_kernel(irq) == before


def test_the_number_with_another_name_is_gone():
    irq = found(managed=False)
    before = in_the_kernel(irq)
    other = DeviceIrq(irq.number, "another", irq.device, irq.cpus)
    with pytest.raises(Gone):
        irqs.set_affinity(ROOT, other.target, CpuSet.of([min(ONLINE)]))
    assert in_the_kernel(irq) == before


def test_the_kernel_refuses_a_managed_interrupt_in_its_own_words():
    irq = found(managed=True)
    with pytest.raises(ApplyFailed, match="the kernel refuses CPUs"):
        irqs.set_affinity(ROOT, irq.target, CpuSet.of([min(ONLINE)]))
