"""Open vSwitch with DPDK: the CPUs of its polling threads. Standard library only."""

from dataclasses import dataclass

from pinner.model.cpuset import CpuSet

OVS = "Open vSwitch (DPDK)"
"""For people: the owner of these CPUs."""


@dataclass(frozen=True, slots=True)
class OvsMasks:
    """The CPU masks of Open vSwitch's database (other_config of the table Open_vSwitch)."""

    pmd: CpuSet = CpuSet()
    """pmd-cpu-mask: the CPUs of the threads that poll; empty: not set."""
    lcore: CpuSet = CpuSet()
    """dpdk-lcore-mask: the CPUs of DPDK's other threads; empty: not set."""
    error: str = ""
    """Why the database could not be read; empty: it was read, or the host has none."""


@dataclass(frozen=True, slots=True)
class OvsDpdk:
    """The CPUs that Open vSwitch uses for DPDK on a host."""

    masks: OvsMasks = OvsMasks()
    """The masks of its database."""
    polling: CpuSet = CpuSet()
    """The CPUs to which its polling threads are pinned now."""

    @property
    def cpus(self) -> CpuSet:
        """A thread that polls uses its CPU whole."""
        return self.masks.pmd | self.masks.lcore | self.polling
