"""UDP of the host: which limit drops packets, and whose it is. Pure.

Sources: net/ipv4/udp.c (__udp_enqueue_schedule_skb), networking/snmp_counter.rst, admin-guide/sysctl/net.rst.
"""

from collections.abc import Iterator
from shlex import quote
from typing import Literal

from pinner.checks.common import (
    MANY,
    ROOT,
    SYSCTL_FILE,
    find_each,
    grown_counters,
    host_subject,
    number,
    planned_sysctl,
    rate,
    rates,
    sysctl,
    sysctl_now,
)
from pinner.checks.limits import WARN_PERCENT, of_services
from pinner.model.change import Target
from pinner.model.machine.process import is_service
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading, SocketOwner, UdpSocket
from pinner.model.settings.sysctls import DEFAULT_BUFFER, SYSCTLS

BUFFER = "socket(7): SO_RCVBUF; Linux: include/uapi/linux/snmp.h (UDP_MIB_RCVBUFERRORS)"
RMEM_MAX = "net.core.rmem_max"
_NET, _UDP_MEM = "proc/sys/net/core", "proc/sys/net/ipv4/udp_mem"
_FIRST = 212_992
"""The kernel's own rmem_default and rmem_max, in bytes."""
_MOST = 26_214_400
"""The most bytes that are proposed."""
_PER_SECOND = 1.0
_SHARE_OF_MEMORY = 4
"""UDP gets at most a fourth of the host's memory."""
_Limit = Literal["CPU", "reader", "rmem_default", "rmem_max", "SO_RCVBUF", "former", ""]
"""What makes a receive buffer full; CPU: a limit of its unit; reader: its program reads too slowly; former: what the
kernel allowed when its program began; empty: not known."""


class _Buffers:
    """Which limit the receive buffers of sockets, by inode, meet, and what lifts it."""

    def __init__(self, reading: HostReading) -> None:
        self._reading, self._stopped = reading, of_services(reading).stopped
        self._owners = reading.details.socket_owners
        self._unread = [{each.inode: each.unread for each in sample.sockets} for sample in reading.samples]

    def _limit(self, inode: int) -> _Limit:
        owner = self._owners.get(inode)
        if owner and self._stopped.get(owner.unit, 0.0) >= WARN_PERCENT:
            return "CPU"
        size = owner.receive_buffer if owner else 0
        if not size:
            return ""
        if all(2 * unread.get(inode, 0) >= size for unread in self._unread):
            return "reader"  # a burst fills it for a moment
        if size == number(self._reading.details.settings, f"{_NET}/rmem_default"):
            return "rmem_default"
        if size == 2 * (sysctl_now(self._reading, RMEM_MAX) or 0):
            return "rmem_max"
        return "former" if size in (_FIRST, 2 * _FIRST) else "SO_RCVBUF"

    def words(self, inode: int, owner: SocketOwner) -> str:
        """A program that asks for the same number by itself looks the same."""
        own = f"its own SO_RCVBUF is the limit ({owner.receive_buffer // 2} bytes)"
        match self._limit(inode):
            case "CPU":
                return f": a CPU limit stops {owner.unit} {self._stopped[owner.unit]:.3g} % of the time"
            case "reader":
                first, *_, last = (unread[inode] for unread in self._unread)
                return f": its program reads too slowly ({last} bytes are unread, {first} at first)"
            case "rmem_default":
                size = owner.receive_buffer
                return f": its program asks for no receive buffer and has rmem_default ({size} bytes), or {own}"
            case "rmem_max":
                return f": its program asks for rmem_max ({owner.receive_buffer // 2} bytes) or more"
            case "former":
                return f": its program began with the kernel's former limit ({_FIRST} bytes), or {own}"
            case "SO_RCVBUF":
                return f": {own}"
        return ""

    def remedies(self, inode: int) -> Iterator[Remedy]:
        """A program has its buffer since it began."""
        owner, limit, most = self._owners.get(inode), self._limit(inode), sysctl_now(self._reading, RMEM_MAX)
        lines: tuple[Remedy, ...] = ()
        if limit in ("", "rmem_max"):
            lines = planned_sysctl(RMEM_MAX, most or 0)
        elif limit == "rmem_default":
            now = number(self._reading.details.settings, f"{_NET}/rmem_default") or 0
            lines = sysctl("net.core.rmem_default", max(DEFAULT_BUFFER, 2 * now)) if 2 * now <= _MOST else ()
        yield from lines
        if owner and is_service(owner.unit) and (limit == "former" or (limit and lines)):
            unit = owner.unit
            where = f"{ROOT}, where a stop of {unit} does no harm; it starts no job of a user anew, as cron does not"
            yield Remedy(f"systemctl restart {quote(unit)}", where)

    def targets(self, inodes: list[int]) -> tuple[Target, ...]:
        by_rmem_max = any(self._limit(inode) in ("", "rmem_max") for inode in inodes)
        return (SYSCTLS[RMEM_MAX].target,) if by_rmem_max else ()


BUFFER_ERRORS = ("UdpRcvbufErrors", "Udp6RcvbufErrors")


def _buffer_errors(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if not (lost := grown_counters(reading, BUFFER_ERRORS)):
            return
        sockets = sorted(_dropping(reading), key=lambda each: -each[1])
        owners = reading.details.socket_owners
        # Without a socket, what bounds the buffers is not known.
        inodes = [socket.inode for socket, _ in sockets[:MANY]] or [0]
        buffers = _Buffers(reading)
        remedies = (line for inode in inodes for line in buffers.remedies(inode))
        yield Found(
            host_subject(reading),
            "UDP sockets of the host drop packets, because their receive buffers are full",
            (
                *rates(lost, reading.seconds, "packets"),
                Evidence("rmem_max", sysctl_now(reading, RMEM_MAX) or 0, "bytes"),
                *(
                    Evidence(
                        f"socket {socket.address}", f"{owner.name} ({owner.pid}){buffers.words(socket.inode, owner)}"
                    )
                    for socket, _ in sockets[:MANY]
                    if (owner := owners.get(socket.inode))
                ),
                *([Evidence("other sockets", others)] if (others := len(sockets[MANY:])) else ()),
            ),
            tuple(dict.fromkeys(remedies)),
            targets=buffers.targets(inodes),
        )

    yield from find_each([reading], host_subject, find)


def _dropping(reading: HostReading) -> Iterator[tuple[UdpSocket, int]]:
    """Sockets with the packets that they dropped in the sample. One that dropped none before is not in a sample."""
    before = {socket.inode: socket for socket in reading.before.sockets} if reading.before else {}
    for socket in reading.now.sockets:
        earlier = before.get(socket.inode)
        if earlier is not None and socket.drops > earlier.drops:
            yield socket, socket.drops - earlier.drops


def _socket_drops(reading: HostReading) -> Iterator[Found]:
    buffers = _Buffers(reading)

    def find(dropping: tuple[UdpSocket, int]) -> Iterator[Found]:
        socket, lost = dropping
        owner = reading.details.socket_owners.get(socket.inode)
        is_full = bool(grown_counters(reading, BUFFER_ERRORS) or not grown_counters(reading, _ERRORS))
        whose = f"{owner.name} ({owner.pid})" if owner else f"user {socket.user}"
        why = buffers.words(socket.inode, owner) if owner and is_full else ""
        yield Found(
            _subject(dropping),
            f"the UDP socket at {socket.address} of {whose} drops packets"
            f"{why if is_full else ', and no receive buffer of the host was full'}",
            (
                *rate("drops", lost, reading.seconds, "packets"),
                Evidence("unread", socket.unread, "bytes"),
                Evidence("receive buffer", owner.receive_buffer if owner else 0, "bytes"),
                Evidence("rmem_max", sysctl_now(reading, RMEM_MAX) or 0, "bytes"),
            ),
            tuple(buffers.remedies(socket.inode)) if is_full else (),
            targets=buffers.targets([socket.inode]) if is_full else (),
        )

    yield from find_each(_dropping(reading), _subject, find)


def _subject(dropping: tuple[UdpSocket, int]) -> Subject:
    return Subject("socket", f"udp {dropping[0].address}")


_ERRORS = ("UdpInErrors", "Udp6InErrors")
_MEMORY_ERRORS = ("UdpMemErrors", "Udp6MemErrors")
_CHECKSUMS = ("UdpInCsumErrors", "Udp6InCsumErrors")


def _memory_full(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if lost := grown_counters(reading, _MEMORY_ERRORS):
            bounds = _pages(reading)
            shown = " ".join(map(str, bounds)) or "not known"
            used = [sample.counters["UdpMemPages"] for sample in reading.samples if "UdpMemPages" in sample.counters]
            # The memory limit of a cgroup drops packets, too.
            is_udps = not bounds or not used or 2 * max(used) >= bounds[0]
            why = "the memory of UDP is full" if is_udps else "a memory limit leaves none for them: UDP uses little"
            yield Found(
                host_subject(reading),
                f"UDP sockets of the host drop packets, because {why}",
                (
                    *rates(lost, reading.seconds, "packets"),
                    Evidence("in use", reading.now.counters.get("UdpMemPages", 0), "pages"),
                    Evidence("udp_mem", shown, "pages" if bounds else ""),
                ),
                tuple(_more_memory(reading, bounds)) if is_udps else (),
            )

    yield from find_each([reading], host_subject, find)


def _pages(reading: HostReading) -> tuple[int, ...]:
    """Least, pressure and most, which udp_mem has; empty where it cannot be read."""
    words = reading.details.settings.get(_UDP_MEM, "").split()
    return tuple(map(int, words)) if len(words) == 3 and all(map(str.isdecimal, words)) else ()


def _more_memory(reading: HostReading, bounds: tuple[int, ...]) -> Iterator[Remedy]:
    whole = reading.now.counters.get("MemTotal", 0)
    if bounds and 2 * bounds[2] * reading.details.page_kib * _SHARE_OF_MEMORY <= whole:
        value = " ".join(str(2 * pages) for pages in bounds)
        yield Remedy(f"sysctl -w net.ipv4.udp_mem={quote(value)}", ROOT)
        yield Remedy(f"net.ipv4.udp_mem = {value}", SYSCTL_FILE)


def _other_errors(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        whole, checksums = grown_counters(reading, _ERRORS), grown_counters(reading, _CHECKSUMS)
        explained = grown_counters(reading, (*BUFFER_ERRORS, *_MEMORY_ERRORS))
        lost = sum(whole.values()) - sum(explained.values())
        # Older kernels do not count them apart.
        counts_memory = any(name in reading.now.counters for name in _MEMORY_ERRORS)
        full = "neither a receive buffer nor UDP's memory was full" if counts_memory else "no receive buffer was full"
        if lost > 0 and lost / reading.seconds >= _PER_SECOND:
            yield Found(
                host_subject(reading),
                f"the host discards {lost / reading.seconds:.3g} UDP packets/s for which {full}",
                (
                    *rate("discarded", lost, reading.seconds, "packets"),
                    Evidence("wrong checksums", sum(checksums.values()), "packets"),
                ),
            )

    yield from find_each([reading], host_subject, find)


def _send_errors(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if lost := grown_counters(reading, ("UdpSndbufErrors", "Udp6SndbufErrors")):
            sizes = {name: number(reading.details.settings, f"{_NET}/{name}") for name in ("wmem_max", "wmem_default")}
            wanted = {"wmem_max": _MOST, "wmem_default": DEFAULT_BUFFER}
            yield Found(
                host_subject(reading),
                "programs of the host cannot send UDP packets, because their send buffers, or the queue of a card, are "
                "full",
                (
                    *rates(lost, reading.seconds, "packets"),
                    *(Evidence(name, size, "bytes") for name, size in sizes.items() if size is not None),
                ),
                tuple(
                    line
                    for name, size in sizes.items()
                    if size is not None and size < wanted[name]
                    for line in sysctl(f"net.core.{name}", wanted[name])
                ),
            )

    yield from find_each([reading], host_subject, find)


def _small_rmem(reading: HostReading) -> Iterator[Found]:
    most = sysctl_now(reading, RMEM_MAX)
    fast = [nic for nic in reading.details.nics if nic.device and nic.is_up]
    if most is not None and most <= _FIRST and fast and reading.snapshot.guests:
        yield Found(
            Subject("sysctl", RMEM_MAX),
            f"no program may ask for a receive buffer of more than {most} bytes",
            (Evidence("rmem_max", most, "bytes"), Evidence("cards", len(fast))),
            planned_sysctl(RMEM_MAX, most),
            targets=(SYSCTLS[RMEM_MAX].target,),
        )


CHECKS = (
    HostCheck(
        code="udp-buffer-errors",
        severity="critical",
        summary="UDP sockets of the host drop packets",
        why="the reader is slower than the sender, and its buffer is full: overlays, storage and clusters lose data",
        source=BUFFER,
        find=_buffer_errors,
    ),
    HostCheck(
        code="udp-socket-drops",
        severity="warning",
        summary="one UDP socket of the host drops packets",
        why="its program asks for a smaller buffer than it needs, or gets no CPU in time",
        source=BUFFER,
        find=_socket_drops,
    ),
    HostCheck(
        code="udp-memory-full",
        severity="critical",
        summary="UDP has no memory left for packets",
        why="all UDP sockets of the host share udp_mem, so each may lose packets; a larger buffer makes it worse",
        source="Linux: Documentation/networking/ip-sysctl.rst (udp_mem)",
        find=_memory_full,
    ),
    HostCheck(
        code="udp-in-errors",
        severity="warning",
        summary="the host discards UDP packets that no full buffer explains, once a second or more",
        why="their checksum is wrong, a filter or an IPsec policy refuses them, or their tunnel's header is malformed: "
        "no buffer helps",
        source="Linux: include/uapi/linux/snmp.h (UDP_MIB_INERRORS, UDP_MIB_CSUMERRORS)",
        find=_other_errors,
    ),
    HostCheck(
        code="udp-send-errors",
        severity="warning",
        summary="programs of the host cannot send UDP packets",
        why="a program's send buffer, or the queue of a card, is full: overlays, storage and clusters lose data",
        source="socket(7): SO_SNDBUF; Linux: include/uapi/linux/snmp.h (UDP_MIB_SNDBUFERRORS)",
        find=_send_errors,
    ),
    HostCheck(
        code="udp-small-buffers",
        severity="warning",
        summary="rmem_max has the kernel's default on a host with guests and a card",
        why="one burst of 10 Gb/s fills the default buffer in less than 0.2 ms",
        source="Linux: Documentation/admin-guide/sysctl/net.rst (rmem_max)",
        find=_small_rmem,
    ),
)
