"""The network's counters, and details of interfaces that only checks need (networking/snmp_counter.rst,
net/core/net-procfs.c, ABI/testing/sysfs-class-net, -queues). Only pyroute2 knows the long structures of offloads and
drivers' counters; the size of a UDP socket's buffer comes over netlink (linux/inet_diag.h, sock_diag.h)."""

import ipaddress
import re
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

from pinner.host.kernel import files, procfs
from pinner.host.settings import cards
from pinner.host.settings.cards import LIVE
from pinner.model.errors import Gone
from pinner.model.machine.topology import Device
from pinner.model.reading import Bridge, Nic, NicCounters, SocketOwner, SoftnetCpu, UdpSocket

MAX_DESCRIPTORS, MAX_OF_PROCESS = 65_536, 4096
"""Of all processes together, lowest pids first, and of each one are searched for sockets: any user may open a
million."""
MAX_SOCKETS = 1024
"""Those with the most drops are kept."""
_PROTOCOLS = ("Udp", "UdpLite", "Udp6", "Tcp", "TcpExt", "Ip")
_VMSTAT = ("pswpin", "pswpout", "numa_pages_migrated", "numa_hint_faults", "compact_stall", "allocstall_normal")
_MEMINFO = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
_CPU_FIELD = 12
"""softnet_stat has it since Linux 5.10."""


def read_softnet(root: Path) -> tuple[SoftnetCpu, ...]:
    """Before Linux 5.10 rows have no number: without offline CPUs they are in the order of the CPUs."""
    rows = []
    for place, line in enumerate((files.text(root / "proc/net/softnet_stat") or "").splitlines()):
        try:
            numbers = [int(word, 16) for word in line.split()]
            cpu = numbers[_CPU_FIELD] if len(numbers) > _CPU_FIELD else place
            rows.append(SoftnetCpu(cpu, *numbers[:3]))
        except (ValueError, TypeError):
            continue
    return tuple(rows)


def read_counters(root: Path) -> Mapping[str, int]:
    """The counters by nstat's names (UdpRcvbufErrors), with those of /proc/vmstat, /proc/meminfo and UdpMemPages."""
    folder = root / "proc/net"
    texts = (files.text(folder / name) or "" for name in ("snmp", "netstat"))
    counters = dict(chain.from_iterable(map(_tables, texts)))
    for line in (files.text(folder / "snmp6") or "").splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("Udp6") and value.strip().isdecimal():
            counters[name] = int(value)
    for line in (files.text(folder / "sockstat") or "").splitlines():
        words = line.split()
        if words[:1] == ["UDP:"] and "mem" in words[:-1] and (pages := words[words.index("mem") + 1]).isdecimal():
            counters["UdpMemPages"] = int(pages)
    for line in (files.text(root / "proc/vmstat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in _VMSTAT and value.isdecimal():
            counters[name] = int(value)
    for line in (files.text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO and value.split()[:1] and value.split()[0].isdecimal():
            counters[name] = int(value.split()[0])
    return counters


def _tables(text: str) -> Iterator[tuple[str, int]]:
    """snmp and netstat have a line of names, then a line of numbers."""
    for heading, row in pairwise(text.splitlines()):
        protocol, _, names = heading.partition(":")
        same, _, numbers = row.partition(":")
        if protocol == same and protocol in _PROTOCOLS and numbers.split()[:1] != names.split()[:1]:
            for name, number in zip(names.split(), numbers.split(), strict=False):
                if number.isdecimal():
                    yield f"{protocol}{name}", int(number)


def read_sockets(root: Path) -> tuple[UdpSocket, ...]:
    lines = chain.from_iterable((files.text(root / "proc/net" / name) or "").splitlines() for name in ("udp", "udp6"))
    sockets = (socket for line in lines for socket in _socket(line) if socket.drops or socket.unread)
    return tuple(sorted(sockets, key=lambda each: (-each.drops, -each.unread, each.inode))[:MAX_SOCKETS])


def _socket(line: str) -> Iterator[UdpSocket]:
    words = line.split()
    try:
        address, _, port = words[1].partition(":")
        unread = int(words[4].partition(":")[2], 16)
        yield UdpSocket(_address(address, int(port, 16)), int(words[9]), int(words[7]), int(words[12]), unread)
    except (ValueError, IndexError):
        return


def _address(text: str, port: int) -> str:
    """``text`` has words of 32 bits in the host's byte order."""
    data = bytes.fromhex(text)
    words = b"".join(data[start : start + 4][::-1] for start in range(0, len(data), 4))
    ip_address = ipaddress.ip_address(words)
    return f"[{ip_address}]:{port}" if ip_address.version == 6 else f"{ip_address}:{port}"


MAX_QUEUES = 1024
_UP = ("up", "unknown")
_LOOPBACK = "772"
"""ARPHRD_LOOPBACK (include/uapi/linux/if_arp.h)."""


def read_nics(root: Path, devices: tuple[Device, ...]) -> tuple[Nic, ...]:
    cards = {device.name: device.description for device in devices if device.kind == "net"}
    return tuple(_nic(folder, name, cards.get(name, ""), root) for name, folder in _interfaces(root))


def read_nic_counters(root: Path) -> tuple[NicCounters, ...]:
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
    statistics = folder / "statistics"
    return NicCounters(name, index, files.counts(statistics, sorted(files.names(statistics))), driver, refused)


def _bridge(folder: Path) -> Bridge | None:
    snooping = files.number(folder / "bridge/multicast_snooping")
    if snooping is None:
        return None
    querier = files.number(folder / "bridge/multicast_querier")
    return Bridge(bool(snooping), bool(querier), tuple(sorted(map(files.decoded, files.names(folder / "brif")))))


T = TypeVar("T")
MAX_COUNTERS = 256
_WHOLE_CARD = re.compile(r"(?!.*(?:queue|ring|channel|vf|prio|_tc)_?\[?\d)(?!(?:rx|tx|ch|q|p)[_-]?\d)[\w.\- ]+")
_NO_ROOM = re.compile(r"missed|no_?buf|no_?dma|out_?of_?buf|fifo|no_?desc|discard|drop|alloc", re.IGNORECASE)


def read_offloads(name: str) -> tuple[Mapping[str, bool], str]:
    return _ask(name, lambda card: _offloads(card.get_features()))


def read_driver_counters(name: str) -> tuple[Mapping[str, int], str]:
    """Packets for which the card had no room; why the driver refuses them."""
    return _ask(name, lambda card: _without_room(card.get_statistics()))


def _ask(name: str, question: Callable[[Any], Mapping[str, T]]) -> tuple[Mapping[str, T], str]:
    """A feature that the driver lacks is no refusal."""
    # Imported here: it takes half a second, and most commands do not need it.
    from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError  # type: ignore[import-untyped]

    class Card(IoctlEthtool):  # type: ignore[misc]
        """pyroute2 opens internet sockets, which the agent's unit forbids; the kernel takes these requests on any."""

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


_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP."""
_DONE = 3
_MEMORY = 7
"""INET_DIAG_SKMEMINFO; its second number is the size of the receive buffer."""
_HEADER, _MESSAGE = 16, 72
"""Bytes of struct nlmsghdr and struct inet_diag_msg, which ends with the inode."""
_SECONDS = 1.0
_ANSWER = 65536


def read_owners(root: Path, inodes: Collection[int]) -> Mapping[int, SocketOwner]:
    """Sockets that no process of /proc has are left out: those of the kernel, and ended ones."""
    if not inodes:
        return {}
    buffers = _buffers() if root == LIVE else {}
    links = {f"socket:[{inode}]": inode for inode in inodes}
    owners: dict[int, SocketOwner] = {}
    for pid, link in islice(_descriptors(root), MAX_DESCRIPTORS):
        if (inode := links.get(link)) is not None:
            with suppress(Gone):
                owners[inode] = _owner(root, pid, buffers.get(inode, 0))
                del links[link]
        if not links:
            break
    return owners


def _descriptors(root: Path) -> Iterator[tuple[int, str]]:
    """Pids, with what their descriptors are."""
    for pid in map(int, files.numbers(f"{root}/proc")):
        folder = root / "proc" / str(pid) / "fd"
        for name in files.first_names(folder, MAX_OF_PROCESS):
            with suppress(OSError):
                yield pid, str((folder / name).readlink())


def _owner(root: Path, pid: int, buffer: int) -> SocketOwner:
    try:
        unit = procfs.parse_unit(files.read(f"{root}/proc/{pid}/cgroup"))
    except OSError:
        raise Gone(f"process {pid}") from None
    return SocketOwner(pid, procfs.name_of(root, pid), unit, buffer)


def _buffers() -> Mapping[int, int]:
    """Bytes by inode; empty for a kernel without udp_diag."""
    sizes: dict[int, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as asked:
            asked.settimeout(_SECONDS)
            body = struct.pack("=4BI48x", family, socket.IPPROTO_UDP, 1 << (_MEMORY - 1), 0, 0xFFFFFFFF)
            asked.send(struct.pack("=I2H2I", _HEADER + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
            while (answer := asked.recv(_ANSWER)) and _kind(answer) == _BY_FAMILY:
                sizes |= parse_buffers(answer)
    return sizes


def _kind(answer: bytes) -> int:
    return int(struct.unpack_from("=4xH", answer)[0]) if len(answer) >= _HEADER else _DONE


def parse_buffers(answer: bytes) -> Mapping[int, int]:
    """One answer has several messages."""
    sizes: dict[int, int] = {}
    for start, end in _lengths(answer, 0, _HEADER + _MESSAGE, "=I"):
        first = start + _HEADER + _MESSAGE
        inode = struct.unpack_from("=I", answer, first - 4)[0]
        for attribute, after in _lengths(answer[:end], first, 4, "=H"):
            if struct.unpack_from("=H", answer, attribute + 2)[0] == _MEMORY and attribute + 12 <= after:
                sizes[inode] = struct.unpack_from("=I", answer, attribute + 8)[0]
    return sizes


def _lengths(data: bytes, start: int, least: int, length: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each part. A part begins with its length, and the next one with a multiple of 4."""
    while start + least <= len(data):
        size = int(struct.unpack_from(length, data, start)[0])
        if size < least or start + size > len(data):
            return
        yield start, start + size
        start += (size + 3) & ~3
