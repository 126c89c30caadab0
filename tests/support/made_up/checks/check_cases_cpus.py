"""Hosts with and without each fault of CPUs: of interrupts and waiting vCPUs."""

from dataclasses import replace

from support.hosts import cpus
from support.made_up.readings import Seen, delayed, irq, limited, placed, reading

from pinner.model.machine.interrupts import Balancer
from pinner.model.settings.cpu_weights import SLICE

GUEST = placed()


def irqs(before, now=None, **more):
    return reading(Seen(irqs=(before,)), Seen(irqs=(now or before,)), **more)


def waits(percent):
    """Four vCPUs on CPUs of both nodes."""
    apart = placed("6-9")
    before, now = delayed(apart, percent)
    return reading(before, now, guests=[apart])


def stopped(percent):
    """A limit of the slice of all guests took so much of the time in which each of four vCPUs waited half of it."""
    before, now = (
        replace(sample, spare_ms=dict.fromkeys(range(16), at))
        for sample, at in zip(limited(GUEST, 50.0, {"machine.slice": 0.0}), (0, 1900), strict=True)
    )
    cgroups = dict.fromkeys(now.cgroups, "machine.slice")
    limit = {path: replace(each, own_ns=round(4 * percent * 2e7)) for path, each in now.throttled.items()}
    samples = replace(before, cgroups=cgroups), replace(now, cgroups=cgroups, throttled=limit)
    return reading(*samples, guests=[GUEST])


def beside(spare, **more):
    """Four vCPUs that wait 7 % of the time on CPUs 4-7, which ran no thread for so many ms each of the 2 s."""
    before, now = delayed(GUEST, 7.0)
    times = (dict.fromkeys(range(16), at) for at in (100, 100 + spare))
    before, now = (replace(each, spare_ms=found) for each, found in zip((before, now), times, strict=True))
    return reading(before, now, guests=[GUEST], cpu_weights={SLICE: 100}, **more)


def balancer(banned):
    running = Balancer(700, "--foreground", None, banned_now=cpus(banned))
    return reading(guests=[GUEST], irqbalance=(running,))


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
    "guest-cpu-limit": (stopped(48.0), stopped(2.0)),
    # The vCPUs did not run at all: the host's processes took the rest.
    "host-delays-vcpus": (beside(1800), beside(1950)),
}
