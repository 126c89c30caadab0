"""Interrupts of a lab host, read from its kernel, and an irqbalance that moves them."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lab.host import LabHost
from support.system.lab import name, server

_AFFINITIES = """\
import glob, json
found = {}
for path in glob.glob("/proc/irq/*/smp_affinity_list"):
    number = path.split("/")[3]
    actions = open(f"/sys/kernel/irq/{number}/actions").read().strip()
    if actions:
        found[number] = [actions, open(path).read().strip()]
print(json.dumps(found))
"""


def affinities(host: LabHost) -> dict[str, list[str]]:
    """The driver's name and the CPUs of each interrupt, by its number, from the kernel."""
    found: dict[str, list[str]] = json.loads(host.run("python3 -", stdin=_AFFINITIES).out)
    return found


def cpus_of(found: Mapping[str, list[str]]) -> dict[str, str]:
    """The CPUs of each interrupt."""
    return {number: cpus for number, (_, cpus) in found.items()}


@contextmanager
def irqbalance(host: LabHost, environment: str = "") -> Iterator[None]:
    """irqbalance runs on the host; it looks at the interrupts every second."""
    socket = "--property=RuntimeDirectory=irqbalance"  # as in its own unit
    host.run(f"systemd-run -q --unit=balancer {socket} {environment} irqbalance --foreground --interval=1")
    try:
        yield
    finally:
        host.run("systemctl stop balancer.service")


def wait(condition: Callable[[], bool], host: LabHost) -> None:
    """Wait until the condition holds; the error shows the interrupts and pinner's drift."""
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, (affinities(host), server(host).drift(name(host)).drifts)
        time.sleep(1)
