"""Sysctls that a plan may change, with their values. Checks propose the same; if one still finds the fault then, it
proposes a higher value, which only a person sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pinner.model.change import Target
from pinner.model.states import Number

Need = Literal["", "several nodes", "real-time vCPUs"]
"""What a host must have so that a plan sets the value."""


@dataclass(frozen=True, slots=True)
class SysctlRule:
    key: str
    """As sysctl(8) writes it."""
    value: int
    at: Literal["least", "most"]
    """least: a plan keeps a larger value; most: a smaller one."""
    codes: tuple[str, ...]
    """Of findings that the value ends or eases."""
    why: str
    source: str
    needs: Need = ""

    @property
    def target(self) -> Target:
        return Target("sysctl", self.key, None, self.key)

    def is_good(self, value: int) -> bool:
        return value >= self.value if self.at == "least" else value <= self.value

    def wanted(self, value: int) -> Number:
        return Number(value if self.is_good(value) else self.value)


DEFAULT_BUFFER = 4_194_304
"""Bytes of rmem_default that hold a burst for programs that ask for no buffer."""
_NET = "Linux: Documentation/admin-guide/sysctl/net.rst"
_RULES = (
    SysctlRule(
        "kernel.numa_balancing",
        0,
        "most",
        ("numa-balancing",),
        "placed guests keep their memory without page faults",
        "Linux: Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)",
        "several nodes",
    ),
    SysctlRule(
        "kernel.sched_rt_runtime_us",
        -1,
        "most",
        ("rt-throttling",),
        "the kernel does not stop real-time vCPUs",
        "Linux: Documentation/scheduler/sched-rt-group.rst",
        "real-time vCPUs",
    ),
    SysctlRule(
        "net.core.netdev_budget",
        600,
        "least",
        ("softnet-squeezed",),
        "a CPU handles more packets in one turn",
        f"{_NET} (netdev_budget)",
    ),
    SysctlRule(
        "net.core.netdev_max_backlog",
        4000,
        "least",
        ("softnet-drops",),
        "a burst of packets fits into the backlog of a CPU",
        f"{_NET} (netdev_max_backlog)",
    ),
    SysctlRule(
        "net.core.rmem_max",
        26_214_400,  # 25 MiB, which hold 20 ms of 10 Gb/s
        "least",
        ("udp-buffer-errors", "udp-small-buffers", "udp-socket-drops"),
        "programs may ask for receive buffers that hold a burst",
        f"{_NET} (rmem_max)",
    ),
    SysctlRule(
        "net.core.somaxconn",
        4096,
        "least",
        ("tcp-listen-drops",),
        "services may have longer queues of new connections",
        f"{_NET} (somaxconn)",
    ),
    SysctlRule(
        "vm.swappiness",
        1,
        "most",
        ("host-swapping",),
        "the kernel takes memory of guests last",
        "Linux: Documentation/admin-guide/sysctl/vm.rst (swappiness)",
    ),
)
SYSCTLS: Mapping[str, SysctlRule] = {rule.key: rule for rule in _RULES}
