"""A change of metadata: the guest's metadata names the run's pins before they are made. A pin is pinner's only if both
agree, so a process may be killed in between."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from pinner.apply.ports import Host
from pinner.model.change import AffinityChange, Change, MetadataChange, NamedPins, PartPin, Target, overlaid
from pinner.model.errors import ApplyFailed, Gone, PinnerError
from pinner.model.guest.pins_metadata import restored
from pinner.model.kinds import PINNED
from pinner.model.run.journal import EARLIER_BOOT, Entry, EntryState
from pinner.model.text import pins_text

T = TypeVar("T")

REASON = "the guest's metadata names the pins that are pinner's"


def with_metadata(changes: Iterable[Change], host: Host, *, by_hand: bool = False) -> Iterator[Change]:
    """The changes, and before the first pin of each guest the change of its metadata."""
    changes = tuple(changes)
    first: dict[str, Target] = {}
    pins: dict[str, list[PartPin]] = {}
    for change in changes:
        if isinstance(change, AffinityChange) and change.target.kind in PINNED:
            first.setdefault(change.target.owner, change.target)
            pin = PartPin(change.target.kind, change.target.part, change.after)
            pins.setdefault(change.target.owner, []).append(pin)
    # Side by side: guests that do not answer are waited for together.
    with ThreadPoolExecutor(host.guests_at_once, "metadata") as threads:
        changed = threads.map(lambda guest: _change(first[guest], tuple(pins[guest]), host, by_hand=by_hand), first)
        of_guest = dict(zip(first, changed, strict=True))
    for change in changes:
        if change.target.kind in PINNED and (named := of_guest.pop(change.target.owner, None)):
            yield named
        yield change


def _change(pinned: Target, pins: tuple[PartPin, ...], host: Host, *, by_hand: bool) -> MetadataChange | None:
    target = Target("metadata", pinned.owner, None, pinned.name)
    parts = {pin.key for pin in pins}
    no_pins: tuple[PartPin, ...] = ()
    with suppress(Gone):
        named = _answer(host.guests.named_pins, pinned.owner, NamedPins(None, None))
        former = tuple(pin for pin in _answer(host.guests.pins, pinned.owner, no_pins) if pin.key in parts)
        return MetadataChange(target, named.live or (), named.definition or (), pins, REASON, former, by_hand)
    return None


def _answer(ask: Callable[[str], T], guest: str, default: T) -> T:
    """The default where libvirt does not answer: the step asks again, and only this guest fails. Raises Gone."""
    try:
        return ask(guest)
    except Gone:
        raise
    except PinnerError:
        return default


def is_made(change: MetadataChange, host: Host) -> bool:
    return host.guests.named_pins(change.target.owner).live == overlaid(change.live, change.pins)


class MetadataStep:
    def __init__(self, entry: Entry, change: MetadataChange, host: Host, *, persist: bool, resumed: bool) -> None:
        self.entry = entry
        self.touched = False
        self._change = change
        self._host = host
        self._persist = persist
        self._resumed = resumed

    def make(self) -> None:
        change, host = self._change, self._host
        now = host.guests.named_pins(change.target.owner)
        if now.live is None:
            raise Gone(str(change.target))
        if not self._resumed and (now.live != change.live or (self._persist and now.definition != change.definition)):
            why = f"another program changed it just now: it names {pins_text(now.live)}"
            raise ApplyFailed(str(change.target), why)
        self.touched = True
        wanted = replace(
            now,
            live=overlaid(change.live, change.pins),
            definition=overlaid(change.definition, change.pins) if self._persist else now.definition,
        )
        _write(change.target, wanted, host, persist=self._persist)


def undo(
    change: MetadataChange, host: Host, *, persist: bool, rewrite: bool, defined: bool = False
) -> tuple[EntryState, str]:
    """``rewrite`` writes the names in any case: a dead process's call may still be running. ``defined``: a running
    guest was started from its definition, or from an image that was saved before."""
    try:
        now = host.guests.named_pins(change.target.owner)
        prior = () if now.live is None else _prior_names(change, host, defined=defined)
        wanted = replace(
            now,
            live=None if now.live is None else restored(now.live, prior, change.pins),
            definition=None if now.definition is None else restored(now.definition, change.definition, change.pins),
        )
        if not persist:
            wanted = replace(wanted, definition=now.definition)
        if wanted != now or rewrite:
            _write(change.target, wanted, host, persist=persist)
        if now.saved:
            names = restored(now.saved, change.live, change.pins)
            host.guests.restore_saved(change.target, change.pins, change.former, names)
    except Gone as error:
        return "gone", str(error)
    except PinnerError as error:
        return "stuck", str(error)
    return "undone", ""


def _prior_names(change: MetadataChange, host: Host, *, defined: bool) -> tuple[PartPin, ...]:
    """The live names from before the change. A part of a guest that was restarted since has pin and name of the
    definition; from an image, a part that the killed run had named and not pinned has the earlier ones."""
    if change.live == change.definition:
        return change.live
    pins = host.guests.pins(change.target.owner)
    known = change.definition if defined else overlaid(change.live, (pin for pin in change.definition if pin in pins))
    return overlaid(known, (pin for pin in change.live if pin in pins))


def undo_earlier_boot(change: MetadataChange, host: Host, *, persist: bool) -> tuple[EntryState, str]:
    state, why = undo(change, host, persist=persist, rewrite=False, defined=persist)
    return (state, EARLIER_BOOT if state == "gone" and not persist else why)


def as_started(change: MetadataChange) -> MetadataChange:
    """Of a guest started anew from its definition, whose names it has."""
    return replace(change, live=change.definition)


def keeps_pins(guest: str, host: Host) -> bool:
    """Whether the guest's metadata still names pins, live, defined or saved. The definition counts without ``persist``,
    too: a later run with ``persist`` may have found its masks."""
    try:
        named = host.guests.named_pins(guest)
    except Gone:
        return False
    except PinnerError:
        return True  # not known
    return bool(named.live or named.definition or named.saved)


def is_named(change: AffinityChange, host: Host) -> bool:
    target = change.target
    with suppress(PinnerError):
        return PartPin(target.kind, target.part, change.after) in (host.guests.named_pins(target.owner).live or ())
    return False


def is_saved(guest: str, host: Host) -> bool:
    """Whether the guest (by UUID) has a saved image whose metadata names pins, which the undo of metadata restores."""
    try:
        return bool(host.guests.named_pins(guest).saved)
    except Gone:
        return False
    except PinnerError:
        return True  # not known: the undo of the metadata says so


def joined(first: MetadataChange, later: MetadataChange, *, persist: bool, persisted: bool) -> MetadataChange:
    """``persist``: the later one changed the definition; ``persisted``: so did the first."""
    definition = later.definition if persist and not persisted else first.definition
    known = {pin.key for pin in first.pins}
    former = (*first.former, *(pin for pin in later.former if pin.key not in known))
    return replace(first, pins=(*first.pins, *later.pins), definition=definition, former=former)


def _write(target: Target, wanted: NamedPins, host: Host, *, persist: bool) -> None:
    host.guests.name_pins(target, wanted if persist else replace(wanted, definition=None))
    if (written := host.guests.named_pins(target.owner)) != wanted:
        names = f"{pins_text(written.live or ())} instead of {pins_text(wanted.live or ())}"
        why = f"libvirt has not stored the names: {names}"
        raise ApplyFailed(str(target), why)
