"""What only checks ask the drivers of cards: offloads, and the drivers' own counters.

pyroute2 speaks the kernel's interface, whose structures for both are long. host/settings asks for rings, queues and
coalescing without it: pyroute2 takes half a second to import, and each snapshot needs these.
"""

import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
MAX_COUNTERS = 256
_WHOLE_CARD = re.compile(r"(?!.*(?:queue|ring|channel|vf|prio|_tc)_?\[?\d)(?!(?:rx|tx|ch|q|p)[_-]?\d)[\w.\- ]+")
"""The names of counters that are no counters of one queue."""
_NO_ROOM = re.compile(r"missed|no_?buf|no_?dma|out_?of_?buf|fifo|no_?desc|discard|drop|alloc", re.IGNORECASE)


def read_offloads(name: str) -> tuple[Mapping[str, bool], str]:
    """The features of a card that can be changed, and whether each is on; why its driver refuses them."""
    return _ask(name, lambda card: _offloads(card.get_features()))


def read_driver_counters(name: str) -> tuple[Mapping[str, int], str]:
    """The driver's counters of packets for which the card had no room; why its driver refuses them."""
    return _ask(name, lambda card: _counters(card.get_statistics()))


def _ask(name: str, question: Callable[[Any], Mapping[str, T]]) -> tuple[Mapping[str, T], str]:
    """The answer of a card's driver, empty without one, and why it refuses it. It refuses no feature that it lacks."""
    # Imported here: it takes half a second, and most commands do not need it.
    from pyroute2.ethtool.ioctl import IoctlEthtool, NotSupportedError  # type: ignore[import-untyped]

    class Card(IoctlEthtool):  # type: ignore[misc]
        """The card. The agent's unit allows no socket of the internet's families, which pyroute2 would open; the kernel
        takes these requests on any socket."""

        def __init__(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.change_ifname(name)

    card = Card()
    try:
        return question(card), ""
    except NotSupportedError:
        return {}, ""
    # pyroute2 raises errors of its own, OSError, and for answers that it cannot decode many others.
    except Exception as error:
        return {}, str(error) or type(error).__name__
    finally:
        card.close()


def _offloads(features: Any) -> Mapping[str, bool]:
    names = (name for name in features.keys() if name)  # noqa: SIM118 - not a mapping
    return {name: bool(features.is_active(name)) for name in names if features.is_available(name)}


def _counters(statistics: Any) -> Mapping[str, int]:
    wanted = ((name, count) for name, count in statistics if _NO_ROOM.search(name) and _WHOLE_CARD.fullmatch(name))
    return dict(sorted(wanted)[:MAX_COUNTERS])
