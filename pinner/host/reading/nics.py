"""Network interfaces: counters from /sys/class/net and drivers, and the details that only checks need.

Source: the kernel's Documentation/ABI/testing/sysfs-class-net-queues and sysfs-class-net.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pinner.host.kernel import files
from pinner.host.reading import ethtool
from pinner.host.settings import interfaces
from pinner.host.settings.cards import LIVE
from pinner.model.machine.topology import Device
from pinner.model.reading import Bridge, Nic, NicCounters

MAX_QUEUES = 1024
_UP = ("up", "unknown")
_LOOPBACK = "772"
"""ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h)."""


def read_nics(root: Path, devices: tuple[Device, ...]) -> tuple[Nic, ...]:
    """The interfaces except the loopback, with the cards behind them of the host's ``devices``."""
    cards = {device.name: device.description for device in devices if device.kind == "net"}
    return tuple(_nic(folder, name, cards.get(name, ""), root) for name, folder in _interfaces(root))


def read_nic_counters(root: Path) -> tuple[NicCounters, ...]:
    """The counters of the interfaces except the loopback."""
    return tuple(_counters(folder, name, root) for name, folder in _interfaces(root))


def _interfaces(root: Path) -> Iterator[tuple[str, Path]]:
    for name in interfaces.names(root / "sys/class/net"):
        folder = root / "sys/class/net" / name
        if folder.is_dir() and files.text(folder / "type") != _LOOPBACK:
            yield name, folder


def _nic(folder: Path, name: str, device: str, root: Path) -> Nic:
    queues = folder / "queues"
    offloads, refused = ethtool.read_offloads(name) if device and root == LIVE else ({}, "")
    return Nic(
        name=name,
        index=files.number(folder / "ifindex") or 0,
        device=device,
        is_up=(files.text(folder / "operstate") or "unknown") in _UP,
        queue_length=files.number(folder / "tx_queue_len") or 0,
        rx_flows=tuple(files.number(path / "rps_flow_cnt") or 0 for path in _queues(queues, "rx-")),
        tx_queues=len(_queues(queues, "tx-")),
        offloads=offloads,
        bridge=_bridge(folder),
        refused=refused,
    )


def _queues(folder: Path, prefix: str) -> list[Path]:
    return list(files.numbered(folder, prefix).values())[:MAX_QUEUES]


def _counters(folder: Path, name: str, root: Path) -> NicCounters:
    is_card = root == LIVE and (folder / "device").exists()
    driver, refused = ethtool.read_driver_counters(name) if is_card else ({}, "")
    index = files.number(folder / "ifindex") or 0
    return NicCounters(name, index, _statistics(folder / "statistics"), driver, refused)


def _statistics(folder: Path) -> Mapping[str, int]:
    numbers = {name: files.number(folder / name) for name in sorted(files.names(folder))}
    return {name: number for name, number in numbers.items() if number is not None}


def _bridge(folder: Path) -> Bridge | None:
    snooping = files.number(folder / "bridge/multicast_snooping")
    if snooping is None:
        return None
    querier = files.number(folder / "bridge/multicast_querier")
    return Bridge(bool(snooping), bool(querier), tuple(sorted(map(files.decoded, files.names(folder / "brif")))))
