"""Network interfaces as targets of changes: by their index, because they may get other names."""

import re
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.change import Target
from pinner.model.errors import Gone, Invalid

MAX_INTERFACES = 4096
"""More interfaces than that are not read."""
_NAME = re.compile(r"(?!\.{1,2}$)[^/\s\0]{1,15}")
"""The name of an interface (dev_valid_name of Linux)."""
_INDEX = re.compile(r"\d{1,10}", re.ASCII)


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
