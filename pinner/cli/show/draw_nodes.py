"""What a drawing says about a node besides its CPUs: caches, huge pages, devices, and memory-only nodes near it.

Pure: the width is a parameter.
"""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pinner.cli.frame.output import kib
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.machine.topology import Cache, Device, Node, Topology

_SHOWN = {"01": "storage", "02": "network", "03": "display", "0b": "processor", "12": "accelerator"}
"""The PCI classes of devices whose place matters; bridges and system functions are left out."""


def details(topology: "Topology", node: "Node", width: int) -> Iterator[str]:
    """Lines of at most ``width`` columns about a node; none where nothing is known."""
    caches = [cache for cache in topology.caches if cache.cpus & node.cpus]
    facts = (
        ("caches", _caches(caches, node)),
        ("hugepages", [f"{p.total} of {kib(p.size_kib)} ({p.free} free)" for p in node.hugepages if p.total]),
        ("devices", _devices([device for device in topology.devices if _is_near(device, node, topology)])),
    )
    for name, parts in facts:
        indent = " " * (len(name) + 2)
        text = f"{name}  {', '.join(parts)}"
        yield from textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) if parts else ()


def memory_only(topology: "Topology") -> Mapping[int, list[tuple[int, "Node"]]]:
    """The nodes with memory and without CPUs, each with its distance, by the id of the nearest node with CPUs.

    A node whose distance is not known is not in the result.
    """
    populated = [node for node in topology.nodes if node.cpus]
    found: dict[int, list[tuple[int, Node]]] = defaultdict(list)
    for node in topology.nodes:
        ways = [(near.distances[node.id], near.id) for near in populated if node.id in near.distances]
        if ways and node.memory_kib and not node.cpus:
            distance, nearest = min(ways)
            found[nearest].append((distance, node))
    return found


def _is_near(device: "Device", node: "Node", topology: "Topology") -> bool:
    """Whether the device is on the node. The only node of a machine has the devices for which no node is reported."""
    return device.node == node.id or (device.node is None and len(topology.nodes) == 1)


def _caches(caches: list["Cache"], node: "Node") -> list[str]:
    """``4 L2 of 1 MiB``, by level and size."""
    counted = Counter((cache.level, cache.size_kib, cache.cpus <= node.cpus) for cache in caches)
    return [
        f"{count} L{level} of {_size(size)}{'' if own else ' shared with other nodes'}"
        for (level, size, own), count in sorted(counted.items())
    ]


def _size(amount: int) -> str:
    """The size of a cache, which is no power of two on many machines."""
    if not amount:
        return "unknown size"
    return f"{amount} KiB" if amount < 1024 else f"{amount / 1024:g} MiB"


def _devices(devices: list["Device"]) -> list[str]:
    """Network interfaces with their PCI address, then the other devices whose place matters."""
    interfaces = [device for device in devices if device.kind == "net" and device.description]  # without virtual ones
    named = {device.description for device in interfaces}
    shown = [f"{visible(device.name)} ({visible(device.description)})" for device in interfaces]
    for device in devices:
        kind = _SHOWN.get(device.description[:2])
        if device.kind == "pci" and kind and device.name not in named:
            shown.append(f"{visible(device.name)} ({kind})")
    return shown
