"""PCI functions and network interfaces with their NUMA node, from /sys/bus/pci/devices and /sys/class/net."""

from pathlib import Path

from pinner.host.kernel.files import decoded, names, number, text
from pinner.model.machine.topology import Device


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
