"""The lab host's system: a Debian with libvirt and QEMU, built once and kept by the content of its recipe.

Needs root, mmdebstrap, e2fsprogs and Debian's packages; takes about a minute and a half. What comes out is a root file
system that is never written to again, a kernel and an initial ram disk.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError

_SUITE = "bookworm"
_PACKAGES = (
    "dbus,hwloc-nox,iproute2,kmod,libnuma1,libvirt-clients,libvirt-daemon-system,linux-image-cloud-amd64,numactl,procps,"
    "python3,qemu-guest-agent,qemu-system-x86,systemd-container,systemd-sysv,udev"
)
_OVERLAY = Path(__file__).parent / "overlay"
"""Files that are laid over the system before its initial ram disk is made."""
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
_UNUSED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer "
    "getty@tty1.service libvirt-guests.service logrotate.timer modprobe@configfs.service modprobe@dm_mod.service "
    "modprobe@drm.service modprobe@fuse.service modprobe@loop.service systemd-binfmt.service "
    "systemd-pstore.service systemd-random-seed.service"
)
"""What takes its time at a boot, or later, and what no test needs."""
_PROBE = """\
root=$(mktemp -d) && virsh -q -c "qemu:///embed?root=$root" capabilities >/dev/null &&
mkdir -p /var/cache/libvirt/qemu && mv "$root/cache/qemu/capabilities" /var/cache/libvirt/qemu/ && rm -r "$root"
"""
"""libvirt asks QEMU what it can when it first needs it, which takes long in a lab host; here it is asked natively."""
_HOOKS = (
    f'cp -r "{_OVERLAY}/." "$1/"',
    'chroot "$1" update-initramfs -u -k all',
    'chroot "$1" passwd -d root',
    f'chroot "$1" systemctl mask {_UNUSED}',
    f"chroot \"$1\" sh -ec '{_PROBE}'",
    'ln -s /opt/pinner/bin/pinner "$1/usr/local/bin/pinner"',
)
_SIZE_MIB = 1536
"""Of the root file system; its file is sparse."""
_NEEDED_MIB = 2500
"""While it is built: the tree and the image."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a lab host boots from."""

    root: Path
    kernel: Path
    initrd: Path


def cache() -> Path:
    """Where images are kept: PINNER_LAB_CACHE, else ~/.cache/pinner-lab."""
    return Path(os.environ.get("PINNER_LAB_CACHE") or Path.home() / ".cache/pinner-lab")


def image() -> Image:
    """The image of this recipe, built where it is not there yet. Raises LabError in one line."""
    folder = cache() / _fingerprint()
    with _locked(cache()):
        if not folder.exists():
            check_tools()
            _check_space()
            _build(folder)
    return Image(folder / "root.ext4", folder / "vmlinuz", folder / "initrd.img")


def _fingerprint() -> str:
    """A hash of all that the image depends on, but for the packages' versions on the day it is built."""
    recipe = hashlib.sha256(repr((_SUITE, _PACKAGES, _LEFT_OUT, _HOOKS[1:], _SIZE_MIB)).encode())
    for path in sorted(path for path in _OVERLAY.rglob("*") if path.is_file()):
        recipe.update(f"{path.relative_to(_OVERLAY)} {path.stat().st_mode:o} ".encode() + path.read_bytes())
    return recipe.hexdigest()[:16]


def check_tools() -> None:
    """Raise LabError where the image cannot be built here at all."""
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
    """Where tools are: an unprivileged user's PATH lacks some."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _build(folder: Path) -> None:
    print("lab: building the image, once (about a minute and a half) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder.parent) as name:
        draft, tree = Path(name) / "image", Path(name) / "tree"
        draft.mkdir()
        tree.mkdir(mode=0o755)
        _run("mmdebstrap", *_options(), _SUITE, str(tree))
        shutil.copy(next(tree.glob("boot/vmlinuz-*")), draft / "vmlinuz")
        shutil.copy(next(tree.glob("boot/initrd.img-*")), draft / "initrd.img")
        make_disk(tree, draft / "root.ext4", _SIZE_MIB)
        draft.replace(folder)


def make_disk(tree: Path, disk: Path, size_mib: int) -> None:
    """An ext4 file system in a sparse file, filled from a folder. Raises LabError."""
    # Without a journal: nobody recovers it. Made without discard, lazily: what is not written costs nothing.
    _run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", str(tree), str(disk), f"{size_mib}M")


def _options() -> Iterator[str]:
    yield from ("--quiet", "--variant=minbase", f"--include={_PACKAGES}")
    yield from (f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT)
    yield from (f"--customize-hook={hook}" for hook in _HOOKS)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": _path()})
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LabError(f"lab image: {command[0]} failed: {words[-1] if words else done.returncode}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two who want the image at the same time build it once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise LabError(f"lab image: {folder} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
