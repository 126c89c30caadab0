"""Reads a machine's topology from a root path: ``/``, or a folder with its captured proc/ and sys/."""

from dataclasses import replace
from pathlib import Path

from pinner.host.hardware.sysfs_cpus import read_caches, read_cpus, read_l3_domains
from pinner.host.hardware.sysfs_nodes import read_nodes
from pinner.host.kernel.files import decoded, names, number, text
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


def read_devices(root: Path) -> tuple[Device, ...]:
    """PCI functions by address, then network interfaces by name; empty if the folders are missing.

    The description of a PCI function is its class and vendor:device. The description of a network interface is the
    address of its PCI function, or the name of its device on another bus; it is empty for a virtual interface.
    """
    functions = root / "sys/bus/pci/devices"
    pci = (Device("pci", _name(path), number(path / "numa_node"), _pci_ids(path)) for path in _entries(functions))
    net = (_interface(path, functions) for path in _entries(root / "sys/class/net") if path.is_dir())
    return (*pci, *net)


def _interface(path: Path, functions: Path) -> Device:
    device = path / "device"
    if not device.exists():
        return Device("net", _name(path), None, "")
    # The device of a virtio or USB card is below its PCI function, and only the function has a node.
    behind = (device.resolve(), *device.resolve().parents)
    function = next((each for each in behind if (functions / each.name).is_symlink()), behind[0])
    return Device("net", _name(path), number(function / "numa_node"), _name(function))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder / name for name in names(folder))


def _name(path: Path) -> str:
    return decoded(path.name)


def _pci_ids(device: Path) -> str:
    """Class and vendor:device in hexadecimal, as lspci -n writes them; empty if the kernel does not report them."""
    class_, vendor, model = ((text(device / name) or "").removeprefix("0x") for name in ("class", "vendor", "device"))
    return f"{class_[:4]} {vendor}:{model}" if class_ and vendor and model else ""
