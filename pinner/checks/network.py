"""The host's network stack: softnet and TCP. Pure."""

from collections.abc import Iterator

from pinner.checks import udp
from pinner.checks.common import (
    find_each,
    grown,
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
from pinner.model.outcome.check import Evidence, Found, HostCheck, Subject
from pinner.model.reading import HostReading, SoftnetCpu
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.text import listed

NET = "Linux: Documentation/admin-guide/sysctl/net.rst"
SNMP = "Linux: Documentation/networking/snmp_counter.rst (TcpExtListenDrops)"
BACKLOG, BUDGET = "net.core.netdev_max_backlog", "net.core.netdev_budget"
SOMAXCONN = "net.core.somaxconn"
MOST_BACKLOG, MOST_BUDGET = 64_000, 4800
"""Packets. More are no burst: the CPU is too slow for them."""
MOST_CONNECTIONS = 65_535
"""Older kernels refuse more (net/core/sysctl_net_core.c)."""
BUDGET_TIME, MOST_TIME = "net.core.netdev_budget_usecs", 8000
CRITICAL_SQUEEZES = 100.0
"""Squeezes in a second on one CPU."""
OVERFLOWS = "TcpExtListenOverflows"
LISTEN_DROPS = ("TcpExtListenDrops", OVERFLOWS)

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
                planned_sysctl(BACKLOG, backlog, _more(backlog, 4, MOST_BACKLOG)),
                targets=(SYSCTLS[BACKLOG].target,),
            )

    yield from find_each(_pairs(reading), _cpu, find)


def _squeezed(reading: HostReading) -> Iterator[Found]:
    budget = sysctl_now(reading, BUDGET) or 300
    is_planned = SYSCTLS[BUDGET].is_good(budget)
    time = number(reading.details.settings, f"proc/sys/{BUDGET_TIME.replace('.', '/')}")
    times = () if time is None or time > MOST_TIME else (time,)

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
                    *(Evidence("netdev_budget_usecs", time, "us") for time in times),
                ),
                (
                    *planned_sysctl(BUDGET, budget, _more(budget, 2, MOST_BUDGET)),
                    # A turn ends by its time, too: the counter has both.
                    *(line for time in times if is_planned for line in sysctl(BUDGET_TIME, 2 * time)),
                ),
                "critical" if squeezed / reading.seconds > CRITICAL_SQUEEZES else None,
                targets=(SYSCTLS[BUDGET].target,),
            )

    yield from find_each(_pairs(reading), _cpu, find)


def _more(now: int, times: int, most: int) -> int | None:
    return min(times * now, most) if now < most else None


def _listen(reading: HostReading) -> Iterator[Found]:
    def find(_: HostReading) -> Iterator[Found]:
        if lost := grown_counters(reading, LISTEN_DROPS):
            queue = sysctl_now(reading, SOMAXCONN) or 0
            # The kernel also drops connections without memory for them.
            is_full = OVERFLOWS in lost or OVERFLOWS not in reading.now.counters
            stopped = [
                f"{unit} {percent:.3g} % of the time"
                for unit, percent in of_services(reading).stopped.items()
                if percent >= WARN_PERCENT
            ]
            yield Found(
                host_subject(reading),
                "services of the host refuse TCP connections, "
                f"{'because their queues are full' if is_full else 'and no queue of theirs was full'}",
                (
                    *rates(lost, reading.seconds, "connections"),
                    Evidence("somaxconn", queue, "connections"),
                    *([Evidence("stopped by CPU limits", listed(stopped, 3))] if stopped else ()),
                ),
                planned_sysctl(SOMAXCONN, queue, _more(queue, 2, MOST_CONNECTIONS)) if is_full else (),
                targets=(SYSCTLS[SOMAXCONN].target,) if is_full else (),
            )

    yield from find_each([reading], host_subject, find)


RETRANSMITS = ("TcpRetransSegs", "TcpExtTCPSynRetrans", "TcpOutSegs", "TcpExtTCPDSACKRecv")
RETRANSMITTED, MANY_RETRANSMITTED = 1.0, 5.0
"""Per cent of the segments."""


def _retransmits(reading: HostReading) -> Iterator[Found]:
    """Without those of connections that do not come about: the other side may be away."""

    def find(_: HostReading) -> Iterator[Found]:
        grew = grown_counters(reading, RETRANSMITS)
        again, first, sent, needless = (grew.get(name, 0) for name in RETRANSMITS)
        lost = again - first
        share = 100 * lost / sent if sent else 0.0
        if share >= RETRANSMITTED and lost / reading.seconds >= 1:
            yield Found(
                host_subject(reading),
                f"services of the host send {share:.3g} % of their TCP segments again",
                (
                    *rate("segments sent again", lost, reading.seconds, "segments"),
                    Evidence("share", share, "%"),
                    Evidence("needless", needless, "segments"),
                ),
                severity="critical" if share >= MANY_RETRANSMITTED else None,
            )

    yield from find_each([reading], host_subject, find)


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
        code="tcp-listen-drops",
        severity="warning",
        summary="services of the host drop TCP connections",
        why="the queue of a listening socket is full, and clients wait for a second try",
        source=SNMP,
        find=_listen,
    ),
    HostCheck(
        code="tcp-retransmits",
        severity="warning",
        summary=f"services of the host send {RETRANSMITTED:g} % or more of their TCP segments again",
        why="each lost segment delays its stream by a round trip or more: databases, storage and message queues wait",
        source="Linux: Documentation/networking/snmp_counter.rst (TcpRetransSegs, TcpExtTCPSynRetrans)",
        find=_retransmits,
        critical=f"{MANY_RETRANSMITTED:g} % or more",
    ),
    *udp.CHECKS,
)
