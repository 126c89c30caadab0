"""The receive rings of network cards (struct ethtool_ringparam), read and set by cards.py."""

from pathlib import Path

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.settings.cards import NO_ROOM, RefusedSetting, RxRing
from pinner.model.states import Number

_RX_MAX, _RX = 0, 4
"""The places of rx_max_pending and rx_pending."""
_SIZE = cards.CardNumber(command=0x10, fields=8, place=_RX, noun="size", limited="packets", most=_RX_MAX)
"""ETHTOOL_GRINGPARAM tells; the next number, ETHTOOL_SRINGPARAM, sets."""


def read_rings(root: Path, refused: list[RefusedSetting]) -> tuple[RxRing, ...] | None:
    if root != cards.LIVE:
        return None
    return tuple(
        RxRing(name, index, now[_RX], now[_RX_MAX], any(cards.counter(name, counter) for counter in NO_ROOM))
        for name, index, now in cards.answers("rings", _SIZE.values, refused)
    )


ROW: HostRow[Number] = HostRow(
    lambda _access, target: _SIZE.of(target),
    lambda _access, target, state: _SIZE.set(target, state),
    lambda facts: read_rings(facts.root, facts.refused),
)
