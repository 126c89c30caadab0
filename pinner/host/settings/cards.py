"""Network interfaces by index, and requests to card drivers (SIOCETHTOOL, include/uapi/linux/ethtool.h); not by
pyroute2, whose import takes half a second."""

import array
import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pinner.host.kernel import files
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid, PinnerError
from pinner.model.settings.cards import RefusedSetting, Setting
from pinner.model.states import Number

T = TypeVar("T")
MAX_INTERFACES = 4096
_NAME = re.compile(r"(?!\.{1,2}$)[^/\s\0]{1,15}")
"""dev_valid_name of Linux."""
_INDEX = re.compile(r"\d{1,10}", re.ASCII)
LIVE = Path("/")
FOLDER = Path("/sys/class/net")
_SIOCETHTOOL = 0x8946
_IFREQ = struct.Struct("@16sP16x")
"""The name, and the address of the request's data."""
_ENDED = (errno.ENODEV, errno.ENOENT, errno.ENXIO)


def names(folder: Path) -> list[str]:
    """A name that is no UTF-8, or that no terminal can show, is left out: the kernel allows nearly any bytes."""
    return sorted(filter(str.isprintable, files.names(folder)))[:MAX_INTERFACES]


def named(folder: Path, target: Target, expected: str = "the name and index of an interface") -> str:
    """Linux gives an index to another interface only after a restart, or on purpose. Raises Gone; Invalid, with what
    was ``expected``."""
    name, _, index = target.owner.partition(" ")
    if not _NAME.fullmatch(name):
        raise Invalid(target.kind, str(target)[:80], expected)
    if _INDEX.fullmatch(index):
        for candidate in (name, *names(folder)):
            if files.number(folder / candidate / "ifindex") == int(index):
                return candidate
    raise Gone(str(target))


def each_card() -> Iterator[tuple[str, int]]:
    for name in names(FOLDER):
        index = files.number(FOLDER / name / "ifindex")
        if index is not None and (FOLDER / name / "device").exists():
            yield name, index


def answers(
    setting: Setting, ask_driver: Callable[[str], T], refused: list[RefusedSetting]
) -> Iterator[tuple[str, int, T]]:
    for name, index in each_card():
        try:
            answer = ask_driver(name)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, *_ENDED):
                refused.append(RefusedSetting(name, setting, error.strerror or str(error)))
            continue
        yield name, index, answer


def counter(name: str, statistic: str) -> int | None:
    return files.counts(FOLDER / name / "statistics", (statistic,)).get(statistic)


def is_up(name: str) -> bool:
    """Some drivers do not tell: then it may be up."""
    return files.text(FOLDER / name / "operstate") in (None, "up", "unknown")


def call_driver(name: str, command: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """Reads or sets, as the command says: 32-bit values of its structure in ethtool.h. Raises the driver's OSError,
    Busy."""
    layout = struct.Struct(f"={1 + len(values)}I")
    data = array.array("B", layout.pack(command, *values))
    # The kernel takes the request on any socket; the agent's unit allows this family.
    with closing(_socket()) as control:
        fcntl.ioctl(control, _SIOCETHTOOL, _IFREQ.pack(os.fsencode(name), data.buffer_info()[0]))
    return layout.unpack(data.tobytes())[1:]


def _socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError as error:
        raise files.known(error) from None


def name_of(target: Target) -> str:
    if target.part is not None:
        raise Invalid(target.kind, str(target)[:80], "the name and index of an interface")
    return named(FOLDER, target)


def failure(target: Target, what: str, error: OSError) -> PinnerError:
    """Gone where the card has ended. The kernel also says "no such device" while the driver restarts the card."""
    restarts = ""
    if error.errno in _ENDED:
        try:
            name_of(target)
        except Gone as gone:
            return gone
        restarts = "; does its driver restart the card just now?"
    return ApplyFailed(str(target), f"{what}: {error.strerror}{restarts}")


@dataclass(frozen=True, slots=True)
class CardNumber:
    """A number in a structure of ethtool.h, which the driver tells on one command and takes on the next."""

    command: int
    fields: int
    """How many fields the structure has after its command."""
    place: int
    """The number's place among the fields."""
    noun: str
    limited: str
    """What the driver limits, in words."""
    most: int
    """The place of the driver's maximum; the minimum is 1."""

    def values(self, name: str) -> tuple[int, ...]:
        return call_driver(name, self.command, (0,) * self.fields)

    def of(self, target: Target) -> Number:
        name = name_of(target)
        try:
            return Number(self.values(name)[self.place])
        except OSError as error:
            raise failure(target, f"the driver does not tell its {self.noun}", error) from None

    def set(self, target: Target, number: Number) -> None:
        """Other fields stay. Raises ApplyFailed also beyond the maximum."""
        name = name_of(target)
        try:
            now = self.values(name)
            if not 0 < number.value <= now[self.most]:
                why = f"asked for {number} {self.limited}, and the driver allows 1 to {now[self.most]}"
                raise ApplyFailed(str(target), why)
            call_driver(name, self.command + 1, (*now[: self.place], number.value, *now[self.place + 1 :]))
        except OSError as error:
            raise failure(target, f"the driver refuses {number}", error) from None
        if (granted := self.of(target)) != number:
            raise ApplyFailed(str(target), f"asked for {number}, the driver says {granted}", granted=str(granted))
