"""A setting that the driver of a network card refuses to tell."""

from dataclasses import dataclass
from typing import Literal

Setting = Literal["rings", "queues", "coalescing"]


@dataclass(frozen=True, slots=True)
class RefusedSetting:
    """A setting of a network card that is not known. A driver refuses nothing that it lacks."""

    interface: str
    """The name of the card's interface."""
    setting: Setting
    """The setting."""
    why: str
    """The driver's error."""
