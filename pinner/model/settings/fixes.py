"""The findings that a plan can cure."""

from collections.abc import Mapping

from pinner.model.kinds import Remedy
from pinner.model.settings.sysctls import SYSCTLS

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
"""By the code of the finding."""
