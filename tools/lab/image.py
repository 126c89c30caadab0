"""The lab host's system: a Debian with libvirt and QEMU, built once for each recipe and kernel, by a hash of both.

Needs root, mmdebstrap, e2fsprogs and Debian's packages; takes about a minute and a half. What comes out is a root file
system that is never written to again, a kernel and an initial ram disk.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

_SUITE = "trixie" if sys.version_info >= (3, 13) else "bookworm"
"""The release whose Python is this one: the lab host uses the packages of this virtual environment."""
_PACKAGES = (
    "dbus,ethtool,hwloc-nox,iproute2,irqbalance,kmod,libnuma1,librrd8,libvirt-clients,libvirt-daemon-system,"
    "numactl,procps,python3,qemu-guest-agent,qemu-system-x86,systemd-container,systemd-sysv,udev"
)
_OVERLAY = Path(__file__).parent / "overlay"
"""Files that are copied over the system before its initial ram disk is created."""
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
_UNUSED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer "
    "getty@tty1.service irqbalance.service libvirt-guests.service logrotate.timer modprobe@configfs.service "
    "modprobe@dm_mod.service modprobe@drm.service modprobe@fuse.service modprobe@loop.service systemd-binfmt.service "
    "systemd-pstore.service systemd-random-seed.service"
)
"""Units that take time at a boot, or later, and that no test needs."""
_PROBE = """\
root=$(mktemp -d) && virsh -q -c "qemu:///embed?root=$root" capabilities >/dev/null &&
mkdir -p /var/cache/libvirt/qemu && mv "$root/cache/qemu/capabilities" /var/cache/libvirt/qemu/ && rm -r "$root"
"""
"""Fills libvirt's cache of QEMU's capabilities: without it libvirt queries them in the lab host, which takes long."""
_HOOKS = (
    f'cp -r "{_OVERLAY}/." "$1/"',
    'chroot "$1" update-initramfs -u -k all',
    'chroot "$1" passwd -d root',
    f'chroot "$1" systemctl mask {_UNUSED}',
    f"chroot \"$1\" sh -ec '{_PROBE}'",
    'ln -s /opt/pinner/bin/pinner "$1/usr/local/bin/pinner"',
)
_SIZE_MIB = 1536
"""The size of the root file system, whose file is sparse."""
_NEEDED_MIB = 2500
"""The space needed during the build, for the tree and the image."""


@dataclass(frozen=True, slots=True)
class Image:
    """The files that a lab host boots from."""

    root: Path
    kernel: Path
    initrd: Path


def cache() -> Path:
    """The folder of the images: PINNER_LAB_CACHE, or ~/.cache/pinner-lab by default."""
    return Path(os.environ.get("PINNER_LAB_CACHE") or Path.home() / ".cache/pinner-lab")


def image(kernel: str) -> Image:
    """The image with this package of the kernel, built if it does not exist yet. Raises LabError in one line."""
    folder = cache() / _fingerprint(kernel)
    with _locked(cache()):
        if not folder.exists():
            check_tools()
            _check_space()
            _build(folder, kernel)
    return Image(folder / "root.ext4", folder / "vmlinuz", folder / "initrd.img")


def _fingerprint(kernel: str) -> str:
    """A hash of everything that the image depends on, except the versions of its packages."""
    recipe = hashlib.sha256(repr((_SUITE, _PACKAGES, kernel, _EXCLUDED, _HOOKS[1:], _SIZE_MIB)).encode())
    for path in sorted(path for path in _OVERLAY.rglob("*") if path.is_file()):
        recipe.update(f"{path.relative_to(_OVERLAY)} {path.stat().st_mode:o} ".encode() + path.read_bytes())
    return recipe.hexdigest()[:16]


def check_tools() -> None:
    """Raise LabError if the image cannot be built here at all."""
    if lacking := [tool for tool in ("mmdebstrap", "mkfs.ext4") if shutil.which(tool, path=_path()) is None]:
        raise LabError(f"lab image: not installed: {', '.join(lacking)} (apt install mmdebstrap e2fsprogs)")
    if os.geteuid() != 0:
        raise LabError("lab image: must be built as root (files of a root file system belong to root)")


def _check_space() -> None:
    free = shutil.disk_usage(cache()).free >> 20
    if free < _NEEDED_MIB:
        raise LabError(
            f"lab image: {cache()} has {free} MiB free, {_NEEDED_MIB} are needed (PINNER_LAB_CACHE moves it)"
        )


def _path() -> str:
    """A PATH with all folders of tools: the PATH of an unprivileged user lacks some."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _build(folder: Path, kernel: str) -> None:
    print(f"lab: building the image with {kernel}, once (about a minute and a half) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as name:
        draft, tree = Path(name) / "image", Path(name) / "tree"
        draft.mkdir()
        tree.mkdir(mode=0o755)
        _run("mmdebstrap", *_options(kernel), _SUITE, str(tree))
        shutil.copy(next(tree.glob("boot/vmlinuz-*")), draft / "vmlinuz")
        shutil.copy(next(tree.glob("boot/initrd.img-*")), draft / "initrd.img")
        make_disk(tree, draft / "root.ext4", _SIZE_MIB)
        draft.replace(folder)


def make_disk(tree: Path, disk: Path, size_mib: int) -> None:
    """An ext4 file system in a sparse file, filled from a folder. Raises LabError."""
    # No journal, because the file system is never recovered. Unwritten blocks use no space in the sparse file.
    _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", str(tree), str(disk), f"{size_mib}M")


def _options(kernel: str) -> Iterator[str]:
    yield from ("--quiet", "--variant=minbase", f"--include={_PACKAGES},{kernel}")
    yield from (f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED)
    yield from (f"--customize-hook={hook}" for hook in _HOOKS)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": _path()})
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LabError(f"lab image: {command[0]} failed: {lines[-1] if lines else done.returncode}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the cache, so that two processes build the image only once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise LabError(f"lab image: {folder} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
