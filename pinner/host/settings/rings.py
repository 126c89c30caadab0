"""The receive rings of network cards (struct ethtool_ringparam)."""

from pathlib import Path
from typing import NamedTuple

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import Number
from pinner.model.settings.cards import NO_ROOM, RefusedSetting, RxRing

_GET, _SET = 0x10, 0x11
"""ETHTOOL_GRINGPARAM, ETHTOOL_SRINGPARAM."""


class _Rings(NamedTuple):
    """struct ethtool_ringparam without its command."""

    rx_max: int
    rx_mini_max: int
    rx_jumbo_max: int
    tx_max: int
    rx: int
    rx_mini: int
    rx_jumbo: int
    tx: int


def read_rings(root: Path, refused: list[RefusedSetting]) -> tuple[RxRing, ...] | None:
    if root != cards.LIVE:
        return None
    return tuple(
        RxRing(name, index, rings.rx, rings.rx_max, any(cards.counter(name, counter) for counter in NO_ROOM))
        for name, index, rings in cards.answers("rings", _read, refused)
    )


def size_of(target: Target) -> Number:
    name = cards.name_of(target)
    try:
        return Number(_read(name).rx)
    except OSError as error:
        raise cards.failure(target, "the driver does not tell its size", error) from None


def set_size(target: Target, size: Number) -> None:
    """Other rings stay. Raises ApplyFailed also beyond the maximum."""
    name = cards.name_of(target)
    try:
        now = _read(name)
        if not 0 < size.value <= now.rx_max:
            raise ApplyFailed(str(target), f"asked for {size} packets, and the driver allows 1 to {now.rx_max}")
        cards.ask(name, _SET, now._replace(rx=size.value))
    except OSError as error:
        raise cards.failure(target, f"the driver refuses {size}", error) from None
    if (granted := size_of(target)) != size:
        raise ApplyFailed(str(target), f"asked for {size}, the driver says {granted}", granted=str(granted))


def _read(name: str) -> _Rings:
    return _Rings(*cards.ask(name, _GET, _Rings(*[0] * 8)))


ROW: HostRow[Number] = HostRow(
    lambda _access, target: size_of(target),
    lambda _access, target, state: set_size(target, state),
    lambda facts: read_rings(facts.root, facts.refused),
)
