"""Hosts with and without each fault of CPUs: of interrupts and waiting vCPUs."""

from support.hosts import cpus
from support.readings import delayed, irq, placed, reading

from pinner.model.interrupts import Balancer
from pinner.model.reading import HostSample

GUEST = placed()


def irqs(before, now=None, **more):
    return reading(HostSample(irqs=(before,)), HostSample(irqs=(now or before,)), **more)


def waits(percent):
    before, now = delayed(GUEST, percent)
    return reading(before, now, guests=[GUEST])


def balancer(banned):
    running = Balancer(700, "--foreground", None, banned_now=cpus(banned))
    return reading(HostSample(balancers=(running,)), guests=[GUEST])


CASES = {
    "irq-on-guest-cpus": (
        irqs(irq(40, "5", {5: 10}), irq(40, "5", {5: 30}), guests=[GUEST]),
        irqs(irq(40, "8", {8: 10}), irq(40, "8", {8: 30}), guests=[GUEST]),
    ),
    "irq-managed": (
        irqs(irq(40, "5", {5: 10}, managed=True), guests=[GUEST]),
        irqs(irq(40, "8", {8: 10}, managed=True), guests=[GUEST]),
    ),
    "irq-off-node": (irqs(irq(40, "0", {0: 5})), irqs(irq(40, "9", {9: 5}))),
    "irqbalance-unbanned": (balancer(""), balancer("2-7")),
    "vcpu-run-delay": (waits(7.0), waits(2.0)),
}
