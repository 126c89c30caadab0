"""What ethtool's interface tells about a card: rings, queues, coalescing, offloads, and the driver's counters.

pyroute2 speaks the kernel's interface; no text of a program is parsed. Every request can be refused by the driver.
"""

import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pinner.model.reading import Channels, Coalescing, Nic, Rings

T = TypeVar("T")
MAX_COUNTERS = 256
_WHOLE_CARD = re.compile(r"(?!.*(?:queue|ring|channel|vf|prio|_tc)_?\[?\d)(?!(?:rx|tx|ch|q|p)[_-]?\d)[\w.\- ]+")
"""The names of counters that are no counters of one queue."""
_NO_ROOM = re.compile(r"missed|no_?buf|no_?dma|out_?of_?buf|fifo|no_?desc|discard|drop|alloc", re.IGNORECASE)


def with_details(nic: Nic) -> Nic:
    """The interface with what its driver tells. A feature that the driver lacks stays empty."""
    # Imported here: it takes half a second, and most commands do not need it.
    from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError  # type: ignore[import-untyped]

    class Card(IoctlEthtool):  # type: ignore[misc]
        """The card. The agent's unit allows no socket of the internet's families, which pyroute2 would open; the kernel
        takes these requests on any socket."""

        def __init__(self, name: str) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.change_ifname(name)

    refused: dict[str, str] = {}
    card = Card(nic.name)
    try:

        def ask(what: str, question: Callable[[], T]) -> T | None:
            try:
                return question()
            except NotSupportedError:
                return None
            # pyroute2 raises errors of its own, OSError, and for answers that it cannot decode many others.
            except Exception as error:
                refused[what] = str(error) or type(error).__name__
                return None

        return replace(
            nic,
            rings=ask("rings", lambda: _rings(card.get_rings())),
            channels=ask("channels", lambda: _channels(card.get_channels())),
            coalescing=ask("coalescing", lambda: _coalescing(card.get_coalesce())),
            offloads=ask("offloads", lambda: _offloads(card.get_features())) or {},
            driver=ask("statistics", lambda: _statistics(card.get_statistics())) or {},
            refused=refused,
        )
    finally:
        card.close()


def _rings(found: Any) -> Rings:
    return Rings(found.rx, found.rx_max, found.tx, found.tx_max)


def _channels(found: Any) -> Channels:
    return Channels(
        found.combined_count, found.max_combined, found.rx_count, found.max_rx, found.tx_count, found.max_tx
    )


def _coalescing(found: Any) -> Coalescing:
    return Coalescing(found.rx_coalesce_usecs, found.rx_max_coalesced_frames, bool(found.use_adaptive_rx_coalesce))


def _offloads(found: Any) -> Mapping[str, bool]:
    names = (name for name in found.keys() if name)  # noqa: SIM118 - not a mapping
    return {name: bool(found.is_active(name)) for name in names if found.is_available(name)}


def _statistics(found: Any) -> Mapping[str, int]:
    """The counters of packets for which the card had no room."""
    wanted = ((name, count) for name, count in found if _NO_ROOM.search(name) and _WHOLE_CARD.fullmatch(name))
    return dict(sorted(wanted)[:MAX_COUNTERS])
