"""Whose UDP sockets are, and how large their receive buffers are (include/uapi/linux/inet_diag.h, sock_diag.h).

/proc/net/udp has no size of a buffer: the kernel tells it over netlink.
"""

import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pinner.host.kernel import files, procfs
from pinner.host.settings.cards import LIVE
from pinner.model.errors import Gone
from pinner.model.reading import SocketOwner

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
    for pid in map(int, files.numbers(f"{root}/proc")):
        for inode in {links[link] for link in _links(root / "proc" / str(pid) / "fd") if link in links}:
            with suppress(Gone):
                owners.setdefault(inode, _owner(root, pid, buffers.get(inode, 0)))
    return owners


def _links(folder: Path) -> Iterator[str]:
    for name in files.names(folder):
        with suppress(OSError):
            yield str((folder / name).readlink())


def _owner(root: Path, pid: int, buffer: int) -> SocketOwner:
    try:
        unit = procfs.parse_unit(files.read(f"{root}/proc/{pid}/cgroup"))
    except OSError:
        raise Gone(f"process {pid}") from None
    return SocketOwner(pid, files.text(root / "proc" / str(pid) / "comm") or "", unit, buffer)


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
