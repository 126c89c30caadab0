"""The folders that an installation has made. A list beside its files names them, so that a removal leaves no folder."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pinner.hostsetup import steps
from pinner.hostsetup.steps import Step

MARK = "# pinner's list of folders"
_HEAD = f"# Written by pinner nova install-hooks.\n{MARK} that it has made, and that remove-hooks removes if empty.\n"


def missing(*files: Path) -> tuple[Path, ...]:
    """The folders that do not exist yet and that these files need; each folder after its parent."""
    return tuple(sorted({folder for file in files for folder in file.parents if not folder.exists()}))


def text(root: Path, folders: Collection[Path]) -> str:
    """The list of these folders."""
    return _HEAD + "".join(f"{_name(root, folder)}\n" for folder in sorted(folders))


def listed(root: Path, file: Path, files: Collection[Path]) -> tuple[Path, ...]:
    """The folders that the list names and that are on the way to one of ``files``: an installation makes no others."""
    names = (steps.content(file) or "").splitlines()
    possible = {folder for each in files for folder in each.parents if folder != root}
    return tuple(sorted(folder for folder in possible if _name(root, folder) in names))


def removal(folders: Collection[Path], files: Collection[Path]) -> Iterator[Step]:
    """The removal of each of these folders that has nothing but ``files``, children first."""
    for folder in sorted(folders, reverse=True):
        yield Step(f"remove {folder}", partial(_is_kept, folder, {*files, *folders}), partial(_remove_empty, folder))


def _name(root: Path, folder: Path) -> str:
    """The folder's path on the host whose file system begins at ``root``."""
    return f"/{folder.relative_to(root)}" if folder.is_relative_to(root) else str(folder)


def _is_kept(folder: Path, own: Collection[Path]) -> bool:
    return folder.is_symlink() or not folder.is_dir() or any(path not in own for path in folder.iterdir())


def _remove_empty(folder: Path) -> None:
    # Another program may have written a file into the folder just now.
    with suppress(OSError):
        folder.rmdir()
