"""Network interfaces: counters and details that only checks need (ABI/testing/sysfs-class-net, -queues).

pyroute2 asks drivers for offloads and their own counters, whose structures are long; settings/cards.py does without it.
"""

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pinner.host.kernel import files
from pinner.host.settings import cards
from pinner.host.settings.cards import LIVE
from pinner.model.machine.topology import Device
from pinner.model.reading import Bridge, Nic, NicCounters

MAX_QUEUES = 1024
_UP = ("up", "unknown")
_LOOPBACK = "772"
"""ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h)."""


def read_nics(root: Path, devices: tuple[Device, ...]) -> tuple[Nic, ...]:
    """Without the loopback, with their cards of ``devices``."""
    cards = {device.name: device.description for device in devices if device.kind == "net"}
    return tuple(_nic(folder, name, cards.get(name, ""), root) for name, folder in _interfaces(root))


def read_nic_counters(root: Path) -> tuple[NicCounters, ...]:
    """Without the loopback."""
    return tuple(_counters(folder, name, root) for name, folder in _interfaces(root))


def _interfaces(root: Path) -> Iterator[tuple[str, Path]]:
    for name in cards.names(root / "sys/class/net"):
        folder = root / "sys/class/net" / name
        if folder.is_dir() and files.text(folder / "type") != _LOOPBACK:
            yield name, folder


def _nic(folder: Path, name: str, device: str, root: Path) -> Nic:
    queues = folder / "queues"
    offloads, refused = read_offloads(name) if device and root == LIVE else ({}, "")
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
    driver, refused = read_driver_counters(name) if is_card else ({}, "")
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


T = TypeVar("T")
MAX_COUNTERS = 256
_WHOLE_CARD = re.compile(r"(?!.*(?:queue|ring|channel|vf|prio|_tc)_?\[?\d)(?!(?:rx|tx|ch|q|p)[_-]?\d)[\w.\- ]+")
"""Not of one queue."""
_NO_ROOM = re.compile(r"missed|no_?buf|no_?dma|out_?of_?buf|fifo|no_?desc|discard|drop|alloc", re.IGNORECASE)


def read_offloads(name: str) -> tuple[Mapping[str, bool], str]:
    """Changeable features, and whether each is on; why the driver refuses them."""
    return _ask(name, lambda card: _offloads(card.get_features()))


def read_driver_counters(name: str) -> tuple[Mapping[str, int], str]:
    """Packets for which the card had no room; why the driver refuses them."""
    return _ask(name, lambda card: _without_room(card.get_statistics()))


def _ask(name: str, question: Callable[[Any], Mapping[str, T]]) -> tuple[Mapping[str, T], str]:
    """No refusal for a feature that the driver lacks."""
    # Imported here: it takes half a second, and most commands do not need it.
    from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError  # type: ignore[import-untyped]

    class Card(IoctlEthtool):  # type: ignore[misc]
        """The agent's unit allows no internet sockets, which pyroute2 would open; the kernel takes these requests on
        any socket."""

        def __init__(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.change_ifname(name)

    card = Card()
    try:
        return question(card), ""
    except NotSupportedError:
        return {}, ""
    # pyroute2 raises errors of its own, OSError, and for answers that it cannot decode many others.
    except Exception as error:
        return {}, str(error) or type(error).__name__
    finally:
        card.close()


def _offloads(features: Any) -> Mapping[str, bool]:
    names = (name for name in features.keys() if name)  # noqa: SIM118 - not a mapping
    return {name: bool(features.is_active(name)) for name in names if features.is_available(name)}


def _without_room(statistics: Any) -> Mapping[str, int]:
    wanted = ((name, count) for name, count in statistics if _NO_ROOM.search(name) and _WHOLE_CARD.fullmatch(name))
    return dict(sorted(wanted)[:MAX_COUNTERS])
