"""Network counters: softnet, protocols, UDP sockets that drop packets (networking/snmp_counter.rst,
net/core/net-procfs.c)."""

import ipaddress
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.reading import SoftnetCpu, UdpSocket

MAX_SOCKETS = 1024
"""Those with the most drops."""
_PROTOCOLS = ("Udp", "UdpLite", "Udp6", "Tcp", "TcpExt", "Ip")
_VMSTAT = ("pswpin", "pswpout", "numa_pages_migrated", "numa_hint_faults", "compact_stall", "allocstall_normal")
_MEMINFO = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
_CPU_FIELD = 12
"""Of softnet_stat, since Linux 5.10."""


def read_softnet(root: Path) -> tuple[SoftnetCpu, ...]:
    """Before Linux 5.10 rows have no number: without offline CPUs they are in the order of the CPUs."""
    found = []
    for place, line in enumerate((files.text(root / "proc/net/softnet_stat") or "").splitlines()):
        try:
            numbers = [int(word, 16) for word in line.split()]
            cpu = numbers[_CPU_FIELD] if len(numbers) > _CPU_FIELD else place
            found.append(SoftnetCpu(cpu, *numbers[:3]))
        except (ValueError, TypeError):
            continue
    return tuple(found)


def read_counters(root: Path) -> Mapping[str, int]:
    """Named as nstat does (UdpRcvbufErrors), and those of /proc/vmstat and /proc/meminfo."""
    folder = root / "proc/net"
    texts = (files.text(folder / name) or "" for name in ("snmp", "netstat"))
    found = dict(chain.from_iterable(map(_tables, texts)))
    for line in (files.text(folder / "snmp6") or "").splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("Udp6") and value.strip().isdecimal():
            found[name] = int(value)
    for line in (files.text(root / "proc/vmstat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in _VMSTAT and value.isdecimal():
            found[name] = int(value)
    for line in (files.text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO and value.split()[:1] and value.split()[0].isdecimal():
            found[name] = int(value.split()[0])
    return found


def _tables(text: str) -> Iterator[tuple[str, int]]:
    """Of snmp and netstat: a line of names, then a line of numbers."""
    for heading, row in pairwise(text.splitlines()):
        protocol, _, names = heading.partition(":")
        same, _, numbers = row.partition(":")
        if protocol == same and protocol in _PROTOCOLS and numbers.split()[:1] != names.split()[:1]:
            for name, number in zip(names.split(), numbers.split(), strict=False):
                if number.isdecimal():
                    yield f"{protocol}{name}", int(number)


def read_sockets(root: Path) -> tuple[UdpSocket, ...]:
    """Those with drops or unread packets, the most drops first."""
    lines = chain.from_iterable((files.text(root / "proc/net" / name) or "").splitlines() for name in ("udp", "udp6"))
    found = (socket for line in lines for socket in _socket(line) if socket.drops or socket.unread)
    return tuple(sorted(found, key=lambda each: (-each.drops, -each.unread, each.inode))[:MAX_SOCKETS])


def _socket(line: str) -> Iterator[UdpSocket]:
    words = line.split()
    try:
        address, _, port = words[1].partition(":")
        unread = int(words[4].partition(":")[2], 16)
        yield UdpSocket(_address(address, int(port, 16)), int(words[9]), int(words[7]), int(words[12]), unread)
    except (ValueError, IndexError):
        return


def _address(text: str, port: int) -> str:
    """Words of 32 bits in the host's byte order."""
    data = bytes.fromhex(text)
    words = b"".join(data[start : start + 4][::-1] for start in range(0, len(data), 4))
    found = ipaddress.ip_address(words)
    return f"[{found}]:{port}" if found.version == 6 else f"{found}:{port}"
