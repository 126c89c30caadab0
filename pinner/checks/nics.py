"""Cards and bridges: rings, queues, coalescing, offloads and multicast. Pure."""

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import TypeVar

from pinner.checks.common import SampledNic, command, find_each, growth, rates, sampled_nics
from pinner.model.outcome.check import Evidence, Found, HostCheck, Subject
from pinner.model.reading import HostReading
from pinner.model.settings.cards import (
    ADAPTIVE,
    FIXED_US,
    GATHERING_US,
    MANY_INTERRUPTS,
    NO_ROOM,
    CardQueues,
    RxCoalescing,
    RxRing,
    fitting_queues,
)

CardSetting = TypeVar("CardSetting", RxRing, CardQueues, RxCoalescing)
STATISTICS = "Linux: Documentation/networking/statistics.rst"
OFFLOADS = {
    "rx-gro": "gro",
    "tx-generic-segmentation": "gso",
    "tx-tcp-segmentation": "tso",
    "rx-checksum": "rx",
}
"""The kernel's and ethtool's name of a feature."""


def _without_room(card: SampledNic) -> dict[str, int]:
    before, now = card.before, card.now
    grew = {name: growth(before.statistics, now.statistics, name) for name in NO_ROOM}
    grew |= {f"driver's {name}": growth(before.driver, now.driver, name) for name in now.driver}
    return {name: count for name, count in grew.items() if count}


def _cards(reading: HostReading) -> Iterator[SampledNic]:
    return (nic for nic in sampled_nics(reading) if nic.nic.device)


def _by_key(settings: Iterable[CardSetting] | None) -> dict[int | str, CardSetting]:
    return {setting.index or setting.interface: setting for setting in settings or ()}


def _ring(reading: HostReading) -> Iterator[Found]:
    rings = _by_key(reading.snapshot.rings)

    def find(card: SampledNic) -> Iterator[Found]:
        name, ring = card.nic.name, rings.get(card.nic.key)
        if ring is None or ring.size >= ring.most or not (lost := _without_room(card)):
            return
        yield Found(
            card.subject,
            f"{name} drops packets, and its receive ring holds {ring.size} of at most {ring.most}",
            (
                Evidence("rx ring", ring.size, "packets"),
                Evidence("rx ring maximum", ring.most, "packets"),
                *rates(lost, reading.seconds, "packets"),
            ),
            (command(f"ethtool -G {quote(name)} rx {ring.most}"),),
            targets=(ring.target,),
        )

    yield from find_each(_cards(reading), lambda card: card.subject, find)


def _no_room(reading: HostReading) -> Iterator[Found]:
    rings, queues = _by_key(reading.snapshot.rings), _by_key(reading.snapshot.queues)

    def find(card: SampledNic) -> Iterator[Found]:
        ring, most = rings.get(card.nic.key), _more(queues.get(card.nic.key))
        if ring is not None and ring.size < ring.most:
            return  # nic-small-ring reports it
        if lost := _without_room(card):
            yield Found(
                card.subject,
                f"{card.nic.name} drops packets, because the host does not take them as fast as they come",
                rates(lost, reading.seconds, "packets"),
                (command(f"ethtool -L {quote(card.nic.name)} combined {most}"),) if most else (),
            )

    yield from find_each(_cards(reading), lambda card: card.subject, find)


def _more(queues: CardQueues | None) -> int:
    return queues.most if queues and queues.count < queues.most else 0


def _one_queue(reading: HostReading) -> Iterator[Found]:
    topology = reading.snapshot.topology
    for card in reading.snapshot.queues or ():
        if not card.is_up or card.count != 1:
            continue
        if (wanted := fitting_queues(card.interface, card.most, topology)) > 1:
            yield Found(
                Subject("nic", card.interface),
                f"{card.interface} uses one of {card.most} queues, so one CPU handles all its packets",
                (
                    Evidence("queues", 1),
                    Evidence("queues maximum", card.most),
                    Evidence("online CPUs", len(topology.online)),
                ),
                (command(f"ethtool -L {quote(card.interface)} combined {wanted}"),),
                targets=(card.target,),
            )


def _coalescing(reading: HostReading) -> Iterator[Found]:
    coalescing = _by_key(reading.snapshot.coalescing)

    def find(card: SampledNic) -> Iterator[Found]:
        name, gathers = card.nic.name, coalescing.get(card.nic.key)
        growth(card.before.statistics, card.now.statistics, "rx_packets")  # a counter that went back gives no rate
        if gathers is None or gathers.is_adaptive or gathers.rate < MANY_INTERRUPTS:
            return
        if gathers.usecs == 0 and gathers.frames <= 1:
            yield Found(
                card.subject,
                f"{name} receives {gathers.rate:.3g} packets/s, and gathers no interrupts",
                (Evidence("packet rate", gathers.rate, "1/s"), Evidence("rx-usecs", 0, "us")),
                (
                    command(f"ethtool -C {quote(name)} adaptive-rx on"),
                    command(f"ethtool -C {quote(name)} rx-usecs {GATHERING_US}"),
                ),
                targets=(gathers.target,),
            )

    yield from find_each(_cards(reading), lambda card: card.subject, find)


def _adaptive(reading: HostReading) -> Iterator[Found]:
    coalescing, rings = _by_key(reading.snapshot.coalescing), _by_key(reading.snapshot.rings)

    def find(card: SampledNic) -> Iterator[Found]:
        name, ring, gathers = card.nic.name, rings.get(card.nic.key), coalescing.get(card.nic.key)
        if gathers is None or not gathers.is_adaptive or gathers.rate < MANY_INTERRUPTS:
            return
        if ring is not None and ring.size < ring.most:
            return  # nic-small-ring reports it
        if lost := _without_room(card):
            yield Found(
                card.subject,
                f"{name} receives {gathers.rate:.3g} packets/s and drops some while its driver adapts the interrupts",
                (
                    Evidence("packet rate", gathers.rate, "1/s"),
                    *rates(lost, reading.seconds, "packets"),
                ),
                (command(f"ethtool -C {quote(name)} adaptive-rx off {gathers.fixed}"),),
                targets=(gathers.target,),
            )

    yield from find_each(_cards(reading), lambda card: card.subject, find)


def _offloads(reading: HostReading) -> Iterator[Found]:
    for nic in reading.details.nics:
        off = [short for name, short in OFFLOADS.items() if nic.offloads.get(name) is False]
        if nic.is_up and off:
            yield Found(
                Subject("nic", nic.name),
                f"{nic.name} can do {', '.join(off)} in hardware or in batches, and they are off",
                tuple(Evidence(short, "off") for short in off),
                (command(f"ethtool -K {quote(nic.name)} {' '.join(f'{short} on' for short in off)}"),),
            )


def _snooping(reading: HostReading) -> Iterator[Found]:
    for nic in reading.details.nics:
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
    refusals: list[tuple[str, str, str]] = []
    refusals += [(card.interface, card.setting, card.why) for card in reading.snapshot.refused]
    refusals += [(nic.name, "offloads", nic.refused) for nic in reading.details.nics if nic.refused]
    refusals += [(nic.name, "statistics", nic.driver_refusal) for nic in reading.now.nics if nic.driver_refusal]
    for name, what, why in refusals:
        reason = f"the driver of {name} refuses to tell its {what}: {why}"
        yield Found(Subject("nic", name), f"not known, because {reason}", (Evidence("reason", reason),))


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
        code=ADAPTIVE,
        severity="warning",
        summary=f"a card with more than {MANY_INTERRUPTS} packets/s drops some while its driver adapts the interrupts",
        why=f"an adapted time can grow until the ring is full; a fixed one of {FIXED_US} us stays short",
        source="ethtool(8): -C",
        find=_adaptive,
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
