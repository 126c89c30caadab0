"""Taps: packets that guests lose on the host's side. Pure."""

from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from shlex import quote

from pinner.checks.common import (
    FLAVOR,
    MANY,
    NotKnown,
    SampledNic,
    command,
    find_each,
    grown,
    growth,
    in_xml,
    rate,
    sampled_nics,
)
from pinner.checks.limits import WARN_PERCENT, Waiting, Waits, split
from pinner.model.guest.guest import Guest, Tap
from pinner.model.machine.process import Thread
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import GuestSoftirqs, HostReading, Nic
from pinner.model.snapshot import Snapshot

CRITICAL_SHARE = 0.001
"""Lost packets per packet."""
SHORT_QUEUE = 500
"""Packets. A shorter tx_queue_len loses bursts. The kernel's default is 500 for taps (since Linux 2.6.27) and 1000 for
cards."""
WANTED_QUEUE = 10_000
MOST_QUEUES = 8
WANTED_RING = 1024
"""Packets: the most that QEMU takes for rx_queue_size. Its own is 256."""
MANY_PACKETS = 10_000
"""Packets a second to a guest: one vCPU is enough for fewer."""
ONE_SHARE = 0.9
"""Of the softirqs for received packets."""
_SET = ", with RPS, RFS and interrupts set there: few flows carry them, or few vCPUs may take them"
_STOPPED = ("paused", "suspended", "shutdown", "crashed", "migrating")


def _taps(reading: HostReading) -> dict[str, tuple[Guest, Tap]]:
    """By name."""
    return {tap.name: (guest, tap) for guest in reading.snapshot.guests for tap in guest.taps}


def _drops(reading: HostReading) -> Iterator[Found]:
    taps, waits = _taps(reading), Waits(reading)

    def find(sampled: SampledNic) -> Iterator[Found]:
        (guest, tap), nic = taps[sampled.nic.name], sampled.nic
        lost = growth(sampled.before.statistics, sampled.now.statistics, "tx_dropped")
        if not lost:
            return
        sent = growth(sampled.before.statistics, sampled.now.statistics, "tx_packets")
        share = lost / (lost + sent)
        evidence = (
            *rate("drops", lost, reading.seconds, "packets"),
            Evidence("share of packets", 100 * share, "%"),
            Evidence("tx_queue_len", nic.queue_length, "packets"),
            *_queues(tap, nic),
            Evidence("vCPUs", len(guest.vcpus)),
            Evidence("vhost threads", len(vhosts(guest))),
            *(split(worst) if (worst := _worst(guest, waits)) else ()),
        )
        stopped = "" if sent else ", and takes none"
        if guest.state in _STOPPED:
            stopped = f", while it is {guest.state}"
        if worst and worst.limited >= WARN_PERCENT:
            stopped = f", while a CPU limit stops it {worst.limited:.3g} % of the time"
        yield Found(
            Subject("tap", nic.name),
            f"guest {guest.name} loses {lost / reading.seconds:.3g} packets/s that come from the host{stopped}",
            evidence,
            () if stopped else (*_longer(nic), *_more_queues(guest, tap, nic), *_larger_ring(guest, tap)),
            "critical" if share > CRITICAL_SHARE else "warning",
        )

    sampled = (each for each in sampled_nics(reading) if each.nic.name in taps)
    yield from find_each(sampled, lambda each: Subject("tap", each.nic.name), find)


def _worst(guest: Guest, waits: Waits) -> Waiting | None:
    """The waiting of the threads that take the packets; none where it is not known."""
    threads = (*vhosts(guest), *(vcpu.thread for vcpu in guest.vcpus if vcpu.thread))
    known = []
    for thread in threads:
        with suppress(NotKnown):
            known.append(waits.of(thread.tid))
    return max(known, key=lambda each: (each.limited, each.whole), default=None)


def _longer(nic: Nic) -> Iterator[Remedy]:
    if nic.queue_length < WANTED_QUEUE:
        yield command(f"ip link set dev {quote(nic.name)} txqueuelen {WANTED_QUEUE}")


def _queues(tap: Tap, nic: Nic) -> Iterator[Evidence]:
    """QEMU detaches the queues of a tap that the guest does not use."""
    yield Evidence("queues", nic.tx_queues)
    if tap.queues > nic.tx_queues:
        yield Evidence("queues of the card", tap.queues)


def _more_queues(guest: Guest, tap: Tap, nic: Nic) -> Iterator[Remedy]:
    """A card that is not virtio has one queue."""
    if tap.is_virtio and nic.tx_queues < (queues := min(len(guest.vcpus), MOST_QUEUES)):
        if tap.queues < queues:
            novas = ("hw:vif_multiqueue_enabled=true", FLAVOR)
            yield from _at_start(guest, [tap], f"<driver name='vhost' queues='{queues}'/>", novas)
        yield Remedy(f"ethtool -L DEVICE combined {queues}", f"in guest {guest.name}", "guest owner")


def _larger_ring(guest: Guest, tap: Tap) -> Iterator[Remedy]:
    if tap.is_virtio and tap.rx_queue_size < WANTED_RING:
        novas = (f"rx_queue_size = {WANTED_RING}", "nova.conf [libvirt]")
        yield from _at_start(guest, [tap], f"<driver rx_queue_size='{WANTED_RING}'/>", novas)


def _at_start(guest: Guest, taps: list[Tap], line: str, novas: tuple[str, str]) -> Iterator[Remedy]:
    """Nova writes the XML of its guests anew when they start: ``novas`` is its own line, and where that is."""
    if guest.nova:
        yield Remedy(*novas, "guest restart")
    else:
        yield from (_of_card(guest, tap, line) for tap in taps[:MANY])


def _of_card(guest: Guest, tap: Tap, line: str) -> Remedy:
    return in_xml(guest, line, f", interface {tap.name}")


def vhosts(guest: Guest) -> list[Thread]:
    """Kernel threads before Linux 6.4, and threads of QEMU since."""
    threads = (*guest.vhost_threads, *guest.emulator.threads)
    return [thread for thread in threads if thread.name.startswith("vhost-")]


def _short_queue(reading: HostReading) -> Iterator[Found]:
    taps = _taps(reading)
    for nic in reading.details.nics:
        if nic.name in taps and 0 < nic.queue_length < SHORT_QUEUE:
            yield Found(
                Subject("tap", nic.name),
                f"the queue to guest {taps[nic.name][0].name} holds {nic.queue_length} packets only",
                (Evidence("tx_queue_len", nic.queue_length, "packets"),),
                tuple(_longer(nic)),
            )


def _no_vhost(reading: HostReading) -> Iterator[Found]:
    for guest in reading.snapshot.guests:
        if guest.state != "running" or guest.unread:
            continue
        virtio = [tap for tap in guest.taps if tap.is_virtio]
        if virtio and not vhosts(guest):
            yield Found(
                Subject("guest", guest.name),
                f"no vhost thread serves the taps of guest {guest.name}: QEMU's main loop copies each packet",
                (Evidence("taps", len(virtio)), Evidence("vhost threads", 0)),
                tuple(_of_card(guest, tap, "<driver name='vhost'/>") for tap in virtio[:MANY]),
            )
        if emulated := [tap for tap in guest.taps if not tap.is_virtio]:
            models = ", ".join(sorted({tap.model for tap in emulated}))
            novas = ("hw_vif_model=virtio", "the image in Nova")
            yield Found(
                Subject("guest", guest.name),
                f"QEMU emulates cards of guest {guest.name} ({models}), which have no vhost: its main loop copies each "
                "packet",
                (Evidence("taps", len(emulated)), Evidence("model", models)),
                tuple(_at_start(guest, emulated, "<model type='virtio'/>", novas)),
            )


def _few_queues(reading: HostReading) -> Iterator[Found]:
    nics = {nic.name: nic for nic in reading.details.nics}
    for name, (guest, tap) in _taps(reading).items():
        nic, vcpus = nics.get(name), len(guest.vcpus)
        if nic is not None and tap.is_virtio and vcpus >= 4 and nic.tx_queues == 1:
            uses = f"uses one of the {tap.queues} queues" if tap.queues > 1 else "one queue for all packets"
            yield Found(
                Subject("tap", name),
                f"guest {guest.name} has {vcpus} vCPUs, and {uses} of {name}",
                (*_queues(tap, nic), Evidence("vCPUs", vcpus)),
                tuple(_more_queues(guest, tap, nic)),
            )


def _one_vcpu(reading: HostReading) -> Iterator[Found]:
    if reading.before is None:
        return
    former = {softirqs.guest: softirqs for softirqs in reading.before.softirqs}
    nics = {sampled.nic.name: sampled for sampled in sampled_nics(reading)}
    guests = {guest.uuid: guest for guest in reading.snapshot.guests}

    def find(now: GuestSoftirqs) -> Iterator[Found]:
        guest = guests[now.guest]
        taps = [(tap, nics[tap.name]) for tap in guest.taps if tap.name in nics]
        packets = sum(growth(nic.before.statistics, nic.now.statistics, "tx_packets") for _, nic in taps)
        if packets < MANY_PACKETS * reading.seconds:
            return
        counts = _received(former[now.guest], now)
        vcpu, most = max(counts.items(), key=itemgetter(1))
        if (share := most / max(sum(counts.values()), 1)) < ONE_SHARE:
            return
        rest, remedies = _SET, tuple[Remedy, ...]()
        if options := "".join(f" --with {name}" for name in _unset(reading.snapshot, guest)):
            queues = (line for tap, nic in taps for line in _more_queues(guest, tap, nic.nic))
            rest, remedies = "", (command(f"pinner apply --guest {quote(guest.name)}{options}"), *queues)
        yield Found(
            Subject("guest", guest.name),
            f"vCPU {vcpu} of guest {guest.name} does {100 * share:.3g} % of the work for packets that come in{rest}",
            (
                *rate("packets", packets, reading.seconds, "packets"),
                Evidence("share of NET_RX", 100 * share, "%"),
                Evidence("vCPUs", len(guest.vcpus)),
            ),
            remedies,
        )

    both = (now for now in reading.now.softirqs if now.guest in former and now.guest in guests)
    yield from find_each(both, lambda now: Subject("guest", now.name), find)


def _unset(snapshot: Snapshot, guest: Guest) -> Iterator[str]:
    """Options that change something inside the guest; also where its agent does not tell that."""
    settings = {"guest-rps": snapshot.guest_rps, "guest-rfs": snapshot.guest_rfs, "guest-irqs": snapshot.guest_irqs}
    for name, told in settings.items():
        own = next((each for each in told or () if each.guest == guest.uuid), None)
        if own is None or own.unread or not own.is_set:
            yield name


def _received(before: GuestSoftirqs, now: GuestSoftirqs) -> dict[int, int]:
    """By vCPU. Raises NotKnown."""
    if why := before.unread or now.unread:
        raise NotKnown(why)
    if before.boot != now.boot:
        raise NotKnown("the guest was restarted during the sample")
    counts = {
        vcpu: grown(f"NET_RX of vCPU {vcpu}", before.received.get(vcpu, 0), count)
        for vcpu, count in now.received.items()
    }
    if not any(counts.values()):
        raise NotKnown("the guest's agent tells of no NET_RX")
    return counts


def _gone(reading: HostReading) -> Iterator[Found]:
    if reading.before is None:
        return
    now = {nic.key for nic in reading.now.nics}
    for nic in reading.before.nics:
        if nic.key not in now:
            why = "the interface vanished during the sample"
            yield Found(Subject("nic", nic.name), f"not known, because {why}", (Evidence("reason", why),))


VIRTIO = "libvirt: formatdomain.html, Setting NIC driver-specific options"
CHECKS = (
    HostCheck(
        code="tap-drops",
        severity="warning",
        summary="a guest loses packets at its tap",
        why="the guest or its vhost thread does not take packets as fast as they come, and the tap's queue is full",
        source="Linux: Documentation/networking/statistics.rst (tx_dropped)",
        find=_drops,
        critical=f"more than {100 * CRITICAL_SHARE:g} % of the packets are lost",
    ),
    HostCheck(
        code="tap-short-queue",
        severity="warning",
        summary="the queue of a tap is short",
        why="a burst that is longer than the queue is lost while the vhost thread waits for a CPU",
        source="Linux: Documentation/ABI/testing/sysfs-class-net (tx_queue_len)",
        find=_short_queue,
    ),
    HostCheck(
        code="tap-without-vhost",
        severity="warning",
        summary="a guest's network runs without vhost, or its card is emulated",
        why="QEMU's main loop then copies each packet, and shares its time with all other work of QEMU",
        source=VIRTIO,
        find=_no_vhost,
    ),
    HostCheck(
        code="tap-single-queue",
        severity="warning",
        summary="a guest with four vCPUs or more uses one network queue",
        why="one vCPU and one vhost thread handle all packets, whatever the number of vCPUs",
        source=VIRTIO,
        find=_few_queues,
    ),
    HostCheck(
        code="guest-packets-one-vcpu",
        severity="warning",
        summary="one vCPU of a guest does nearly all work for its packets",
        why="the packets wait for that vCPU, while the others have time",
        source="Linux: Documentation/networking/scaling.rst",
        find=_one_vcpu,
    ),
    HostCheck(
        code="nic-vanished",
        severity="unknown",
        summary="an interface vanished while its counters were sampled",
        why="nothing is known about an interface with one sample",
        source="pinner",
        find=_gone,
    ),
)
