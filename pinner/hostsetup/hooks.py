"""Installs and removes pinner's hook script among libvirt's hooks (https://libvirt.org/hooks.html)."""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pinner import whole_file
from pinner.hostsetup import hook_paths, steps
from pinner.hostsetup.hook_paths import (
    DAEMONS,
    FIRST_WITH_FOLDER,
    HOSTS_HOOKS,
    SETTINGS,
    SNAPS_HOOKS,
    HookPaths,
    is_free,
    is_pinners,
)
from pinner.hostsetup.layout import packaged
from pinner.hostsetup.steps import Step
from pinner.model.errors import Invalid
from pinner.owners import owner_of, require_own

_SCRIPT, _FILTER = "libvirt-qemu-hook", "libvirt-strip-pins"
_DRAFT = re.compile(re.escape(whole_file.DRAFT) + "[a-z0-9_]{8}")
"""tempfile gives it this end."""
_OWN_SETTINGS = re.compile(re.escape(SETTINGS).replace(re.escape("{python}"), ".*"))
"""Settings that nobody has changed, of whichever installation."""


def install_hooks(paths: HookPaths, say: Callable[[str], None], *, dry_run: bool) -> None:
    """A second call changes nothing. Files of an older pinner are replaced, and nobody else's. Raises Invalid."""
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
    folders, files = hook_paths.listed_folders(paths.root, paths.folders_file, _all_files(paths)), set(_present(paths))
    if paths.alone in files:
        # libvirt remembers that the script exists, and took its absence for a failure before 6.5.0.
        say(f"libvirt before 6.5.0 starts no guest after the removal, until this is done: {_restart(paths)}")
    steps.execute(_remove(paths), say, dry_run=dry_run)
    steps.execute(hook_paths.folder_removal(folders, files), say, dry_run=dry_run)
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
    """Raises Invalid where this process is not root, a path leads elsewhere, or something is in the way."""
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
    """Raises Invalid where another kind of file, or a file of others, is in the way."""
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
    """Raises Invalid where settings that stay can be written by another user: they name the Python that root runs."""
    if paths.settings.exists() and not _is_unchanged(paths.settings) and not _is_roots(paths.settings):
        what = "a file that only root can write; check the Python that it names, then chown root and chmod 600"
        raise Invalid("path", str(paths.settings), what)


def _python(paths: HookPaths) -> Path:
    lines = (line.partition("=") for line in (steps.content(paths.settings) or "").splitlines())
    named = [value.strip() for name, _, value in lines if name.strip() == "python"]
    return Path(named[-1] if named else "/usr/bin/python3")


def _others_python(python: Path) -> str:
    """Who except root can replace the Python that the hook runs."""
    try:
        # The file, too: in a virtual environment it is a symlink to the Python that made it.
        owner = owner_of(python, "python")
    except Invalid as error:
        return str(error)
    return f"user id {owner} can write it" if owner else ""


def _install(paths: HookPaths, script: Path) -> Iterator[Step]:
    settings = paths.settings
    missing = hook_paths.missing_folders(settings, paths.filter, script)
    yield from (Step(f"create {folder}", folder.is_dir, partial(folder.mkdir, 0o755)) for folder in missing)
    if missing:
        # After the folders: whatever the list names, pinner has made.
        folder_names = hook_paths.folder_list(
            paths.root, {*missing, *hook_paths.listed_folders(paths.root, paths.folders_file, _all_files(paths))}
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
    """An older version wrote another text, or somebody edited it."""
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
