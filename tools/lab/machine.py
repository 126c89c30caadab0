"""QEMU's command line for a lab host. Pure."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from lab.image import Image
from lab.topology import LabTopology

CPU = "Nehalem"
"""A model that QEMU emulates completely in software; it has a level-3 cache, and threads if the topology has them."""
_LACKS = "mtrr=off"
"""Memory type ranges have no use here, and with them each CPU that starts stops all others until they are set."""
API = "10.0.2.15"
"""The host's address for calls from this machine, as QEMU's user network defines it."""
_KERNEL = (
    "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 mitigations=off tsc=reliable systemd.show_status=no "
    "systemd.hostname={name} systemd.machine_id={id.hex} maxcpus=1 init=/usr/local/sbin/all-cpus"
)
"""The kernel detects its devices with one CPU, and starts the other CPUs before all other programs: in QEMU 7.2
emulated CPUs lose their devices, or QEMU ends, when one CPU moves a device's memory while others run (fixed in 8.1).
It trusts the time stamp counter, which is this machine's own: where a busy machine delays the emulated HPET, the kernel
would call the counter unstable, and patch its code for it while the other CPUs start, which can hang them all."""

_BUSES = 32
"""The numbers of PCI buses for each node; node 0 begins with this number, and the buses of no node with 0."""
_DISK_BYTES = 64 << 20
_MAC = "52:54:00:19:01:"
"""The first five bytes of the MAC addresses of a node's cards."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The parameters of a host's QEMU.

    ``number`` is unique among the hosts of one network and begins with 1; ``port`` identifies the network. ``api`` is
    the port of this machine that reaches the host's port 8077; 0 means none.
    """

    topology: LabTopology
    kernel: str
    """Kernel arguments in addition to those of the topology."""
    number: int
    port: int
    folder: Path
    image: Image
    software: Path
    kvm: bool
    api: int = 0
    interactive: bool = False
    reboots: bool = False
    """Whether a reboot starts the host again; otherwise it ends the machine, as after a panic."""

    @property
    def id(self) -> uuid.UUID:
        """The machine's UUID, unique in its network."""
        return uuid.UUID(int=0x9144E2 << 96 | 4 << 76 | 8 << 60 | self.number)

    def tap(self, number: int) -> str:
        """The interface of this machine behind the card that is this device of the topology."""
        return f"lab{self.port}.{self.number}.{number}"

    @property
    def kernel_arguments(self) -> str:
        """The whole kernel command line."""
        own = _KERNEL.format(name=f"lab{self.number}", id=self.id)
        # An interactive console has a login prompt; otherwise the console log shows how far a hung host has booted.
        console = "loglevel=4" if self.interactive else "systemd.mask=serial-getty@ttyS0.service"
        return " ".join(filter(None, (own, console, self.topology.kernel, self.kernel)))


def command(machine: Machine) -> list[str]:
    """QEMU's command line for this machine."""
    topology = machine.topology
    return ["qemu-system-x86_64", *_host(machine), *_cpus(topology), *_nodes(topology), *_devices(machine)]


def _host(machine: Machine) -> Iterator[str]:
    folder, image = machine.folder, machine.image
    console = f"file,path={folder}/console.log"
    if machine.interactive:
        console = f"stdio,mux=on,signal=off,logfile={folder}/console.log"
        yield from ("-mon", "chardev=console")
    yield from ("-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35")
    if not machine.reboots:
        yield "-no-reboot"
    yield from ("-accel", "kvm" if machine.kvm else "tcg,thread=multi,tb-size=256", "-uuid", str(machine.id))
    yield from ("-kernel", str(image.kernel), "-initrd", f"{folder}/initrd", "-append", machine.kernel_arguments)
    yield from ("-drive", f"file={image.root},format=raw,if=none,id=root,snapshot=on")
    yield from ("-drive", f"file={machine.software},format=raw,if=none,id=software,readonly=on")
    yield from ("-device", "virtio-blk-pci,drive=root", "-device", "virtio-blk-pci,drive=software,serial=pinner")
    yield from ("-chardev", f"{console},id=console", "-serial", "chardev:console", "-device", "virtio-serial-pci")
    yield from ("-chardev", f"socket,path={folder}/agent,server=on,wait=off,id=agent")
    yield from ("-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0")
    yield from ("-netdev", f"socket,mcast=230.19.0.1:{machine.port},localaddr=127.0.0.1,id=net")
    yield from ("-device", f"virtio-net-pci,netdev=net,mac=52:54:00:19:00:{machine.number:02x}")
    if machine.api:
        yield from ("-netdev", f"user,restrict=on,hostfwd=tcp:127.0.0.1:{machine.api}-{API}:8077,id=api")
        yield from ("-device", "virtio-net-pci,netdev=api")


def _cpus(topology: LabTopology) -> Iterator[str]:
    """One CPU at the start and the others as devices, so that sockets may have different numbers of CPUs."""
    shape = (topology.sockets, topology.cores, topology.threads)
    total = shape[0] * shape[1] * shape[2]
    yield from ("-cpu", f"{CPU},{_LACKS}")
    yield from ("-smp", f"cpus=1,maxcpus={total},sockets={shape[0]},cores={shape[1]},threads={shape[2]}")
    for position in topology.positions[1:]:
        yield from ("-device", f"{CPU}-x86_64-cpu,{_address(position.socket, position.core, position.thread)}")


def _nodes(topology: LabTopology) -> Iterator[str]:
    yield from ("-m", f"{topology.memory_mib}M")
    for number, node in enumerate(topology.nodes):
        memory = f",memdev=memory{number}" if node.memory_mib else ""
        if memory:
            yield from ("-object", f"memory-backend-ram,id=memory{number},size={node.memory_mib}M")
        yield from ("-numa", f"node,nodeid={number}{memory}")
    homes = {(position.socket, position.core, position.thread): position.node for position in topology.positions}
    for place in product(range(topology.sockets), range(topology.cores), range(topology.threads)):
        # QEMU requires a node for unused positions, too.
        yield from ("-numa", f"cpu,node-id={homes.get(place, 0)},{_address(*place)}")
    for here, row in enumerate(topology.distances):
        for there, distance in enumerate(row):
            yield from ("-numa", f"dist,src={here},dst={there},val={distance}")


def _devices(machine: Machine) -> Iterator[str]:
    """The devices, each behind a port of its node's host bridge (QEMU's docs/pci_expander_bridge.txt)."""
    devices = machine.topology.devices
    for node in sorted({device.node for device in devices}):
        yield from ("-device", f"pxb-pcie,id=node{node},bus=pcie.0,bus_nr={_BUSES * (node + 1)},numa_node={node}")
    for number, device in enumerate(devices):
        yield from (
            "-device",
            f"pcie-root-port,id=port{number},bus=node{device.node},chassis={number + 1},slot={number}",
        )
        place = f"bus=port{number}"
        if device.model == "pcnet":
            yield from ("-device", f"pcie-pci-bridge,id=bridge{number},{place}")
            place = f"bus=bridge{number},addr=1"
        if device.model == "nvme":
            yield from ("-blockdev", f"driver=null-co,node-name=disk{number},size={_DISK_BYTES},read-zeroes=on")
            yield from ("-device", f"nvme,drive=disk{number},serial=lab{number},{place}")
            continue
        # Of QEMU's networks only a tap has several queues; the kernel deletes it when QEMU ends.
        queues = f",queues={device.queues}" if device.queues > 1 else ""
        tap = f"ifname={machine.tap(number)},script=no,downscript=no,vhost=off"
        yield from ("-netdev", f"tap,id=card{number},{tap}{queues}")
        several = f",mq=on,vectors={2 * device.queues + 2}" if device.queues > 1 else ""
        yield from ("-device", f"{device.model},netdev=card{number},mac={_MAC}{number:02x}{several},{place}")


def _address(socket: int, core: int, thread: int) -> str:
    return f"socket-id={socket},core-id={core},thread-id={thread}"
