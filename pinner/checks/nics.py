"""Cards and bridges: rings, queues, coalescing, offloads and multicast. Pure."""

from collections.abc import Iterator
from shlex import quote

from pinner.checks.common import command, each, growth, nic_pairs, rate
from pinner.model.outcome.check import Evidence, Found, HostCheck, Subject
from pinner.model.reading import HostReading, Nic
from pinner.model.settings.coalescing import GATHERING_US, MANY_INTERRUPTS
from pinner.model.settings.queues import fitting_queues
from pinner.model.settings.rings import NO_ROOM

STATISTICS = "Linux: Documentation/networking/statistics.rst"
OFFLOADS = {
    "rx-gro": "gro",
    "tx-generic-segmentation": "gso",
    "tx-tcp-segmentation": "tso",
    "rx-checksum": "rx",
}
"""The kernel's name of a feature, and ethtool's short name of it."""


def _subject(pair: tuple[Nic, Nic]) -> Subject:
    return Subject("nic", pair[1].name)


def _without_room(before: Nic, nic: Nic) -> dict[str, int]:
    """The counters of packets for which the card had no room, and by how much each grew. Raises NotKnown."""
    grew = {name: growth(before.statistics, nic.statistics, name) for name in NO_ROOM}
    grew |= {f"driver's {name}": growth(before.driver, nic.driver, name) for name in nic.driver}
    return {name: count for name, count in grew.items() if count}


def _cards(reading: HostReading) -> Iterator[tuple[Nic, Nic]]:
    return (pair for pair in nic_pairs(reading) if pair[1].device)


def _ring(reading: HostReading) -> Iterator[Found]:
    def find(pair: tuple[Nic, Nic]) -> Iterator[Found]:
        before, nic = pair
        rings = nic.rings
        if rings is None or rings.rx >= rings.rx_max or not (lost := _without_room(before, nic)):
            return
        yield Found(
            _subject(pair),
            f"{nic.name} drops packets, and its receive ring holds {rings.rx} of at most {rings.rx_max}",
            (
                Evidence("rx ring", rings.rx, "packets"),
                Evidence("rx ring maximum", rings.rx_max, "packets"),
                *(fact for name, count in lost.items() for fact in rate(name, count, reading.seconds, "packets")),
            ),
            (command(f"ethtool -G {quote(nic.name)} rx {rings.rx_max}"),),
            # A snapshot, from which a plan is made, has no counters of drivers.
            is_fixable=any(nic.statistics.get(name) for name in NO_ROOM),
        )

    yield from each(_cards(reading), _subject, find)


def _no_room(reading: HostReading) -> Iterator[Found]:
    def find(pair: tuple[Nic, Nic]) -> Iterator[Found]:
        before, nic = pair
        if nic.rings is not None and nic.rings.rx < nic.rings.rx_max:
            return  # nic-small-ring reports it
        if lost := _without_room(before, nic):
            facts = (fact for name, count in lost.items() for fact in rate(name, count, reading.seconds, "packets"))
            yield Found(
                _subject(pair),
                f"{nic.name} drops packets, because the host does not take them as fast as they come",
                tuple(facts),
                (command(f"ethtool -L {quote(nic.name)} combined {_more(nic)}"),) if _more(nic) else (),
            )

    yield from each(_cards(reading), _subject, find)


def _more(nic: Nic) -> int:
    """A larger number of queues that the card can have; 0: none."""
    channels = nic.channels
    return channels.combined_max if channels and channels.combined < channels.combined_max else 0


def _one_queue(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    for nic in reading.now.nics:
        channels = nic.channels
        if not nic.is_up or channels is None or channels.combined != 1:
            continue
        if (wanted := fitting_queues(nic.name, channels.combined_max, topology)) > 1:
            yield Found(
                Subject("nic", nic.name),
                f"{nic.name} uses one of {channels.combined_max} queues, so one CPU handles all its packets",
                (
                    Evidence("queues", 1),
                    Evidence("queues maximum", channels.combined_max),
                    Evidence("online CPUs", len(topology.online)),
                ),
                (command(f"ethtool -L {quote(nic.name)} combined {wanted}"),),
            )


def _coalescing(reading: HostReading) -> Iterator[Found]:
    def find(pair: tuple[Nic, Nic]) -> Iterator[Found]:
        before, nic = pair
        gathers = nic.coalescing
        packets = growth(before.statistics, nic.statistics, "rx_packets") / reading.seconds
        if gathers is None or gathers.is_adaptive or packets < MANY_INTERRUPTS:
            return
        if gathers.rx_usecs == 0 and gathers.rx_frames <= 1:
            yield Found(
                _subject(pair),
                f"{nic.name} receives {packets:.3g} packets/s, and gathers no interrupts",
                (Evidence("packet rate", packets, "1/s"), Evidence("rx-usecs", 0, "us")),
                (
                    command(f"ethtool -C {quote(nic.name)} adaptive-rx on"),
                    command(f"ethtool -C {quote(nic.name)} rx-usecs {GATHERING_US}"),
                ),
                # With rx-frames 1 the card interrupts for each packet, whatever rx-usecs says.
                is_fixable=gathers.rx_frames == 0,
            )

    yield from each(_cards(reading), _subject, find)


def _offloads(reading: HostReading) -> Iterator[Found]:
    for nic in reading.now.nics:
        off = [short for name, short in OFFLOADS.items() if nic.offloads.get(name) is False]
        if nic.is_up and off:
            yield Found(
                Subject("nic", nic.name),
                f"{nic.name} can do {', '.join(off)} in hardware or in batches, and they are off",
                tuple(Evidence(short, "off") for short in off),
                (command(f"ethtool -K {quote(nic.name)} {' '.join(f'{short} on' for short in off)}"),),
            )


def _snooping(reading: HostReading) -> Iterator[Found]:
    for nic in reading.now.nics:
        bridge = nic.bridge
        if bridge and bridge.is_snooping and not bridge.is_querier and len(bridge.ports) > 1:
            path = f"/sys/class/net/{quote(nic.name)}/bridge"
            yield Found(
                Subject("nic", nic.name),
                f"bridge {nic.name} snoops multicast, and sends no queries itself",
                (
                    Evidence("multicast_snooping", 1),
                    Evidence("multicast_querier", 0),
                    Evidence("ports", len(bridge.ports)),
                ),
                (
                    command(f"echo 1 > {path}/multicast_querier"),
                    command(f"echo 0 > {path}/multicast_snooping"),
                ),
            )


def _refused(reading: HostReading) -> Iterator[Found]:
    for nic in reading.now.nics:
        for what, why in nic.refused.items():
            reason = f"the driver of {nic.name} refuses to tell its {what}: {why}"
            yield Found(Subject("nic", nic.name), f"not known, because {reason}", (Evidence("reason", reason),))


CHECKS = (
    HostCheck(
        code="nic-small-ring",
        severity="critical",
        summary="a card drops packets, and its receive ring is below its maximum",
        why="packets that come while the CPU does other work wait in the ring, and a full ring drops them",
        source=STATISTICS,
        find=_ring,
    ),
    HostCheck(
        code="nic-no-room",
        severity="critical",
        summary="a card drops packets, and its receive ring is as large as it can be",
        why="the CPUs that serve the card are too few, too busy or on another node",
        source=STATISTICS,
        find=_no_room,
    ),
    HostCheck(
        code="nic-single-queue",
        severity="warning",
        summary="a card with several queues uses one",
        why="one CPU handles all packets of the card, and it is the limit",
        source="Linux: Documentation/networking/scaling.rst",
        find=_one_queue,
    ),
    HostCheck(
        code="nic-no-coalescing",
        severity="warning",
        summary=f"a card with more than {MANY_INTERRUPTS} packets/s gathers no interrupts",
        why="each packet can cost one interrupt",
        source="ethtool(8): -C",
        find=_coalescing,
    ),
    HostCheck(
        code="nic-offloads-off",
        severity="warning",
        summary="offloads of a card are off",
        why="the CPU then cuts, joins or checks each packet itself",
        source="Linux: Documentation/networking/segmentation-offloads.rst",
        find=_offloads,
    ),
    HostCheck(
        code="bridge-no-querier",
        severity="warning",
        summary="a bridge snoops multicast without a querier of its own",
        why="without any querier on the network, memberships expire after some minutes, and clusters in guests lose "
        "their ring",
        source="Linux: Documentation/networking/bridge.rst (multicast querier)",
        find=_snooping,
    ),
    HostCheck(
        code="nic-not-read",
        severity="unknown",
        summary="a driver refuses to tell about its card",
        why="the checks of rings, queues and offloads need it",
        source="pinner",
        find=_refused,
    ),
)
