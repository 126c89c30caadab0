"""The environment of the demo: a libvirtd, three small guests, a busy daemon and pinner's own service.

The context managers here end all of them, however the demo ends.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import private_libvirt as libvirt
import rights
from spare_user import spare_user

from demo.output import Tell

BIN = Path(sys.executable).parent

BOOT_SECTOR = (
    bytes.fromhex(
        "fa"  # cli
        "b034e643"  # timer channel 0: rate generator
        "b0a5e640b012e640"  # divisor 0x12a5: 250 interrupts a second
        "fb"  # sti
        "f4"  # wait: hlt
        "0f31"  # rdtsc
        "6689c3"  # mov ebx, eax
        "0f31"  # work: rdtsc
        "6629d8"  # sub eax, ebx
        "663d90d00300"  # cmp eax, 250000
        "72f3"  # jb work
        "ebeb"  # jmp wait
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
"""The whole system of a guest: it wakes 250 times a second and works for a quarter of a million cycles each time.

That is a few per cent of a CPU, similar to a guest that forwards packets.
"""

DAEMON = """
import hashlib, sys, threading
block = bytes(1 << 20)  # large enough for hashlib to let the other threads run meanwhile
def work():
    while True:
        hashlib.sha256(block).digest()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
sys.stdin.read()  # until the demo ends, also where it is killed
"""


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder. Its path is short because of sockets, and the API, which is not root, may enter it."""
    with tempfile.TemporaryDirectory(prefix="pinner-demo-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


@contextmanager
def any_libvirtd(folder: Path, tell: Tell = print) -> Iterator[str]:
    """The URI of the running libvirtd, or of a private one that ends with the demo."""
    system = "qemu:///system"
    with suppress(subprocess.SubprocessError):
        subprocess.run(["virsh", "-c", system, "version"], check=True, capture_output=True, timeout=10)
        tell(f"libvirtd is running already: {system}")
        yield system
        return
    tell("libvirtd is not running: starting a private one with its own folders and sockets")
    with libvirt.private_libvirtd(folder / "libvirt") as uri:
        yield uri


@contextmanager
def guests(uri: str, folder: Path, tell: Tell = print) -> Iterator[tuple[str, ...]]:
    """Three transient guests of two vCPUs, with an iothread and a network card; they end with the context."""
    kind = "kvm" if libvirt.kvm_works(uri) else "qemu"
    tell(f"guests run under {'KVM' if kind == 'kvm' else 'TCG, because a KVM guest does not start here'}")
    image = folder / "guest.img"
    image.write_bytes(BOOT_SECTOR.ljust(1 << 20, b"\0"))
    image.chmod(0o644)
    names = tuple(f"demo-{os.getpid()}-{number}" for number in (1, 2, 3))
    try:
        for number, name in enumerate(names, 1):
            tell(f"starting guest {name} (2 vCPUs, 64 MiB)")
            libvirt.start_guest(uri, libvirt.guest_xml(name, kind=kind, devices=_devices(image, number)))
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                libvirt.virsh(uri, "destroy", name)


def _devices(image: Path, number: int) -> str:
    disk = (
        f"<disk type='file'><driver name='qemu' type='raw'/><source file='{image}'/>"
        "<target dev='vda' bus='virtio'/><readonly/></disk>"
    )
    if rights.lacking("taps"):
        return f"{disk}<interface type='user'><model type='virtio'/></interface>"
    tap = f"pd{os.getpid() % 10_000_000}-{number}"
    return f"{disk}<interface type='ethernet'><target dev='{tap}'/><model type='virtio'/></interface>"


@contextmanager
def ended(process: subprocess.Popen[str], seconds: float = 20) -> Iterator[subprocess.Popen[str]]:
    """The process; it gets SIGTERM at the end of the context, and SIGKILL if it does not end in time."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()


@contextmanager
def busy_daemon(tell: Tell = print) -> Iterator[int]:
    """A host daemon of four busy threads; its process id."""
    command = [sys.executable, "-c", DAEMON]
    with ended(subprocess.Popen(command, text=True, start_new_session=True, stdin=subprocess.PIPE)) as process:
        tell(f"busy daemon: process {process.pid}, 4 threads that compute hashes all the time")
        yield process.pid


@contextmanager
def service(folder: Path, uri: str, tell: Tell = print) -> Iterator[str]:
    """The URL of a `pinner serve` with a configuration and a user of its own; its log is in ``folder``."""
    user = spare_user()
    tell(f"user of pinner's API: {user.uid}, which has no account")
    config = folder / "pinner.conf"
    config.write_text(f"[libvirt]\nuri = {uri}\n[agent]\nstate_dir = {folder}/state\n{user.config}")
    log = folder / "pinner.log"
    command = [str(BIN / "pinner"), "serve", "--config-file", str(config)]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, text=True, start_new_session=True)
    with ended(process):
        deadline = time.monotonic() + 120
        while not (found := re.search(r"serves host \S+ at (unix:\S+)", log.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"pinner serve did not start:\n{log.read_text()}")
            time.sleep(0.1)
        tell(f"pinner serve is running at {found[1]}")
        yield found[1]
