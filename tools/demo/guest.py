"""The demo's Linux guest: a network card that takes packets, and a console that shows how many have arrived."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import private_libvirt as libvirt
from lab import kvm

from demo.linux import READY, NoLinux, linux
from demo.output import Tell
from demo.traffic import GUEST_MAC

_BOOT_SECONDS = 180
"""A boot takes 3 seconds of CPU time under TCG, and a busy machine has little of it."""
_COMMAND_LINE = "console=ttyS0 quiet no_timer_check"
"""Under TCG on a busy machine, the kernel's check of the timer fails now and then."""


@dataclass(frozen=True, slots=True)
class LinuxGuest:
    """A running Linux guest."""

    name: str
    tap: str
    console: Path

    def received(self) -> int:
        """The packets that the guest's network card has received, as the guest counted within the last second."""
        counts = re.findall(r"received (\d+)\r?\n", self.console.read_text(errors="replace"))
        return int(counts[-1]) if counts else 0


@contextmanager
def linux_guest(uri: str, folder: Path, tell: Tell = print) -> Iterator[LinuxGuest]:
    """A transient guest that runs Linux with one vCPU and a tap; it ends with the context."""
    if not Path("/dev/net/tun").exists():
        raise NoLinux("this machine has no /dev/net/tun, which a guest's network card needs")
    kind = "kvm" if kvm.usable() else "qemu"
    guest = LinuxGuest(f"demo-{os.getpid()}-linux", f"pd{os.getpid() % 10_000_000}-linux"[:15], folder / "console")
    tell(f"starting guest {guest.name} (1 vCPU, 96 MiB), which runs Linux under {'KVM' if kind == 'kvm' else 'TCG'}")
    try:
        libvirt.start_guest(uri, _xml(guest, kind, folder))
        _wait(uri, guest)
        yield guest
    finally:
        with suppress(subprocess.CalledProcessError):
            libvirt.virsh(uri, "destroy", guest.name)


def _xml(guest: LinuxGuest, kind: str, folder: Path) -> str:
    system = linux(folder)
    return (
        f"<domain type='{kind}'><name>{guest.name}</name><memory unit='MiB'>96</memory>"
        "<vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type>"
        f"<kernel>{system.kernel}</kernel><initrd>{system.initrd}</initrd><cmdline>{_COMMAND_LINE}</cmdline></os>"
        f"<features><acpi/></features><devices><emulator>{libvirt.EMULATOR}</emulator><memballoon model='none'/>"
        f"<serial type='file'><source path='{guest.console}'/></serial>"
        f"<interface type='ethernet'><mac address='{GUEST_MAC}'/><target dev='{guest.tap}'/><model type='virtio'/>"
        "</interface></devices></domain>"
    )


def _wait(uri: str, guest: LinuxGuest) -> None:
    """Wait until the guest's network is up. Raises NoLinux with the end of its console."""
    deadline = time.monotonic() + _BOOT_SECONDS
    while READY not in (shown := guest.console.read_text(errors="replace") if guest.console.exists() else ""):
        if time.monotonic() > deadline or libvirt.virsh(uri, "domstate", guest.name).strip() != "running":
            raise NoLinux(f"the guest {guest.name} did not start; its console ends with:\n{shown[-1000:]}")
        time.sleep(0.2)
