"""The receive rings of network cards: read and set by the kernel's requests of ethtool (SIOCETHTOOL).

Source: the kernel's include/uapi/linux/ethtool.h (struct ethtool_ringparam). pyroute2 asks cards for the checks, but
takes half a second to import, and each snapshot of a host reads the rings.
"""

import array
import errno
import fcntl
import os
import re
import socket
import struct
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from pinner.host import files
from pinner.model.change import Number, Target
from pinner.model.errors import ApplyFailed, Gone, Invalid, PinnerError
from pinner.model.rings import NO_ROOM, RxRing

MAX_CARDS = 1024
"""More cards than that are not read."""
_LIVE = Path("/")
_FOLDER = Path("/sys/class/net")
_NAME = re.compile(r"(?!\.{1,2}$)[^/\s\0]{1,15}")
"""The name of an interface (dev_valid_name of Linux)."""
_REQUEST, _GET, _SET = 0x8946, 0x10, 0x11
"""SIOCETHTOOL, ETHTOOL_GRINGPARAM, ETHTOOL_SRINGPARAM."""
_RINGS = struct.Struct("=9I")
_IFREQ = struct.Struct("@16sP16x")
"""struct ifreq with the address of the request's data."""
_ENDED = (errno.ENODEV, errno.ENOENT, errno.ENXIO)


class _Rings(NamedTuple):
    """struct ethtool_ringparam without its command."""

    rx_max: int
    rx_mini_max: int
    rx_jumbo_max: int
    tx_max: int
    rx: int
    rx_mini: int
    rx_jumbo: int
    tx: int


def read_rings(root: Path) -> tuple[RxRing, ...] | None:
    """The rings of all cards whose drivers tell about them; None for another root than this machine's."""
    if root != _LIVE:
        return None
    found = []
    for name in sorted(files.names(_FOLDER))[:MAX_CARDS]:
        folder = _FOLDER / name
        index = files.number(folder / "ifindex")
        if index is None or not (folder / "device").exists():
            continue
        try:
            rings = _get(name)
        except OSError as error:
            files.known(error)
            continue  # the driver tells nothing about its rings
        lost = any(files.number(folder / "statistics" / counter) for counter in NO_ROOM)
        found.append(RxRing(name, index, rings.rx, rings.rx_max, lost))
    return tuple(found)


def size_of(target: Target) -> Number:
    """The size of the ring. Raises Gone where the card has ended, and ApplyFailed where its driver does not answer."""
    name = _require_same(target)
    try:
        return Number(_get(name).rx)
    except OSError as error:
        if files.known(error).errno in _ENDED:
            raise Gone(str(target)) from None
        raise ApplyFailed(str(target), f"the driver does not tell its size: {error.strerror}") from None


def set_size(target: Target, size: Number) -> None:
    """Give the ring this size, leave the card's other rings as they are, and read the size back. Raises Gone, and
    ApplyFailed with the driver's words, or where the size is beyond the maximum."""
    name = _require_same(target)
    try:
        now = _get(name)
        if not 0 < size.value <= now.rx_max:
            raise ApplyFailed(str(target), f"asked for {size} packets, and the driver allows 1 to {now.rx_max}")
        _ask(name, _SET, now._replace(rx=size.value))
    except OSError as error:
        raise _refused(target, size, error) from None
    if (granted := size_of(target)) != size:
        raise ApplyFailed(str(target), f"asked for {size}, the driver says {granted}", granted=str(granted))


def _get(name: str) -> _Rings:
    return _ask(name, _GET, _Rings(*[0] * 8))


def _ask(name: str, command: int, rings: _Rings) -> _Rings:
    """The rings after the request. Raises OSError."""
    data = array.array("B", _RINGS.pack(command, *rings))
    # The kernel takes the request on any socket; the agent's unit allows this family.
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as asked:
        fcntl.ioctl(asked, _REQUEST, _IFREQ.pack(os.fsencode(name), data.buffer_info()[0]))
    return _Rings(*_RINGS.unpack(data.tobytes())[1:])


def _require_same(target: Target) -> str:
    """The name of the interface, if it is still the target's. Raises Gone, and Invalid for a target that names none."""
    name, _, index = target.owner.partition(" ")
    if target.part is not None or not _NAME.fullmatch(name):
        raise Invalid("ring", str(target)[:80], "the name and index of an interface")
    if str(files.number(_FOLDER / name / "ifindex")) != index:
        raise Gone(str(target))
    return name


def _refused(target: Target, size: Number, error: OSError) -> PinnerError:
    if files.known(error).errno in _ENDED:
        return Gone(str(target))
    return ApplyFailed(str(target), f"the driver refuses {size}: {error.strerror}")
