"""Reads a machine's topology below ``/``, or a folder with captured proc/ and sys/."""

from dataclasses import replace
from pathlib import Path

from pinner.host.hardware.sysfs_cpus import read_caches, read_cpus, read_l3_domains
from pinner.host.hardware.sysfs_nodes import read_nodes
from pinner.host.kernel.files import decoded, names, number, text
from pinner.host.kernel.kernel import partitioned, read_kernel
from pinner.model.machine.topology import Device, Topology


def read_topology(root: Path) -> Topology:
    """A missing or malformed file is an unknown value. Raises Invalid where no CPU is found."""
    return replace(_topology(root, read_devices(root)), caches=read_caches(root))


def read_fingerprint(root: Path) -> str:
    """Topology.fingerprint, without reading devices and caches. Raises Invalid."""
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
    """PCI functions by address, then interfaces by name.

    A PCI function is described by class and vendor:device, an interface by its PCI address, or its device on another
    bus; a virtual one not.
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
    """Hexadecimal, as lspci -n."""
    class_, vendor, model = ((text(device / name) or "").removeprefix("0x") for name in ("class", "vendor", "device"))
    return f"{class_[:4]} {vendor}:{model}" if class_ and vendor and model else ""
