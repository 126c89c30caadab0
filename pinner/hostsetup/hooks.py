"""Installs and removes pinner's hook script among libvirt's hooks (https://libvirt.org/hooks.html). A list beside the
files names the folders that were made."""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pinner import whole_file
from pinner.hostsetup import steps
from pinner.hostsetup.layout import packaged
from pinner.hostsetup.steps import Step
from pinner.model.errors import Invalid
from pinner.owners import owner_of, require_own

FOLDERS_MARK = "# pinner's list of folders"
_HEAD = f"""\
# Written by pinner nova install-hooks.
{FOLDERS_MARK} that it has made, and that remove-hooks removes if empty.
"""


def missing_folders(*files: Path) -> tuple[Path, ...]:
    """Each folder comes after its parent."""
    return tuple(sorted({folder for file in files for folder in file.parents if not folder.exists()}))


def folder_list(root: Path, folders: Collection[Path]) -> str:
    return _HEAD + "".join(f"{_host_path(root, folder)}\n" for folder in sorted(folders))


def listed_folders(root: Path, file: Path, files: Collection[Path]) -> tuple[Path, ...]:
    """Only folders on the way to one of ``files`` count: an installation makes no others."""
    names = (steps.content(file) or "").splitlines()
    possible = {folder for each in files for folder in each.parents if folder != root}
    return tuple(sorted(folder for folder in possible if _host_path(root, folder) in names))


def folder_removal(folders: Collection[Path], files: Collection[Path]) -> Iterator[Step]:
    """Folders with nothing but ``files``, children first."""
    for folder in sorted(folders, reverse=True):
        yield Step(f"remove {folder}", partial(_is_kept, folder, {*files, *folders}), partial(_remove_empty, folder))


def _host_path(root: Path, folder: Path) -> str:
    return f"/{folder.relative_to(root)}" if folder.is_relative_to(root) else str(folder)


def _is_kept(folder: Path, own: Collection[Path]) -> bool:
    return folder.is_symlink() or not folder.is_dir() or any(path not in own for path in folder.iterdir())


def _remove_empty(folder: Path) -> None:
    # Another program may have written a file into the folder just now.
    with suppress(OSError):
        folder.rmdir()


_MARKS = (
    "# pinner's hook script for libvirt",
    "# pinner's filter for libvirt",
    "# libvirt hook script for pinner",
    FOLDERS_MARK,
)
"""The begin of the second line of pinner's files, the third one in copies made by hand."""
_START = 4096
"""Bytes of a file that contain the mark."""
SETTINGS = """\
# Settings of pinner's hook script for libvirt, written by pinner nova install-hooks.
python = {python}
"""
_SONAME = re.compile(r"libvirt\.so\.0\.(\d+)\.\d+")
FIRST_WITH_FOLDER = 6005
"""libvirt 6.5.0 was the first that runs the scripts in qemu.d. Its library's name has 6005 in it."""

HOSTS_HOOKS = "etc/libvirt/hooks"
_SNAP, SNAPS_HOOKS = "snap/openstack-hypervisor/current", "var/snap/openstack-hypervisor/common/etc/libvirt/hooks"
DAEMONS = ("usr/sbin/libvirtd", "usr/sbin/virtqemud")


def _own_python() -> Path:
    """A system's Python, such as Debian's, may have only the name python3."""
    usual = Path(sys.prefix, "bin/python")
    return usual if usual.exists() else Path(sys.executable)


@dataclass(frozen=True)
class HookPaths:
    root: Path = Path("/")
    folder: Path | None = None
    """Another folder than the usual one below ``root``."""
    python: Path = field(default_factory=_own_python)

    @property
    def hooks(self) -> Path:
        return self.folder or self.root / (SNAPS_HOOKS if self.has_snap else HOSTS_HOOKS)

    @property
    def has_snap(self) -> bool:
        return (self.root / SNAPS_HOOKS).parent.is_dir()

    @property
    def is_snaps(self) -> bool:
        return self.hooks == self.root / SNAPS_HOOKS

    @property
    def alone(self) -> Path:
        """The only script for QEMU that a libvirt before 6.5.0 runs."""
        return self.hooks / "qemu"

    @property
    def beside(self) -> Path:
        return self.hooks / "qemu.d/pinner"

    @property
    def filter(self) -> Path:
        """In qemu.d libvirt would run it as a script of its own."""
        return self.hooks / "pinner-strip-pins"

    @property
    def folders_file(self) -> Path:
        return self.hooks / "pinner-folders"

    @property
    def settings(self) -> Path:
        return self.root / "etc/pinner/hook.conf"

    @property
    def own_settings(self) -> str:
        return SETTINGS.format(python=self.python)

    @property
    def newest(self) -> int:
        """The newest of libvirt's libraries, as its name has it; 0: none."""
        libraries = (self.root / _SNAP if self.is_snaps else self.root).glob("usr/lib*/**/libvirt.so.0.*")
        return max((int(match[1]) for library in libraries if (match := _SONAME.fullmatch(library.name))), default=0)

    def script(self) -> Path:
        if self.newest >= FIRST_WITH_FOLDER:
            return self.beside
        # Other programs have such a folder of their own. A libvirt in a container may be newer than the library here.
        return self.beside if self.beside.parent.is_dir() and not (self.newest and is_free(self.alone)) else self.alone


def is_free(path: Path) -> bool:
    return not os.path.lexists(path) or is_pinners(path)


def is_pinners(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        _, _, rest = file.read(_START).partition(b"\n")
    return rest.startswith(tuple(mark.encode() for mark in _MARKS))


_SCRIPT, _FILTER = "libvirt-qemu-hook", "libvirt-strip-pins"
_DRAFT = re.compile(re.escape(whole_file.DRAFT) + "[a-z0-9_]{8}")
"""tempfile gives it this end."""
_OWN_SETTINGS = re.compile(re.escape(SETTINGS).replace(re.escape("{python}"), ".*"))
"""Settings that nobody has changed, of whichever installation."""


def install_hooks(paths: HookPaths, say: Callable[[str], None], *, dry_run: bool) -> None:
    """A second call changes nothing. Files of an older pinner are replaced. Raises Invalid."""
    _check(paths)
    _require_roots_settings(paths)
    script = paths.script()
    if not (script == paths.beside or is_free(paths.alone)):
        raise Invalid(
            "path",
            str(paths.alone),
            "free: the script there is not pinner's, and pinner does not overwrite it. Make the folder "
            f"{paths.beside.parent} if libvirt is 6.5.0 or newer, or move the script away",
        )
    steps.execute(_install(paths, script), say, dry_run=dry_run)
    if script == paths.beside and 0 < paths.newest < FIRST_WITH_FOLDER:
        say(f"warning: libvirt runs {script} only since 6.5.0, and the library that was found is older")
    python = _python(paths)
    if others := _others_python(python):
        say(f"warning: libvirt's hook runs {python} as root: {others}; install pinner where only root can write")
    say(f"libvirt looks for hook scripts when it starts: {_restart(paths)}; guests run on")


def remove_hooks(paths: HookPaths, say: Callable[[str], None], *, dry_run: bool) -> None:
    """Changed settings and folders with other files stay. Raises Invalid."""
    _check(paths)
    folders, files = listed_folders(paths.root, paths.folders_file, _all_files(paths)), set(_present(paths))
    if paths.alone in files:
        # libvirt remembers that the script exists, and took its absence for a failure before 6.5.0.
        say(f"libvirt before 6.5.0 starts no guest after the removal, until this is done: {_restart(paths)}")
    steps.execute(_remove(paths), say, dry_run=dry_run)
    steps.execute(folder_removal(folders, files), say, dry_run=dry_run)
    if dry_run:
        return
    if steps.content(paths.settings) is not None:
        say(f"kept: {paths.settings}, which was changed")
    for folder in folders:
        if folder.exists():
            say(f"kept: {folder}, which has other files")


def _restart(paths: HookPaths) -> str:
    return (
        "snap restart openstack-hypervisor.libvirtd" if paths.is_snaps else "systemctl restart libvirtd (or virtqemud)"
    )


def _check(paths: HookPaths) -> None:
    if os.geteuid() != 0:
        raise Invalid("user", str(os.geteuid()), "root: call it with sudo")
    if not paths.root.is_dir():
        raise Invalid("--root", str(paths.root), "a folder that exists: the root of a file system")
    if paths.folder is None and paths.has_snap and any((paths.root / daemon).exists() for daemon in DAEMONS):
        both = f"{paths.root / HOSTS_HOOKS} or {paths.root / SNAPS_HOOKS}"
        raise Invalid("--hooks", "", f"{both}: the host and the snap openstack-hypervisor have a libvirt each")
    if paths.hooks.exists() and not paths.hooks.is_dir():
        raise Invalid("--hooks", str(paths.hooks), "libvirt's folder of hook scripts; this is no folder")
    inside = steps.real(paths.root)
    for path in (paths.hooks, paths.beside.parent, paths.settings.parent):
        require_own(path, "path")
        if path != paths.folder and path.is_relative_to(paths.root):
            steps.check_is_inside(path, inside)
    _check_kinds(paths)


def _check_kinds(paths: HookPaths) -> None:
    for folder in {folder for file in _all_files(paths) for folder in file.parents}:
        if os.path.lexists(folder) and not folder.is_dir():
            raise Invalid("path", str(folder), "free, or a folder; a file of this name is in the way: move it away")
    for path in (paths.beside, paths.filter, paths.folders_file):
        if not is_free(path):
            raise Invalid("path", str(path), "free, or a file of pinner; this file is not pinner's: move it away")
    if os.path.lexists(paths.settings) and (paths.settings.is_symlink() or not paths.settings.is_file()):
        raise Invalid("path", str(paths.settings), "free, or a regular file; another kind is in the way: move it away")


def _all_files(paths: HookPaths) -> tuple[Path, ...]:
    return paths.beside, paths.alone, paths.filter, paths.folders_file, paths.settings


def _present(paths: HookPaths) -> Iterator[Path]:
    for path in _all_files(paths):
        if _is_unchanged(path) if path == paths.settings else is_pinners(path):
            yield path


def _require_roots_settings(paths: HookPaths) -> None:
    """Raises Invalid for settings that another user can write: they name the Python that root runs."""
    if paths.settings.exists() and not _is_unchanged(paths.settings) and not _is_roots(paths.settings):
        what = "a file that only root can write; check the Python that it names, then chown root and chmod 600"
        raise Invalid("path", str(paths.settings), what)


def _python(paths: HookPaths) -> Path:
    lines = (line.partition("=") for line in (steps.content(paths.settings) or "").splitlines())
    named = [value.strip() for name, _, value in lines if name.strip() == "python"]
    return Path(named[-1] if named else "/usr/bin/python3")


def _others_python(python: Path) -> str:
    try:
        # The file, too: in a virtual environment it is a symlink to the Python that made it.
        owner = owner_of(python, "python")
    except Invalid as error:
        return str(error)
    return f"user id {owner} can write it" if owner else ""


def _install(paths: HookPaths, script: Path) -> Iterator[Step]:
    settings = paths.settings
    missing = missing_folders(settings, paths.filter, script)
    yield from (Step(f"create {folder}", folder.is_dir, partial(folder.mkdir, 0o755)) for folder in missing)
    if missing:
        # After the folders: whatever the list names, pinner has made.
        folder_names = folder_list(
            paths.root, {*missing, *listed_folders(paths.root, paths.folders_file, _all_files(paths))}
        )
        yield Step(f"write {paths.folders_file}", lambda: False, partial(steps.write, paths.folders_file, folder_names))
    # Unchanged settings may name the Python of an older installation, which may not exist any more.
    kept = not _is_unchanged(settings) or (steps.content(settings) == paths.own_settings and _is_roots(settings))
    is_done = partial(bool, settings.exists() and kept)
    yield Step(f"write {settings}", is_done, partial(steps.write, settings, paths.own_settings, 0o600))
    # The filter first: libvirt may run the script at once.
    for path, text, mode in ((paths.filter, packaged(_FILTER), 0o644), (script, packaged(_SCRIPT), 0o755)):
        # No draft in qemu.d: libvirt runs each executable file there, and a draft of a killed process stays.
        write = partial(steps.write, path, text, mode, paths.hooks)
        yield Step(f"write {path}{_changed(path, text)}", partial(_has, path, text, mode), write)
    yield from _remove_drafts(paths)
    other = paths.alone if script == paths.beside else paths.beside
    if is_pinners(other):
        yield Step(f"remove {other}, which is pinner's, too", lambda: False, other.unlink)


def _remove(paths: HookPaths) -> Iterator[Step]:
    yield from _remove_drafts(paths)
    script, strip = packaged(_SCRIPT), packaged(_FILTER)
    for path, text in ((paths.beside, script), (paths.alone, script), (paths.filter, strip), (paths.folders_file, "")):
        if path not in (paths.alone, paths.folders_file) or is_pinners(path):
            what = f"remove {path}{_changed(path, text) if text else ''}"
            yield Step(what, lambda path=path: not path.exists(), path.unlink)  # type: ignore[misc]
    if _is_unchanged(paths.settings):
        yield Step(f"remove {paths.settings}", lambda: False, paths.settings.unlink)


def _remove_drafts(paths: HookPaths) -> Iterator[Step]:
    for folder in (paths.hooks, paths.settings.parent):
        for draft in sorted(folder.glob(f"{whole_file.DRAFT}*")):
            if _DRAFT.fullmatch(draft.name) and draft.is_file() and not draft.is_symlink():
                yield Step(
                    f"remove {draft}, which an installation that was killed has left", lambda: False, draft.unlink
                )


def _is_unchanged(settings: Path) -> bool:
    return _OWN_SETTINGS.fullmatch(steps.content(settings) or "") is not None


def _changed(path: Path, text: str) -> str:
    is_other = path.exists() and path.read_bytes() != text.encode()
    return ", which differs from the one of this version (an older one, or edited)" if is_other else ""


def _has(path: Path, text: str, mode: int) -> bool:
    """Another owner than root could change what libvirt runs as root."""
    if not path.exists() or path.read_bytes() != text.encode():
        return False
    return path.stat().st_mode & 0o777 == mode and _is_roots(path)


def _is_roots(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == 0 and not status.st_mode & 0o022
