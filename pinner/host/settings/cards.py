"""Network interfaces by their index, and requests to the drivers of network cards (SIOCETHTOOL).

Source: the kernel's include/uapi/linux/ethtool.h. pyroute2 could ask, too, but takes half a second to import, and each
snapshot of a host asks them.
"""

import array
import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from pinner.host.kernel import files
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid, PinnerError
from pinner.model.settings.cards import RefusedSetting, Setting

T = TypeVar("T")
MAX_INTERFACES = 4096
"""More interfaces than that are not read."""
_NAME = re.compile(r"(?!\.{1,2}$)[^/\s\0]{1,15}")
"""The name of an interface (dev_valid_name of Linux)."""
_INDEX = re.compile(r"\d{1,10}", re.ASCII)
LIVE = Path("/")
FOLDER = Path("/sys/class/net")
_REQUEST = 0x8946
"""SIOCETHTOOL"""
_IFREQ = struct.Struct("@16sP16x")
"""struct ifreq with the address of the request's data."""
_ENDED = (errno.ENODEV, errno.ENOENT, errno.ENXIO)


def names(folder: Path) -> list[str]:
    """The names of the interfaces below /sys/class/net, which is ``folder``, in order.

    The kernel allows nearly any bytes in them. A name that is no UTF-8, or that no terminal can show, is left out: a
    snapshot could not be written with it, or a command could not be shown.
    """
    return sorted(filter(str.isprintable, files.names(folder)))[:MAX_INTERFACES]


def named(folder: Path, target: Target, expected: str = "the name and index of an interface") -> str:
    """The present name of the target's interface. Linux gives an index to another interface only after a restart, or
    on purpose. Raises Gone; Invalid, with what was ``expected``, for a target that names no interface."""
    name, _, index = target.owner.partition(" ")
    if not _NAME.fullmatch(name):
        raise Invalid(target.kind, str(target)[:80], expected)
    if _INDEX.fullmatch(index):
        for each in (name, *names(folder)):
            if files.number(folder / each / "ifindex") == int(index):
                return each
    raise Gone(str(target))


def each_card() -> Iterator[tuple[str, int]]:
    """The name and the index of the interface of each card of this machine."""
    for name in names(FOLDER):
        index = files.number(FOLDER / name / "ifindex")
        if index is not None and (FOLDER / name / "device").exists():
            yield name, index


def answers(
    setting: Setting, ask_driver: Callable[[str], T], refused: list[RefusedSetting]
) -> Iterator[tuple[str, int, T]]:
    """The name, the index and the driver's answer of each card of this machine. ``refused`` gets the refusals; a driver
    that lacks the setting, and a card that has ended, give nothing."""
    for name, index in each_card():
        try:
            answer = ask_driver(name)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, *_ENDED):
                refused.append(RefusedSetting(name, setting, error.strerror or str(error)))
            continue
        yield name, index, answer


def counter(name: str, statistic: str) -> int | None:
    """A counter of the interface; None where it cannot be read."""
    return files.number(FOLDER / name / "statistics" / statistic)


def is_up(name: str) -> bool:
    """Whether the interface is up, or may be up: some drivers do not tell."""
    return files.text(FOLDER / name / "operstate") in (None, "up", "unknown")


def ask(name: str, command: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values, 32 bits each, of the request's structure after its command, once the driver has answered. Raises
    OSError with the driver's error, which may be that it lacks memory; Busy where this process lacks descriptors."""
    layout = struct.Struct(f"={1 + len(values)}I")
    data = array.array("B", layout.pack(command, *values))
    # The kernel takes the request on any socket; the agent's unit allows this family.
    with closing(_socket()) as asked:
        fcntl.ioctl(asked, _REQUEST, _IFREQ.pack(os.fsencode(name), data.buffer_info()[0]))
    return layout.unpack(data.tobytes())[1:]


def _socket() -> socket.socket:
    try:
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError as error:
        raise files.known(error) from None


def name_of(target: Target) -> str:
    """The present name of the target's interface. Raises Gone, and Invalid for a target that names none."""
    if target.part is not None:
        raise Invalid(target.kind, str(target)[:80], "the name and index of an interface")
    return named(FOLDER, target)


def failure(target: Target, what: str, error: OSError) -> PinnerError:
    """The error for a request that failed: Gone where the card has ended. The kernel says that there is no such device
    also while the driver restarts the card, which keeps its settings then."""
    restarts = ""
    if error.errno in _ENDED:
        try:
            name_of(target)
        except Gone as gone:
            return gone
        restarts = "; does its driver restart the card just now?"
    return ApplyFailed(str(target), f"{what}: {error.strerror}{restarts}")
