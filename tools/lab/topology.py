"""The topology of a lab host, read from a TOML file. Pure; it is checked before anything is started.

threads = 2                      hardware threads of a core
step = 16                        the distance of their numbers: CPU 3 and CPU 19 are one core
distances = [[10, 21], [21, 10]] a row for each node
kernel = "isolcpus=4-7"          arguments for the kernel; optional
package = "linux-image-amd64"    Debian's package of the kernel; optional: that of clouds boots faster, with few drivers
[[node]]                         the first is node 0, and so on; nodes without CPUs come last
socket = 0                       omitted for a node without CPUs
cpus = "0-7"                     the kernel's numbers of the CPUs
memory_mib = 1024                0: a node without memory
[[device]]                       a PCI device of a node; optional
model = "virtio-net-pci"         or e1000e, nvme, pcnet
node = 1
queues = 4                       of a virtio-net-pci; omitted for others
"""

import tomllib
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lab.errors import LabError
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid

FOLDER = Path(__file__).parent / "topologies"
_KEYS = {"threads", "step", "distances", "kernel", "package", "node", "device"}
_NODE_KEYS = {"socket", "cpus", "memory_mib"}
_DEVICE_KEYS = {"model", "node", "queues"}
_MODELS = ("e1000e", "nvme", "pcnet", "virtio-net-pci")
_CLOUD = "linux-image-cloud-amd64"


@dataclass(frozen=True, slots=True)
class Position:
    """The socket, core, thread and node of a CPU."""

    socket: int
    core: int
    thread: int
    node: int


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node of a lab host."""

    socket: int | None
    cpus: CpuSet
    memory_mib: int


@dataclass(frozen=True, slots=True)
class LabDevice:
    """A PCI device of a node."""

    model: str
    """The name that QEMU gives to it."""
    node: int
    queues: int
    """The pairs of queues of a network card; 0 for a device whose driver chooses them."""


@dataclass(frozen=True, slots=True)
class LabTopology:
    """A lab host's topology. ``positions`` are in the order of the kernel's CPU numbers: positions[3] is CPU 3."""

    name: str
    nodes: tuple[LabNode, ...]
    distances: tuple[tuple[int, ...], ...]
    positions: tuple[Position, ...]
    threads: int
    kernel: str = ""
    package: str = _CLOUD
    devices: tuple[LabDevice, ...] = ()

    @property
    def sockets(self) -> int:
        """The number of sockets."""
        return 1 + max(position.socket for position in self.positions)

    @property
    def cores(self) -> int:
        """The number of cores of the largest socket."""
        return 1 + max(position.core for position in self.positions)

    @property
    def memory_mib(self) -> int:
        """The memory of all nodes."""
        return sum(node.memory_mib for node in self.nodes)


def known() -> tuple[str, ...]:
    """The names of the included topologies."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name: str) -> LabTopology:
    """A topology by name, or by the path of its file. Raises LabError in one line."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        return parse(path.read_text(), path.stem)
    except FileNotFoundError:
        raise LabError(f"topology {name}: not found; known: {', '.join(known())}, or a path to a .toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"topology {name}: {path} cannot be read: {error}") from None


def parse(text: str, name: str) -> LabTopology:
    """A topology from TOML. Raises LabError that names the invalid or contradictory part."""
    try:
        data = tomllib.loads(text)
        _require(data.keys() <= _KEYS, f"unknown keys: {', '.join(sorted(data.keys() - _KEYS))}")
        nodes = tuple(_node(number, table) for number, table in enumerate(_typed(data, "node", list, [])))
        threads, step = _typed(data, "threads", int, 1), _typed(data, "step", int, 1)
        _check_nodes(nodes)
        return LabTopology(
            name,
            nodes,
            _distances(_typed(data, "distances", list, []), len(nodes)),
            _positions(nodes, threads, step),
            threads,
            _typed(data, "kernel", str, ""),
            _typed(data, "package", str, _CLOUD),
            tuple(_device(table, len(nodes)) for table in _typed(data, "device", list, [])),
        )
    except (tomllib.TOMLDecodeError, Invalid, _Contradiction) as error:
        raise LabError(f"topology {name}: {error}") from None


class _Contradiction(Exception):
    """The file describes a machine that is not possible."""


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise _Contradiction(otherwise)


def _typed(table: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = table.get(key, default)
    _require(type(value) is kind, f"{key} = {value!r}: not a {kind.__name__}")
    return value


def _node(number: int, table: Any) -> LabNode:
    _require(isinstance(table, dict), "node: write [[node]] before each of them")
    _require(table.keys() <= _NODE_KEYS, f"node {number}: unknown keys: {', '.join(sorted(table.keys() - _NODE_KEYS))}")
    cpus = CpuSet.parse(_typed(table, "cpus", str, ""), f"node {number} cpus")
    memory = _typed(table, "memory_mib", int, 0)
    socket = _typed(table, "socket", int, 0) if cpus else None
    _require(memory >= 0 and (socket or 0) >= 0, f"node {number}: memory_mib and socket are not negative")
    _require(bool(cpus) or memory > 0, f"node {number}: neither CPUs nor memory")
    return LabNode(socket, cpus, memory)


def _device(table: Any, nodes: int) -> LabDevice:
    _require(isinstance(table, dict), "device: write [[device]] before each of them")
    _require(table.keys() <= _DEVICE_KEYS, f"device: unknown keys: {', '.join(sorted(table.keys() - _DEVICE_KEYS))}")
    device = LabDevice(_typed(table, "model", str, ""), _typed(table, "node", int, -1), _typed(table, "queues", int, 0))
    _require(device.model in _MODELS, f"device model = {device.model!r}: not one of {', '.join(_MODELS)}")
    _require(0 <= device.node < nodes, f"device {device.model}: node = {device.node} is no node of this host")
    fitting = device.queues > 0 if device.model == "virtio-net-pci" else device.queues == 0
    _require(fitting, f"device {device.model}: queues = {device.queues}: a virtio-net-pci has some, others none")
    return device


def _check_nodes(nodes: tuple[LabNode, ...]) -> None:
    _require(bool(nodes), "no [[node]]")
    seen = CpuSet()
    for number, node in enumerate(nodes):
        _require(not node.cpus & seen, f"node {number}: CPU {node.cpus & seen} is on another node, too")
        seen |= node.cpus
    every = CpuSet.of(range(len(seen)))
    _require(bool(seen), "no node has a CPU")
    _require(seen == every, f"CPU {every - seen} is on no node: numbers run from 0 without a gap")
    _require(
        0 in nodes[0].cpus and nodes[0].memory_mib > 0, "node 0 must have CPU 0 and memory: the machine boots there"
    )
    first_bare = next((number for number, node in enumerate(nodes) if not node.cpus), len(nodes))
    late = [number for number, node in enumerate(nodes) if node.cpus and number > first_bare]
    _require(not late, f"node {first_bare} has no CPUs: such nodes come last")


def _distances(rows: list[Any], count_: int) -> tuple[tuple[int, ...], ...]:
    whole = len(rows) == count_ and all(isinstance(row, list) and len(row) == count_ for row in rows)
    _require(whole, f"distances: not {count_} rows of {count_}")
    for here, row in enumerate(rows):
        for there, value in enumerate(row):
            right = value == 10 if here == there else isinstance(value, int) and 10 < value < 255
            _require(right, f"distances: node {here} to {there} is {value!r}; 10 to itself, 11 to 254 to others")
    return tuple(tuple(row) for row in rows)


def _positions(nodes: tuple[LabNode, ...], threads: int, step: int) -> tuple[Position, ...]:
    """The positions of all CPUs; the cores of a socket are numbered in the order of their lowest CPU."""
    _require(threads > 0 and step > 0, "threads and step are at least 1")
    cores = {node.socket: count() for node in nodes}
    positions: dict[int, Position] = {}
    home = {cpu: number for number, node in enumerate(nodes) for cpu in node.cpus}
    for cpu in sorted(home):
        if cpu in positions:
            continue
        node, socket = home[cpu], nodes[home[cpu]].socket
        assert socket is not None
        core = next(cores[socket])
        for thread in range(threads):
            sibling = cpu + thread * step
            _require(home.get(sibling) == node, f"CPU {sibling}, a sibling of {cpu}, is not on its node {node}")
            _require(sibling not in positions, f"CPU {sibling} is a sibling of two cores")
            positions[sibling] = Position(socket, core, thread, node)
    sockets = {position.socket for position in positions.values()}
    _require(sockets == set(range(len(sockets))) and positions[0].socket == 0, "sockets run from 0, where CPU 0 is")
    return tuple(positions[cpu] for cpu in sorted(positions))
