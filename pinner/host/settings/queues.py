"""The queues of network cards (struct ethtool_channels), read and set by cards.py."""

from pathlib import Path

from pinner.host.settings import cards
from pinner.host.settings.row import HostRow
from pinner.model.settings.cards import CardQueues, RefusedSetting
from pinner.model.states import Number

_MAX, _COMBINED = 3, 7
"""The places of max_combined and combined_count: queues that receive and send."""
_COUNT = cards.CardNumber(command=0x3C, fields=8, place=_COMBINED, noun="queues", limited="queues", most=_MAX)
"""ETHTOOL_GCHANNELS tells; the next number, ETHTOOL_SCHANNELS, sets."""


def read_queues(root: Path, refused: list[RefusedSetting]) -> tuple[CardQueues, ...] | None:
    if root != cards.LIVE:
        return None
    return tuple(
        CardQueues(name, index, now[_COMBINED], now[_MAX], cards.is_up(name))
        for name, index, now in cards.answers("queues", _COUNT.values, refused)
    )


ROW: HostRow[Number] = HostRow(
    lambda _access, target: _COUNT.of(target),
    lambda _access, target, state: _COUNT.set(target, state),
    lambda facts: read_queues(facts.root, facts.refused),
)
