"""The sysctls that a plan may change (admin-guide/sysctl). Only names of model/settings/sysctls.py become paths."""

import errno
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings.row import HostRow, written
from pinner.model.change import Target
from pinner.model.errors import Gone, Invalid
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.states import Number

_FOLDER = "proc/sys"
_NUMBER = re.compile(r"-?\d{1,10}", re.ASCII)


def read_sysctls(root: Path) -> Mapping[str, int] | None:
    if not (root / _FOLDER).is_dir():
        return None
    return parsed(lambda path: files.text(root / path) or "")


def parsed(text: Callable[[str], str]) -> Mapping[str, int]:
    values = {key: _parse(text(f"{_FOLDER}/{key.replace('.', '/')}")) for key in SYSCTLS}
    return {key: value for key, value in values.items() if value is not None}


def _parse(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def value_of(root: Path, target: Target) -> Number:
    parent, name = _path(target)
    try:
        with beneath.folder(root / _FOLDER, parent) as folder:
            value = _parse(beneath.read(folder, name) or "")
    except OSError as error:
        files.known(error)
        value = None
    if value is None:
        raise Gone(str(target))
    return Number(value)


def set_value(root: Path, target: Target, value: Number) -> None:
    """Raises ApplyFailed also where the kernel made another value of it."""
    parent, name = _path(target)
    # That no file can be opened is Busy already; ENOMEM here is the kernel's answer to the write.
    with (
        written(target, value, lambda: value_of(root, target), _HINTS),
        beneath.folder(root / _FOLDER, parent) as folder,
    ):
        beneath.write(folder, name, str(value))


def _path(target: Target) -> tuple[str, str]:
    if target.part is not None or target.owner not in SYSCTLS:
        raise Invalid("sysctl", str(target)[:80], f"one of: {', '.join(SYSCTLS)}")
    parent, _, name = target.owner.rpartition(".")
    return parent.replace(".", "/"), name


_HINTS = {
    errno.EROFS: "; the unit of the agent lacks this file in ReadWritePaths: renew it with pinner-manage setup-host",
    errno.EPERM: "; the agent may need CAP_SYS_ADMIN: allow it with CapabilityBoundingSet=CAP_SYS_ADMIN in the section "
    "[Service] of `systemctl edit pinner-agent`",
    errno.EACCES: "; the file may be written by root only, or by nobody",
}

ROW: HostRow[Number] = HostRow(
    lambda access, target: value_of(access.root, target),
    lambda access, target, state: set_value(access.root, target, state),
    lambda facts: read_sysctls(facts.root),
)
