"""How cards gather received packets for one interrupt (struct ethtool_coalesce)."""

from collections.abc import Mapping
from pathlib import Path

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import Number
from pinner.model.settings.cards import RefusedSetting, RxCoalescing

_GET, _SET = 0x0E, 0x0F
"""ETHTOOL_GCOALESCE, ETHTOOL_SCOALESCE."""
_FIELDS = 22
"""The number of fields after its command."""
_USECS, _FRAMES, _ADAPTIVE = 0, 1, 9
"""The positions of rx_coalesce_usecs, rx_max_coalesced_frames and use_adaptive_rx_coalesce among these fields."""
_MAX_US = 1_000_000
"""More are no value of a card that works."""


def received(root: Path) -> Mapping[int, int]:
    """Packets by interface index; none for another root than this machine's."""
    if root != cards.LIVE:
        return {}
    counts = ((index, cards.counter(name, "rx_packets")) for name, index in cards.each_card())
    return {index: count for index, count in counts if count is not None}


def read_coalescing(
    root: Path, before: Mapping[int, int], seconds: float, refused: list[RefusedSetting]
) -> tuple[RxCoalescing, ...] | None:
    """None for another root than this machine's. ``before``: the packets received ``seconds`` ago."""
    if root != cards.LIVE:
        return None
    coalescing = []
    for name, index, now in cards.answers("coalescing", _read, refused):
        grown = (cards.counter(name, "rx_packets") or 0) - before[index] if index in before else 0
        rate = grown / seconds if grown > 0 and seconds > 0 else 0.0
        coalescing.append(RxCoalescing(name, index, now[_USECS], now[_FRAMES], bool(now[_ADAPTIVE]), round(rate, 1)))
    return tuple(coalescing)


def usecs_of(target: Target) -> Number:
    """Raises Gone, and ApplyFailed where the driver does not answer."""
    name = cards.name_of(target)
    try:
        return Number(_read(name)[_USECS])
    except OSError as error:
        raise cards.failure(target, "the driver does not tell its coalescing", error) from None


def set_usecs(target: Target, usecs: Number) -> None:
    """Other values stay. Raises Gone, ApplyFailed."""
    name = cards.name_of(target)
    if not 0 <= usecs.value <= _MAX_US:
        raise ApplyFailed(str(target), f"asked for {usecs} us, and 0 to {_MAX_US} are possible")
    try:
        now = _read(name)
        cards.ask(name, _SET, (usecs.value, *now[1:]))
    except OSError as error:
        raise cards.failure(target, f"the driver refuses {usecs} us", error) from None
    if (granted := usecs_of(target)) != usecs:
        raise ApplyFailed(str(target), f"asked for {usecs} us, the driver says {granted}", granted=str(granted))


def _read(name: str) -> tuple[int, ...]:
    return cards.ask(name, _GET, (0,) * _FIELDS)


ROW: HostRow[Number] = HostRow(
    lambda _access, target: usecs_of(target),
    lambda _access, target, state: set_usecs(target, state),
    lambda facts: read_coalescing(facts.root, facts.packets, facts.elapsed(), facts.refused),
)
