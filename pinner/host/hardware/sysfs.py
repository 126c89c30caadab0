"""Reads a machine's topology from a root path: ``/``, or a folder with its captured proc/ and sys/."""

from dataclasses import replace
from pathlib import Path

from pinner.host.hardware.devices import read_devices
from pinner.host.hardware.sysfs_caches import read_caches
from pinner.host.hardware.sysfs_cpus import read_cpus, read_l3_domains
from pinner.host.hardware.sysfs_nodes import read_nodes
from pinner.host.kernel.kernel import partitioned, read_kernel
from pinner.model.machine.topology import Device, Topology


def read_topology(root: Path) -> Topology:
    """CPUs, nodes, caches, level-3 domains, devices and the kernel.

    A missing or malformed file counts as an unknown value. Raises Invalid for ``root`` where no CPU is found below it.
    """
    return replace(_topology(root, read_devices(root)), caches=read_caches(root))


def read_fingerprint(root: Path) -> str:
    """The current Topology.fingerprint. It uses no devices and caches, which are not read. Raises Invalid likewise."""
    return _topology(root, ()).fingerprint


def _topology(root: Path, devices: tuple[Device, ...]) -> Topology:
    nodes = read_nodes(root)
    domains = read_l3_domains(root)
    return Topology(
        cpus=read_cpus(root, nodes, domains, partitioned(root)),
        nodes=nodes,
        kernel=read_kernel(root),
        l3_domains=domains,
        devices=devices,
    )
