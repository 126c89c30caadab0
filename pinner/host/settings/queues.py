"""The queues of network cards (struct ethtool_channels)."""

from pathlib import Path
from typing import NamedTuple

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import Number
from pinner.model.settings.cards import CardQueues, RefusedSetting

_GET, _SET = 0x3C, 0x3D
"""ETHTOOL_GCHANNELS, ETHTOOL_SCHANNELS."""


class _Channels(NamedTuple):
    """struct ethtool_channels without its command."""

    rx_max: int
    tx_max: int
    other_max: int
    combined_max: int
    rx: int
    tx: int
    other: int
    combined: int


def read_queues(root: Path, refused: list[RefusedSetting]) -> tuple[CardQueues, ...] | None:
    if root != cards.LIVE:
        return None
    return tuple(
        CardQueues(name, index, now.combined, now.combined_max, cards.is_up(name))
        for name, index, now in cards.answers("queues", _read, refused)
    )


def count_of(target: Target) -> Number:
    name = cards.name_of(target)
    try:
        return Number(_read(name).combined)
    except OSError as error:
        raise cards.failure(target, "the driver does not tell its queues", error) from None


def set_count(target: Target, count: Number) -> None:
    """Sets the queues that receive and send. Raises ApplyFailed also beyond the maximum."""
    name = cards.name_of(target)
    try:
        now = _read(name)
        if not 0 < count.value <= now.combined_max:
            raise ApplyFailed(str(target), f"asked for {count} queues, and the driver allows 1 to {now.combined_max}")
        cards.ask(name, _SET, now._replace(combined=count.value))
    except OSError as error:
        raise cards.failure(target, f"the driver refuses {count}", error) from None
    if (granted := count_of(target)) != count:
        raise ApplyFailed(str(target), f"asked for {count}, the driver says {granted}", granted=str(granted))


def _read(name: str) -> _Channels:
    return _Channels(*cards.ask(name, _GET, _Channels(*[0] * 8)))


ROW: HostRow[Number] = HostRow(
    lambda _access, target: count_of(target),
    lambda _access, target, state: set_count(target, state),
    lambda facts: read_queues(facts.root, facts.refused),
)
