"""The host's network stack: softnet, UDP and TCP. Pure."""

from collections.abc import Iterator

from pinner.checks.common import find_each, grown, growth, host_subject, planned_sysctl, rate, sysctl_now
from pinner.model.outcome.check import Evidence, Found, HostCheck, Subject
from pinner.model.reading import HostReading, SoftnetCpu, UdpSocket
from pinner.model.settings.sysctls import SYSCTLS

NET = "Linux: Documentation/admin-guide/sysctl/net.rst"
SNMP = "Linux: Documentation/networking/snmp_counter.rst (TcpExtListenDrops)"
BUFFER = "socket(7): SO_RCVBUF; Linux: include/uapi/linux/snmp.h (UDP_MIB_RCVBUFERRORS)"
BACKLOG, BUDGET = "net.core.netdev_max_backlog", "net.core.netdev_budget"
RMEM_MAX, SOMAXCONN = "net.core.rmem_max", "net.core.somaxconn"
CRITICAL_SQUEEZES = 100.0
"""Squeezes in a second on one CPU."""
BUFFER_ERRORS = ("UdpRcvbufErrors", "Udp6RcvbufErrors")
LISTEN_DROPS = ("TcpExtListenDrops", "TcpExtListenOverflows")

_Pair = tuple[SoftnetCpu, SoftnetCpu]


def _pairs(reading: HostReading) -> Iterator[_Pair]:
    if reading.before is None:
        return
    before = {row.cpu: row for row in reading.before.softnet}
    for row in reading.now.softnet:
        if row.cpu in before:
            yield before[row.cpu], row


def _cpu(pair: _Pair) -> Subject:
    return Subject("cpu", str(pair[1].cpu))


def _softnet_drops(reading: HostReading) -> Iterator[Found]:
    backlog = sysctl_now(reading, BACKLOG) or 1000

    def find(pair: _Pair) -> Iterator[Found]:
        if lost := grown("dropped", pair[0].dropped, pair[1].dropped):
            yield Found(
                _cpu(pair),
                f"CPU {pair[1].cpu} drops packets, because its backlog of {backlog} packets is full",
                (
                    *rate("dropped", lost, reading.seconds, "packets"),
                    Evidence("netdev_max_backlog", backlog, "packets"),
                ),
                planned_sysctl(BACKLOG, backlog, 4 * backlog),
                targets=(SYSCTLS[BACKLOG].target,),
            )

    yield from find_each(_pairs(reading), _cpu, find)


def _squeezed(reading: HostReading) -> Iterator[Found]:
    budget = sysctl_now(reading, BUDGET) or 300

    def find(pair: _Pair) -> Iterator[Found]:
        squeezed = grown("squeezed", pair[0].squeezed, pair[1].squeezed)
        handled = grown("processed", pair[0].processed, pair[1].processed)
        if squeezed / reading.seconds >= 1:
            yield Found(
                _cpu(pair),
                f"CPU {pair[1].cpu} ends its turn with packets left, {squeezed / reading.seconds:.3g} times/s",
                (
                    *rate("squeezed", squeezed, reading.seconds, "times"),
                    Evidence("processed", handled, "packets"),
                    Evidence("netdev_budget", budget, "packets"),
                ),
                planned_sysctl(BUDGET, budget, 2 * budget),
                "critical" if squeezed / reading.seconds > CRITICAL_SQUEEZES else None,
                targets=(SYSCTLS[BUDGET].target,),
            )

    yield from find_each(_pairs(reading), _cpu, find)


def _counters(reading: HostReading, names: tuple[str, ...]) -> dict[str, int]:
    """The counters that grew. Raises NotKnown."""
    if reading.before is None:
        return {}
    grew = {name: growth(reading.before.counters, reading.now.counters, name) for name in names}
    return {name: count for name, count in grew.items() if count}


def _udp(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if lost := _counters(reading, BUFFER_ERRORS):
            most = sysctl_now(reading, RMEM_MAX) or 0
            yield Found(
                host_subject(reading),
                "UDP sockets of the host drop packets, because their receive buffers are full",
                (
                    *(fact for name, count in lost.items() for fact in rate(name, count, reading.seconds, "packets")),
                    Evidence("rmem_max", most, "bytes"),
                ),
                planned_sysctl(RMEM_MAX, most),
                targets=(SYSCTLS[RMEM_MAX].target,),
            )

    yield from find_each([reading], host_subject, find)


def _sockets(reading: HostReading) -> Iterator[Found]:
    if reading.before is None:
        return
    before = {socket.inode: socket for socket in reading.before.sockets}
    for socket in reading.now.sockets:
        # A socket without drops and unread bytes is not in a sample.
        earlier = before.get(socket.inode)
        lost = socket.drops - (earlier.drops if earlier else 0)
        if earlier is not None and lost > 0:
            yield _dropping(socket, lost, reading)


def _dropping(socket: UdpSocket, lost: int, reading: HostReading) -> Found:
    most = sysctl_now(reading, RMEM_MAX) or 0
    return Found(
        Subject("socket", f"udp {socket.address}"),
        f"the UDP socket at {socket.address} of user {socket.user} drops packets",
        (
            *rate("drops", lost, reading.seconds, "packets"),
            Evidence("unread", socket.unread, "bytes"),
            Evidence("rmem_max", most, "bytes"),
        ),
        planned_sysctl(RMEM_MAX, most),
        targets=(SYSCTLS[RMEM_MAX].target,),
    )


def _listen(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if lost := _counters(reading, LISTEN_DROPS):
            queue = sysctl_now(reading, SOMAXCONN) or 0
            yield Found(
                host_subject(reading),
                "services of the host refuse TCP connections, because their queues are full",
                (
                    *(
                        fact
                        for name, count in lost.items()
                        for fact in rate(name, count, reading.seconds, "connections")
                    ),
                    Evidence("somaxconn", queue, "connections"),
                ),
                planned_sysctl(SOMAXCONN, queue, 2 * queue),
                targets=(SYSCTLS[SOMAXCONN].target,),
            )

    yield from find_each([reading], host_subject, find)


def _small_rmem(reading: HostReading) -> Iterator[Found]:
    most = sysctl_now(reading, RMEM_MAX)
    fast = [nic for nic in reading.details.nics if nic.device and nic.is_up]
    if most is not None and most <= 212_992 and fast and reading.snapshot.guests:
        yield Found(
            Subject("sysctl", RMEM_MAX),
            f"no program may ask for a receive buffer of more than {most} bytes",
            (Evidence("rmem_max", most, "bytes"), Evidence("cards", len(fast))),
            planned_sysctl(RMEM_MAX, most),
            targets=(SYSCTLS[RMEM_MAX].target,),
        )


CHECKS = (
    HostCheck(
        code="softnet-drops",
        severity="critical",
        summary="a CPU drops received packets",
        why="the backlog of the CPU is full, and guests behind a bridge or tap lose these packets",
        source=f"{NET} (netdev_max_backlog)",
        find=_softnet_drops,
    ),
    HostCheck(
        code="softnet-squeezed",
        severity="warning",
        summary="a CPU ends its turn of received packets before they end, once a second or more",
        why="the rest waits for the next turn: latency grows, and then packets are lost",
        source=f"{NET} (netdev_budget)",
        find=_squeezed,
        critical=f"more than {CRITICAL_SQUEEZES:g} times/s on one CPU",
    ),
    HostCheck(
        code="udp-buffer-errors",
        severity="critical",
        summary="UDP sockets of the host drop packets",
        why="the reader is slower than the sender, and its buffer is full: overlays, storage and clusters lose data",
        source=BUFFER,
        find=_udp,
    ),
    HostCheck(
        code="udp-socket-drops",
        severity="warning",
        summary="one UDP socket of the host drops packets",
        why="its program asks for a smaller buffer than it needs, or gets no CPU in time",
        source=BUFFER,
        find=_sockets,
    ),
    HostCheck(
        code="udp-small-buffers",
        severity="warning",
        summary="rmem_max has the kernel's default on a host with guests and a card",
        why="one burst of 10 Gb/s fills the default buffer in less than 0.2 ms",
        source=f"{NET} (rmem_max)",
        find=_small_rmem,
    ),
    HostCheck(
        code="tcp-listen-drops",
        severity="warning",
        summary="services of the host drop TCP connections",
        why="the queue of a listening socket is full, and clients wait for a second try",
        source=SNMP,
        find=_listen,
    ),
)
