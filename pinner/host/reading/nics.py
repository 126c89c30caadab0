"""Network interfaces: queues, masks and counters from /sys/class/net; rings and offloads through ethtool's interface.

Source: the kernel's Documentation/ABI/testing/sysfs-class-net-queues and sysfs-class-net.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from pinner.host.hardware.devices import read_devices
from pinner.host.kernel import files
from pinner.host.settings import interfaces
from pinner.model.cpuset import CpuSet
from pinner.model.reading import Bridge, Nic, RxQueue

MAX_QUEUES = 1024
_UP = ("up", "unknown")
_LOOPBACK = "772"
"""ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h)."""

Details = Callable[[Nic], Nic]
"""Adds what ethtool's interface tells about a card."""


def read_nics(root: Path, details: Details = lambda nic: nic) -> tuple[Nic, ...]:
    """The interfaces except the loopback. One that vanishes meanwhile is left out."""
    folder = root / "sys/class/net"
    places = {device.name: device for device in read_devices(root) if device.kind == "net"}
    found = []
    for name in interfaces.names(folder):
        place = places.get(name)
        if place is None or files.text(folder / name / "type") == _LOOPBACK:
            continue
        nic = _nic(folder / name, name, place.description, place.node)
        found.append(details(nic) if nic.device else nic)
    return tuple(found)


def _nic(folder: Path, name: str, device: str, node: int | None) -> Nic:
    queues = folder / "queues"
    master = folder / "master"
    return Nic(
        name=name,
        device=device,
        node=node,
        is_up=(files.text(folder / "operstate") or "unknown") in _UP,
        mtu=files.number(folder / "mtu") or 0,
        queue_length=files.number(folder / "tx_queue_len") or 0,
        master=files.decoded(master.resolve().name) if master.is_symlink() else "",
        rx_queues=tuple(map(_rx_queue, list(files.numbered(queues, "rx-").values())[:MAX_QUEUES])),
        xps=tuple(_mask(path / "xps_cpus") for path in list(files.numbered(queues, "tx-").values())[:MAX_QUEUES]),
        statistics=_statistics(folder / "statistics"),
        bridge=_bridge(folder),
        index=files.number(folder / "ifindex") or 0,
    )


def _rx_queue(folder: Path) -> RxQueue:
    return RxQueue(_mask(folder / "rps_cpus"), files.number(folder / "rps_flow_cnt") or 0)


def _mask(path: Path) -> CpuSet:
    return files.cpu_mask(path) or CpuSet()


def _statistics(folder: Path) -> Mapping[str, int]:
    found = {name: files.number(folder / name) for name in sorted(files.names(folder))}
    return {name: value for name, value in found.items() if value is not None}


def _bridge(folder: Path) -> Bridge | None:
    snooping = files.number(folder / "bridge/multicast_snooping")
    if snooping is None:
        return None
    querier = files.number(folder / "bridge/multicast_querier")
    return Bridge(bool(snooping), bool(querier), tuple(sorted(map(files.decoded, files.names(folder / "brif")))))
