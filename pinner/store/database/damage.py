import sqlite3
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from pinner.model.errors import Invalid, StoreUnavailable

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REPAIRS = {
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_IOERR: "check its disk (dmesg); then restore a backup if the file is damaged",
    sqlite3.SQLITE_PERM: "give it back to its owner (see its folder), mode 0600",
    sqlite3.SQLITE_READONLY: "give it back to its owner (see its folder), mode 0600, on a writable disk",
    sqlite3.SQLITE_CANTOPEN: "it must be a file, not a folder, in a folder that pinner's user can write",
}
"""By primary result code (https://www.sqlite.org/rescode.html)."""


def repair(engine: Engine, error: BaseException | None) -> str:
    """Follows the error's message. ``error``: None where a stored value is damaged."""
    if engine.dialect.name != "sqlite":
        return ""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF
    if error is None or code in _DAMAGED:
        return set_aside(Path(str(engine.url.database)))
    return f". Repair: {_REPAIRS[code]}" if code in _REPAIRS else ""


def is_damage(error: Exception) -> bool:
    """Whether a stored value is damaged; other queries may succeed. sqlite3 has no code for text that is not UTF-8."""
    if isinstance(error, ValueError):
        return True
    cause = getattr(error, "orig", None)
    return isinstance(cause, sqlite3.Error) and getattr(cause, "sqlite_errorcode", _DAMAGED[0]) & 0xFF in _DAMAGED


def set_aside(path: Path) -> str:
    return (
        f". Repair: stop pinner; restore a backup of the file, or run `pinner-manage db set-aside {path}`, which "
        "renames the file and keeps it; then start pinner"
    )


def new_database(engine: Engine) -> str:
    if engine.dialect.name == "sqlite":
        return f"run `pinner-manage db set-aside {engine.url.database}`, which renames the file and keeps it"
    return "name a new, empty database in [database] connection"


def set_file_aside(path: Path, at: datetime) -> tuple[Path, ...]:
    """Rename a database file, its -wal and -shm; returns the names. Raises Invalid without it, StoreUnavailable."""
    suffix = f".damaged-{at:%Y%m%dT%H%M%SZ}"
    files = [file for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if file.exists()]
    if path not in files:
        raise Invalid("file", str(path), "a database file of pinner that exists")
    renamed = []
    for file in files:
        new = Path(f"{path}{suffix}{file.name.removeprefix(path.name)}")
        try:
            file.rename(new)
        except OSError as error:
            raise StoreUnavailable(str(file), error.strerror or str(error)) from None
        renamed.append(new)
    return tuple(renamed)
