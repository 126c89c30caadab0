"""The findings that a plan can cure, by their codes, each with the kind of the changes that cure it."""

from collections.abc import Mapping
from typing import Literal

from pinner.model.settings.sysctls import SYSCTLS

Remedy = Literal[
    "irqs", "rps", "sysctls", "rings", "governors", "coalescing", "irqbalance", "queues", "guest-rps", "cpu-weights"
]
"""A setting of the host that a plan may change besides the CPUs of threads: irqs = the affinities of interrupts; rps =
the CPUs that process received packets; sysctls = the kernel's settings of model/settings/sysctls.py; rings = the
sizes of receive rings; governors = the frequency governors of the CPUs of vCPUs;
coalescing = how long cards gather packets for one interrupt; irqbalance = the
CPUs to which irqbalance sends no interrupts; queues = the numbers of queues of cards; guest-rps =
the vCPUs that process received packets inside guests; cpu-weights = the CPU weight of the slice of all guests."""

FIXES: Mapping[str, Remedy] = {
    "cpu-slow-governor": "governors",
    "host-delays-vcpus": "cpu-weights",
    "irq-off-node": "irqs",
    "irq-on-guest-cpus": "irqs",
    "irqbalance-unbanned": "irqbalance",
    "nic-no-coalescing": "coalescing",
    "nic-single-queue": "queues",
    "nic-small-ring": "rings",
    "rps-on-guest-cpus": "rps",
    **{code: "sysctls" for rule in SYSCTLS.values() for code in rule.codes},
}
"""The kind of the changes by the code of the finding."""
