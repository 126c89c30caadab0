"""The steps of a setup or a removal: each can be shown and repeated."""

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pinner import whole_file
from pinner.hostsetup.layout import MARK
from pinner.model.errors import Invalid


@dataclass(frozen=True)
class Step:
    """``text`` is an infinitive."""

    text: str
    is_done: Callable[[], bool]
    make: Callable[[], object]


def execute(steps: Iterable[Step], say: Callable[[str], None], *, dry_run: bool) -> None:
    """With ``dry_run`` only report. Raises Invalid for a path that cannot be changed, after the steps before it."""
    for step in steps:
        if step.is_done():
            say(f"nothing to do: {step.text}")
        elif dry_run:
            say(f"would {step.text}")
        else:
            try:
                step.make()
            except OSError as error:
                path = str(error.filename or step.text)
                raise Invalid("path", path, f"a path that root can change ({error.strerror})") from None
            say(f"done: {step.text}")


def write(path: Path, text: str, mode: int = 0o644, drafts: Path | None = None) -> None:
    """In one step: a program may read or run the file at any moment. Raises Invalid, and leaves the file as before."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        whole_file.replace(path, text.encode(), mode, drafts)
    except OSError as error:
        raise Invalid("path", str(path), f"a path that root can write ({error.strerror})") from None


def content(path: Path) -> str | None:
    """Raises Invalid."""
    try:
        if not os.path.lexists(path):
            return None
        if path.exists() and not path.is_file():  # reading a pipe would never end
            raise FileExistsError
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise Invalid("path", str(path), "a file that pinner may replace; it is in the way: move it away") from None


def real(path: Path) -> Path:
    """Raises Invalid for symlinks that lead to each other."""
    with suppress(RuntimeError):  # Python's error for such symlinks, until 3.13
        try:
            return path.resolve(strict=True)
        except OSError as error:
            if error.errno != errno.ELOOP:
                return path.resolve()
    raise Invalid("path", str(path), "free, or a folder; a symlink there leads to itself: move it away")


def check_is_inside(path: Path, root: Path) -> None:
    if not real(path).is_relative_to(root):
        raise Invalid("--root", str(path), f"a path inside {root}; a symlink leads to {real(path)}")


def check_is_pinners(path: Path) -> None:
    text = content(path)
    if path.is_symlink() or (text is not None and not text.startswith(MARK)):
        raise Invalid(
            "path", str(path), "free, or a file of pinner-manage setup-host; this file is not pinner's: move it away"
        )
