"""How cards gather received packets for one interrupt (struct ethtool_coalesce)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import Number
from pinner.model.settings.cards import RefusedSetting, RxCoalescing
from pinner.model.snapshot import Snapshot

_USECS, _FRAMES, _ADAPTIVE = 0, 1, 9
"""The places of rx_coalesce_usecs, rx_max_coalesced_frames and use_adaptive_rx_coalesce."""
_TIME = cards.CardNumber(command=0x0E, fields=22, place=_USECS, noun="coalescing", unit=" us")
"""ETHTOOL_GCOALESCE, ETHTOOL_SCOALESCE."""
_MAX_US = 1_000_000
"""More are no value of a card that works."""

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
        for name, index, now in cards.answers("coalescing", _TIME.values, refused)
    )


def set_usecs(target: Target, usecs: Number) -> None:
    if not 0 <= usecs.value <= _MAX_US:
        raise ApplyFailed(str(target), f"asked for {usecs} us, and 0 to {_MAX_US} are possible")
    _TIME.set(target, usecs)


ROW: HostRow[Number] = HostRow(
    lambda _access, target: _TIME.of(target),
    lambda _access, target, state: set_usecs(target, state),
    lambda facts: read_coalescing(facts.root, facts.refused),
)
