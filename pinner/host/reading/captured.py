"""The counters of a captured machine: two samples in one file, because files of /proc show one moment only."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pinner import codec
from pinner.host.kernel import files
from pinner.host.reading.sampler import take_reading
from pinner.host.settings import sysctls
from pinner.model.errors import Invalid
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.reading import HostReading, HostSample, Nic, SavedSamples
from pinner.model.settings.coalescing import RxCoalescing
from pinner.model.settings.cpu_weight import SLICE
from pinner.model.settings.queues import CardQueues
from pinner.model.settings.rings import NO_ROOM, RxRing
from pinner.model.settings.rps import RpsQueue
from pinner.model.snapshot import Snapshot

FILE = Path("counters.json")


def as_file(samples: SavedSamples) -> dict[Path, bytes]:
    """The file of a capture that holds the samples."""
    return {FILE: codec.dump(samples) + b"\n"}


def samples(root: Path) -> SavedSamples | None:
    """The samples of the machine captured below ``root``; None where it was captured without them. Raises Invalid."""
    try:
        text = files.read(str(root / FILE))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid("--root", str(root / FILE), f"a file that can be read ({error.strerror})") from None
    saved = codec.load(SavedSamples, text, field=str(root / FILE))
    if len(saved.samples) > 1 and not 0 < saved.seconds < math.inf:
        raise Invalid(f"{root / FILE}.seconds", saved.seconds, "a number of seconds above 0")
    return saved


def _last_sample(root: Path) -> HostSample | None:
    saved = samples(root)
    return saved.samples[-1] if saved and saved.samples else None


def captured_reading(root: Path, snapshot: Snapshot) -> HostReading:
    """The reading of a captured machine; without saved samples, one sample of its files. Raises Invalid."""
    saved = samples(root)
    if saved is None:
        return take_reading(root, snapshot, 0.0)
    return HostReading(snapshot, saved.samples[-2:], saved.seconds)


def captured_irqs(root: Path) -> DeviceIrqs | None:
    """The interrupts of a captured machine, from its last sample; None where it was captured without samples. Raises
    Invalid."""
    last = _last_sample(root)
    if last is None:
        return None
    found = (
        DeviceIrq(irq.number, irq.name, irq.device, irq.cpus, irq.effective, irq.managed)
        for irq in last.irqs
        if irq.device and irq.name
    )
    return DeviceIrqs(tuple(found), last.balancers)


def captured_irqbalance(root: Path) -> tuple[Balancer, ...] | None:
    """irqbalance on a captured machine, from its last sample; None where it was captured without samples. Raises
    Invalid."""
    last = _last_sample(root)
    return last.balancers if last else None


def captured_rps(root: Path) -> tuple[RpsQueue, ...] | None:
    """The receive queues of a captured machine, from its last sample; None where it was captured without samples.
    Their interfaces have no known index. Raises Invalid."""
    last = _last_sample(root)
    if last is None:
        return None
    return tuple(
        RpsQueue(nic.name, 0, number, queue.rps) for nic in last.nics for number, queue in enumerate(nic.rx_queues)
    )


def captured_rings(root: Path) -> tuple[RxRing, ...] | None:
    """The receive rings of a captured machine, from its last sample; None where it was captured without samples. Their
    interfaces have no known index. Raises Invalid."""
    last = _last_sample(root)
    if last is None:
        return None
    return tuple(
        RxRing(nic.name, 0, nic.rings.rx, nic.rings.rx_max, any(nic.statistics.get(name) for name in NO_ROOM))
        for nic in last.nics
        if nic.device and nic.rings is not None
    )


def captured_queues(root: Path) -> tuple[CardQueues, ...] | None:
    """The queues of the cards of a captured machine, from its last sample; None where it was captured without samples.
    Their interfaces have no known index. Raises Invalid."""
    last = _last_sample(root)
    if last is None:
        return None
    return tuple(
        CardQueues(nic.name, 0, nic.channels.combined, nic.channels.combined_max, nic.is_up)
        for nic in last.nics
        if nic.device and nic.channels is not None
    )


def captured_coalescing(root: Path) -> tuple[RxCoalescing, ...] | None:
    """The coalescing of the cards of a captured machine, from its last two samples; None where it was captured without
    samples. Their interfaces have no known index. Raises Invalid."""
    saved = samples(root)
    if saved is None or not saved.samples:
        return None
    first = {nic.name: nic.statistics for nic in saved.samples[-2].nics} if len(saved.samples) > 1 else {}

    def rate(nic: Nic) -> float:
        now, before = nic.statistics.get("rx_packets", 0), first.get(nic.name, nic.statistics).get("rx_packets", 0)
        return max(now - before, 0) / saved.seconds if saved and saved.seconds else 0.0

    return tuple(
        RxCoalescing(nic.name, 0, found.rx_usecs, found.rx_frames, found.is_adaptive, round(rate(nic), 1))
        for nic in saved.samples[-1].nics
        if nic.device and (found := nic.coalescing) is not None
    )


def captured_sysctls(root: Path) -> Mapping[str, int] | None:
    """The sysctls of a captured machine that a plan may change, from its last sample; None where it was captured
    without samples. Raises Invalid."""
    last = _last_sample(root)
    return sysctls.parsed(lambda path: last.settings.get(path, "")) if last else None


def captured_cpu_weights(root: Path) -> Mapping[str, int] | None:
    """The CPU weight of the slice of the guests of a captured machine, from its last sample; None where it has none.
    Raises Invalid."""
    last = _last_sample(root)
    return {SLICE: last.weights[SLICE]} if last and SLICE in last.weights else None


def scrubbed(saved: SavedSamples) -> SavedSamples:
    """The samples without names that identify guests, programs or addresses.

    Taps and other virtual interfaces, sockets, cgroups, arguments and folders are left out.
    """
    return replace(saved, samples=tuple(map(_scrubbed, saved.samples)))


def _scrubbed(sample: HostSample) -> HostSample:
    def without_names(balancer: Balancer) -> Balancer:
        return replace(balancer, arguments="")

    def without_ports(nic: Nic) -> Nic:
        return replace(nic, master="")

    nothing: Mapping[str, int] = {}
    return replace(
        sample,
        nics=tuple(without_ports(nic) for nic in sample.nics if nic.device),
        sockets=(),
        weights=nothing,
        storage=(),
        balancers=tuple(map(without_names, sample.balancers)),
        unread={},
    )
