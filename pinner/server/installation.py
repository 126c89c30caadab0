"""Keeps pinner's installation readable for the API's process without root: Python imports modules late, also from below
a closed folder such as root's home. The process gets mounts in which an empty folder with only the installation hides
the closed one; without such mounts, Python searches open descriptors, which also lead to what all may read there."""

import ctypes
import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pinner
from pinner.model.errors import Invalid

# Constants of linux/mount.h, linux/fcntl.h and sched.h.
_CLONE_NEWNS = 0x20000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_FDCWD = 1, 0x8000, -100
_MOVE_MOUNT_F_EMPTY_PATH = 4


def keep_readable(account: pwd.struct_passwd) -> None:
    """This process is root and has one thread. Raises Invalid with the file and the remedy."""
    if closed := [folder for folder in _installation() if not _readable_by(account, folder)]:
        try:
            _show(closed, account)
        except OSError:
            _hold_open(closed)
    if still_closed := closed_to(account):
        raise _unreadable(account, still_closed[0])


def closed_to(account: pwd.struct_passwd) -> list[Path]:
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    paths = [Path(file) for file in files if file] + _installation()
    with _acting_as(account):
        return [path for path in paths if not os.access(path, os.R_OK, effective_ids=True)]


def _installation() -> list[Path]:
    checkout = Path(pinner.__file__).absolute().parents[1]  # resolve() would follow an open descriptor
    folders = {Path(sys.base_prefix), Path(sys.prefix), checkout, *map(Path, sys.path[1:])}
    existing = {folder for folder in folders if folder.is_absolute() and folder.is_dir()}
    return sorted(folder for folder in existing if existing.isdisjoint(folder.parents))


def _readable_by(account: pwd.struct_passwd, folder: Path) -> bool:
    with _acting_as(account):
        return os.access(folder, os.R_OK | os.X_OK, effective_ids=True)


@contextmanager
def _acting_as(account: pwd.struct_passwd) -> Iterator[None]:
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _show(folders: list[Path], account: pwd.struct_passwd) -> None:
    """At their own paths, to this process alone. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> int:
        result: int = getattr(libc, name)(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        return result

    call("unshare", _CLONE_NEWNS)
    call("mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None)
    clone = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    trees = {folder: call("open_tree", _AT_FDCWD, os.fsencode(folder), clone) for folder in folders}
    for hidden in {_closed_at(account, folder) for folder in folders}:
        call("mount", b"tmpfs", os.fsencode(hidden), b"tmpfs", ctypes.c_ulong(0), b"mode=0711,size=1m")
    for folder, tree in trees.items():
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        call("move_mount", tree, b"", _AT_FDCWD, os.fsencode(folder), _MOVE_MOUNT_F_EMPTY_PATH)
        os.close(tree)


def _hold_open(folders: list[Path]) -> None:
    held = {f"{folder}/": f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_DIRECTORY)}/" for folder in folders}

    def moved(path: str) -> str:
        before = next((folder for folder in held if f"{path}/".startswith(folder)), "")
        return (held[before] + path[len(before) :]).rstrip("/") if before else path

    def move(owner: object, *names: str) -> None:
        for name in names:
            match getattr(owner, name, None):
                case str(path):
                    setattr(owner, name, moved(path))
                case list(paths):
                    paths[:] = map(moved, paths)

    move(sys, "path", "prefix", "exec_prefix", "base_prefix", "base_exec_prefix")
    for module in tuple(sys.modules.values()):
        move(module, "__file__", "__cached__", "__path__")
        if spec := getattr(module, "__spec__", None):
            move(spec, "origin", "cached", "submodule_search_locations")
            move(spec.loader, "path")
    sys.path_importer_cache.clear()


def _closed_at(account: pwd.struct_passwd, folder: Path) -> Path:
    with _acting_as(account):
        way = reversed(folder.parents)
        return next((part for part in way if not os.access(part, os.X_OK, effective_ids=True)), folder)


def _unreadable(account: pwd.struct_passwd, path: Path) -> Invalid:
    return Invalid(
        "[api] user",
        account.pw_name,
        f"a user that can read pinner's installation, but {path} is closed for it; install pinner in a folder "
        "that every user may read, such as /opt/pinner",
    )
