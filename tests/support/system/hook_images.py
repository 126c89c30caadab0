"""The root of a host whose hook script is installed or removed."""

from pathlib import Path

from pinner.hostsetup.hooks import HookPaths, install_hooks, remove_hooks

NEW, OLD = "usr/lib/x86_64-linux-gnu/libvirt.so.0.6005.0", "usr/lib64/libvirt.so.0.6004.1"


def image(tmp_path, library):
    """An image with a libvirt of one version; empty: none is found."""
    root = tmp_path / "image"
    root.mkdir()
    if library:
        (root / library).parent.mkdir(parents=True)
        (root / library).touch()
    return HookPaths(root, None, Path("/opt/pinner/bin/python"))


def install(paths, *, dry_run=False):
    said = []
    install_hooks(paths, said.append, dry_run=dry_run)
    return said


def remove(paths, *, dry_run=False):
    said = []
    remove_hooks(paths, said.append, dry_run=dry_run)
    return said


def files(paths):
    return {
        str(path.relative_to(paths.root)): (path.read_text(), path.stat().st_mode & 0o777)
        for path in paths.root.rglob("*")
        if path.is_file() and "usr/lib" not in str(path)
    }
