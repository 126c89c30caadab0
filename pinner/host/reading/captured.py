"""The counters and settings of a captured machine: one JSON file."""

from dataclasses import fields, replace
from pathlib import Path

from pinner import codec
from pinner.host.kernel import files
from pinner.host.reading.sampler import take_reading
from pinner.model.errors import Invalid
from pinner.model.reading import HostDetails, HostReading, HostSample, SavedReading, SavedSettings
from pinner.model.snapshot import Snapshot

FILE = Path("counters.json")


def saved(reading: HostReading) -> SavedReading:
    settings = SavedSettings(**{field.name: getattr(reading.snapshot, field.name) for field in fields(SavedSettings)})
    return SavedReading(reading.samples, reading.seconds, reading.details, settings)


def as_file(reading: SavedReading) -> dict[Path, bytes]:
    return {FILE: codec.dump(reading) + b"\n"}


def read_file(root: Path) -> SavedReading | None:
    """None where it was captured without one. Raises Invalid."""
    try:
        text = files.read(str(root / FILE))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid("--root", str(root / FILE), f"a file that can be read ({error.strerror})") from None
    reading = codec.load(SavedReading, text, field=str(root / FILE))
    if len(reading.samples) > 1 and reading.seconds <= 0:
        raise Invalid(f"{root / FILE}.seconds", reading.seconds, "a number of seconds above 0")
    return reading


def captured_reading(root: Path, snapshot: Snapshot) -> HostReading:
    """Without a saved one, one sample of its files. Raises Invalid."""
    reading = read_file(root)
    if reading is None:
        return take_reading(root, snapshot, 0.0)
    return HostReading(snapshot, reading.samples[-2:], reading.seconds, reading.details)


def with_saved_settings(root: Path, snapshot: Snapshot) -> Snapshot:
    """The capture has no files of these settings. Raises Invalid."""
    reading = read_file(root)
    if reading is None or reading.settings is None:
        return replace(snapshot, irqbalance=None)
    settings = {field.name: getattr(reading.settings, field.name) for field in fields(SavedSettings)}
    return replace(snapshot, **{name: value or getattr(snapshot, name) for name, value in settings.items()})


def scrubbed(reading: SavedReading) -> SavedReading:
    cards = {nic.name for nic in reading.details.nics if nic.device}
    details = HostDetails(
        nics=tuple(nic for nic in reading.details.nics if nic.device),
        settings=reading.details.settings,
        are_of_root=reading.details.are_of_root,
    )
    return replace(
        reading,
        samples=tuple(_without_names(sample, cards) for sample in reading.samples),
        details=details,
        settings=_without_arguments(reading.settings, cards) if reading.settings else None,
    )


def _without_names(sample: HostSample, cards: set[str]) -> HostSample:
    return replace(
        sample,
        nics=tuple(nic for nic in sample.nics if nic.name in cards),
        sockets=(),
        softirqs=(),
        throttled={},
        cgroups={},
        unread={},
    )


def _without_arguments(settings: SavedSettings, cards: set[str]) -> SavedSettings:
    irqs, rps, irqbalance = settings.irqs, settings.rps, settings.irqbalance
    return replace(
        settings,
        irqs=irqs and replace(irqs, balancers=tuple(replace(each, arguments="") for each in irqs.balancers)),
        rps=rps and tuple(queue for queue in rps if queue.interface in cards),
        irqbalance=irqbalance and tuple(replace(each, arguments="") for each in irqbalance),
    )
