"""The Linux of the demo's guest: Debian's kernel for clouds, and a root file system of busybox in memory.

Both are taken out of their packages, which are not installed: a kernel would change how this machine boots, and
busybox-static would remove busybox.
"""

import lzma
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.traffic import GUEST, HOST, HOST_MAC

_KERNELS = "linux-image-cloud-amd64"
"""The package that depends on the newest kernel for virtual machines."""
_BUSYBOX = "busybox-static"
_MODULE_FOLDERS = "kernel/(drivers/virtio|drivers/net|net/core)"
_WANTED = re.compile(
    rf"/(vmlinuz-[^/]+|bin/busybox|modules\.builtin|(.*/virtio_console|{_MODULE_FOLDERS}/[^/]+)\.ko(\.xz)?)$"
)
_MODULES = ("virtio_pci", "virtio_net")
_CACHE = Path.home() / ".cache/pinner-demo"
_VERSION = "3"
"""The version of a folder in the cache: those of version 2 lack modules.builtin."""
READY = "the guest is ready"

INIT_BEGIN = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
{modules}
"""
"""The begin of every init: the folders of the kernel, and its modules."""
_INIT = (
    INIT_BEGIN
    + """\
ip address add {GUEST}/24 dev eth0
ip link set eth0 up
arp -s {HOST} {HOST_MAC}
echo {ready} >/dev/ttyS0
while :; do
    echo "received $(cat /sys/class/net/eth0/statistics/rx_packets)" >/dev/ttyS0
    sleep 1
done
"""
)
"""The guest's only program: it loads the network card's driver and writes its counter of packets to the console."""


class NoLinux(RuntimeError):
    """The kernel or the file system cannot be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Linux:
    """The files that the guest boots from."""

    kernel: Path
    initrd: Path


def linux(
    folder: Path,
    init: str = _INIT,
    modules: Iterable[str] = _MODULES,
    add: Callable[[Path], None] = lambda _tree: None,
) -> Linux:
    """A kernel and an initial file system in ``folder``. ``init`` is the first program, with names in braces as in
    _INIT; ``add`` adds files to the tree. Downloads Debian's packages once. Raises NoLinux."""
    taken = parts()
    found = Linux(folder / "vmlinuz", folder / "initrd.img")
    shutil.copyfile(taken / "vmlinuz", found.kernel)
    tree = folder / "initrd"
    _fill(tree, taken, init, modules)
    add(tree)
    names = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
    with found.initrd.open("wb") as out:
        _run("cpio", "--create", "--format=newc", "--quiet", cwd=tree, text=names, out=out)
    for path in (found.kernel, found.initrd):
        path.chmod(0o644)
    return found


def _fill(tree: Path, parts: Path, init: str, modules: Iterable[str]) -> None:
    """The root file system: busybox, the modules in the order in which they load, and the program /init."""
    for name in ("bin", "dev", "proc", "sys", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(parts / "busybox", tree / "bin/busybox")
    order = list(dict.fromkeys(module for name in modules for module in _with_needed(parts, name)))
    for module in order:
        shutil.copy(module, tree / "modules")
    loads = "\n".join(f"insmod /modules/{module.name}" for module in order)
    text = init.format(modules=loads, ready=READY, GUEST=GUEST, HOST=HOST, HOST_MAC=HOST_MAC)
    (tree / "init").write_text(text)
    for program in ("init", "bin/busybox"):
        (tree / program).chmod(0o755)


def _with_needed(parts: Path, name: str) -> Iterator[Path]:
    """The module's file after the files of all modules that it needs. A module that the kernel contains has no file.
    Raises NoLinux."""
    if re.search(rf"/{name}\.ko$", (parts / "modules.builtin").read_text(), re.MULTILINE):
        return
    path = parts / f"{name}.ko"
    if not path.exists():
        raise NoLinux(f"the kernel has no module {name}")
    needed = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
    for other in filter(None, needed[1].decode().split(",") if needed else ()):
        yield from _with_needed(parts, other.replace("-", "_"))
    yield path


def parts() -> Path:
    """The folder with vmlinuz, busybox and the modules for virtio and networks, from the cache or from Debian. Raises
    NoLinux."""
    if cached := sorted(path.parent for path in _CACHE.glob(f"linux-image-*.{_VERSION}/busybox")):
        return cached[-1]
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="draft-", dir=_CACHE) as draft:
        print(f"downloading a kernel and busybox of Debian into {_CACHE}, once (28 MB)", flush=True)
        _download(Path(draft))
        folder = Path(draft) / "parts"
        folder.mkdir()
        for package in Path(draft).glob("*.deb"):
            _unpack(package, folder)
        if lacking := {"vmlinuz", "busybox", "modules.builtin"} - {path.name for path in folder.iterdir()}:
            raise NoLinux(f"Debian's packages lack {', '.join(sorted(lacking))}")
        name = next(Path(draft).glob("linux-image-*.deb")).name.partition("_")[0] + f".{_VERSION}"
        with suppress(OSError):  # another demo was faster
            folder.replace(_CACHE / name)
        return _CACHE / name


def _download(folder: Path) -> None:
    """Download the packages, after an update of apt's lists where these are missing or too old."""
    try:
        _run("apt-get", "download", "-q", _kernel(), _BUSYBOX, cwd=folder)
    except NoLinux:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "download", "-q", _kernel(), _BUSYBOX, cwd=folder)


def _kernel() -> str:
    """The package of the newest kernel."""
    if found := re.search(r"Depends: (linux-image-\S+)", _run("apt-cache", "depends", _KERNELS)):
        return found[1]
    raise NoLinux(f"apt knows no kernel of {_KERNELS}")


def _unpack(package: Path, folder: Path) -> None:
    """Write the wanted files of the package into ``folder``, without their own folders."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as files,
    ):
        for file in files:
            if file.isreg() and _WANTED.search(file.name) and (content := files.extractfile(file)):
                _write(folder, Path(file.name).name.partition("-")[0], content.read())


def _write(folder: Path, name: str, content: bytes) -> None:
    """Write a file without its compression: Debian compresses modules since version 13."""
    is_compressed = name.endswith(".xz")
    (folder / name.removesuffix(".xz")).write_bytes(lzma.decompress(content) if is_compressed else content)


def _run(*command: str, cwd: Path | None = None, text: str = "", out: Any = subprocess.PIPE) -> str:
    """The command's output. Raises NoLinux with the last line of its errors."""
    try:
        done = subprocess.run(command, input=text.encode(), stdout=out, stderr=subprocess.PIPE, cwd=cwd)
    except OSError as error:
        raise NoLinux(f"{command[0]}: {error.strerror}: run `make setup`") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoLinux(f"{' '.join(command)} failed: {lines[-1] if lines else done.returncode}")
    return (done.stdout or b"").decode()
