"""How cards gather received packets for one interrupt (struct ethtool_coalesce)."""

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed
from pinner.model.settings.cards import RefusedSetting, RxCoalescing
from pinner.model.snapshot import Snapshot
from pinner.model.states import Coalescing

_USECS, _FRAMES, _ADAPTIVE = 0, 1, 9
"""The places of rx_coalesce_usecs, rx_max_coalesced_frames and use_adaptive_rx_coalesce."""
_GET, _SET, _FIELDS = 0x0E, 0x0F, 22
"""ETHTOOL_GCOALESCE, ETHTOOL_SCOALESCE, and the number of the structure's fields after its command."""
_MOST = 1_000_000
"""More microseconds or packets are no value of a card that works."""

RECEIVED = "rx_packets"
"""The counter of the card (Documentation/networking/statistics.rst)."""


def received(root: Path) -> Mapping[int, int]:
    """Packets by interface index; none for another root than this machine's."""
    if root != cards.LIVE:
        return {}
    counts = ((index, cards.counter(name, RECEIVED)) for name, index in cards.each_card())
    return {index: count for index, count in counts if count is not None}


def with_packet_rates(
    snapshot: Snapshot, before: Mapping[int, int], now: Mapping[int, int], seconds: float
) -> Snapshot:
    """``before`` and ``now``: packets by interface index, ``seconds`` apart. The rate is 0 where one is missing, or
    went back."""
    both = now.keys() & before.keys() if seconds > 0 else ()
    rates = {index: round(max(now[index] - before[index], 0) / seconds, 1) for index in both}
    cards_with_rates = (replace(card, rate=rates.get(card.index, 0.0)) for card in snapshot.coalescing or ())
    return replace(snapshot, coalescing=snapshot.coalescing and tuple(cards_with_rates))


def read_coalescing(root: Path, refused: list[RefusedSetting]) -> tuple[RxCoalescing, ...] | None:
    """Without rates, which with_packet_rates adds. None for another root than this machine's."""
    if root != cards.LIVE:
        return None
    return tuple(
        RxCoalescing(name, index, now[_USECS], now[_FRAMES], bool(now[_ADAPTIVE]))
        for name, index, now in cards.answers("coalescing", _values, refused)
    )


def _values(name: str) -> tuple[int, ...]:
    """Raises the driver's OSError, Busy."""
    return cards.call_driver(name, _GET, (0,) * _FIELDS)


def coalescing_of(target: Target) -> Coalescing:
    name = cards.name_of(target)
    try:
        now = _values(name)
    except OSError as error:
        raise cards.failure(target, "the driver does not tell its coalescing", error) from None
    return Coalescing(now[_USECS], now[_FRAMES], bool(now[_ADAPTIVE]))


def set_coalescing(target: Target, state: Coalescing) -> None:
    """Other fields stay."""
    if not (0 <= state.usecs <= _MOST and 0 <= state.frames <= _MOST):
        raise ApplyFailed(str(target), f"asked for {state}, and 0 to {_MOST} are possible")
    name = cards.name_of(target)
    try:
        _set(name, state)
    except OSError as error:
        raise cards.failure(target, f"the driver refuses {state}", error) from None
    granted = coalescing_of(target)
    if granted.chosen != state.chosen:
        raise ApplyFailed(str(target), f"asked for {state}, the driver says {granted}", granted=str(granted))


def _set(name: str, state: Coalescing) -> None:
    values = list(_values(name))

    def give(*, is_adaptive: bool) -> None:
        values[_USECS], values[_FRAMES], values[_ADAPTIVE] = state.usecs, state.frames, int(is_adaptive)
        cards.call_driver(name, _SET, tuple(values))

    try:
        give(is_adaptive=state.is_adaptive)
    except OSError as error:
        if not state.is_adaptive or error.errno != errno.EINVAL:
            raise
        give(is_adaptive=False)  # ice takes numbers only before it adapts them
        give(is_adaptive=True)


ROW: HostRow[Coalescing] = HostRow(
    lambda _access, target: coalescing_of(target),
    lambda _access, target, state: set_coalescing(target, state),
    lambda facts: read_coalescing(facts.root, facts.refused),
)
