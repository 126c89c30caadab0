"""A Linux guest with two vCPUs or more, two virtio cards with one queue each, and the real QEMU guest agent."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import private_libvirt
import pytest
from demo.linux import INIT_BEGIN, READY, linux
from lab import kvm
from support.guests.measured_host import wait_until
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.live import LiveHost
from pinner.host.settings import table
from pinner.host.settings.inside.guests import InsideReader
from pinner.host.settings.row import Facts
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import INSIDE, SettingName
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.run.journal import Run
from pinner.model.settings.inside import GuestRps
from pinner.planning import planner
from pinner.store.journal.journal import StoredJournal

AGENT = shutil.which("qemu-ga", path=f"{os.environ['PATH']}:/usr/sbin")
_WHY_NOT = private_libvirt.missing() or ("" if AGENT and os.geteuid() == 0 else "needs root and qemu-guest-agent")
NEEDS_AGENT = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
BOOT_SECONDS = 180
"""A boot takes some seconds of CPU time under TCG, and a busy machine has little of it."""
_MODULES = ("virtio_pci", "virtio_net", "virtio_console")
_INIT = (
    INIT_BEGIN
    + """\
ip link set eth0 up
ip link set eth1 up
echo {ready} >/dev/ttyS0
(while :; do
    /agent/qemu-ga --method=virtio-serial --path="$(echo /dev/vport*p1)" --statedir=/agent --pidfile=/agent/pid
    sleep 1
done) >/dev/ttyS0 2>&1 &
while :; do
    echo "boot $(cat /proc/sys/kernel/random/boot_id) rps $(cat /sys/class/net/eth*/queues/rx-0/rps_cpus)" >/dev/ttyS0
    echo inside $(cat /proc/sys/net/core/rps_sock_flow_entries /sys/class/net/eth*/queues/rx-0/rps_flow_cnt \
        /proc/sys/net/core/rmem_max /proc/irq/*/smp_affinity_list) >/dev/ttyS0
    sleep 0.3
done
"""
)
"""It writes its settings to the console, so that a test need not believe the agent."""


@dataclass(frozen=True, slots=True)
class AgentGuest:
    """A running guest."""

    uri: str
    name: str
    console: Path
    vcpus = CpuSet.parse("0-1")

    def rps(self, libvirt: Libvirt) -> GuestRps:
        """The RPS of the guest, as its agent tells it."""
        guests = tuple(each for each in libvirt.guests(LIVE) if each.name == self.name)
        facts = Facts(LIVE, guests=guests, ask_guests=InsideReader(libvirt).read)
        (found,) = table.read(facts, ["guest_rps"])["guest_rps"]
        return found

    def queues(self, libvirt: Libvirt) -> list[Target]:
        """The queues of both cards, once the agent answers."""
        wait_until(lambda: not self.rps(libvirt).unread, BOOT_SECONDS)
        found = self.rps(libvirt)
        return [found.target(each) for each in found.queues]

    def masks(self) -> set[int]:
        """The masks of the queues, as the guest's console has shown them last."""
        shown = re.findall(r"rps ([0-9a-f]+)\s+([0-9a-f]+)\r?\n", self.console.read_text(errors="replace"))
        return {int(mask, 16) for masks in shown[-1:] for mask in masks}

    def settings(self) -> list[str]:
        """Flows of the kernel and of both queues, rmem_max, and the vCPUs of all interrupts, as the console has shown
        them last."""
        shown = re.findall(r"inside ([0-9 ,-]+)\r?\n", self.console.read_text(errors="replace"))
        return shown[-1].split() if shown else []

    def restart(self) -> None:
        """Reset the guest, and wait until it has started anew."""
        boots = self._boots()
        private_libvirt.virsh(self.uri, "reset", self.name)
        wait_until(lambda: self._boots() > boots, BOOT_SECONDS)

    def _boots(self) -> int:
        return len({*re.findall(r"boot (\S+) rps", self.console.read_text(errors="replace"))})


@contextmanager
def agent_guest(uri: str, folder: Path, vcpus: int = 2) -> Iterator[AgentGuest]:
    """A guest, after it has started; it ends with the context."""
    guest = AgentGuest(uri, f"agent-{os.getpid()}", folder / "console")
    try:
        private_libvirt.define_guest(uri, _xml(guest, folder, vcpus))
        wait_until(lambda: guest.console.exists() and READY in guest.console.read_text(errors="replace"), BOOT_SECONDS)
        yield guest
    finally:
        for command in (["destroy"], ["undefine", "--managed-save"]):
            with suppress(subprocess.CalledProcessError):
                private_libvirt.virsh(uri, *command, guest.name)


def _add_agent(tree: Path) -> None:
    """Add the agent with its libraries, each at its own path."""
    (tree / "agent").mkdir()
    shutil.copy(str(AGENT), tree / "agent/qemu-ga")
    told = subprocess.run(["ldd", str(AGENT)], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+) \(0x", told):
        copy = tree / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(library).resolve(), copy)


def _xml(guest: AgentGuest, folder: Path, vcpus: int) -> str:
    system = linux(folder, _INIT, _MODULES, _add_agent)
    kind = "kvm" if kvm.usable() else "qemu"
    taps = (f"ag{card}-{os.getpid() % 10_000_000}" for card in range(2))
    cards = "".join(
        f"<interface type='ethernet'><target dev='{tap}'/><model type='virtio'/></interface>" for tap in taps
    )
    return (
        f"<domain type='{kind}'><name>{guest.name}</name><memory unit='MiB'>128</memory>"
        f"<vcpu>{vcpus}</vcpu><os><type arch='x86_64' machine='pc'>hvm</type><kernel>"
        f"{system.kernel}</kernel><initrd>{system.initrd}</initrd><cmdline>console=ttyS0 quiet no_timer_check</cmdline>"
        f"</os><features><acpi/></features><devices><emulator>{private_libvirt.EMULATOR}</emulator>"
        f"<memballoon model='none'/><serial type='file'><source path='{guest.console}' append='on'/></serial>"
        f"{cards}<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
        "</devices></domain>"
    )


class AgentRuns:
    """Applies plans that change only the inside of guests, and rolls them back."""

    def __init__(self, libvirt: Libvirt, journal: StoredJournal) -> None:
        self._libvirt, self._host, self._journal = libvirt, LiveHost(libvirt), journal

    def begin_anew(self) -> None:
        """Go on like a new process of pinner, in which no guest has spent its time for answers."""
        self._host = LiveHost(self._libvirt)

    def plan(self, *remedies: SettingName) -> Plan:
        inputs = SnapshotInputs(ask_guests=InsideReader(self._libvirt).read)
        taken = take_snapshot(
            LIVE, "here", self._libvirt, sample_seconds=0.0, now=lambda: NOON, inputs=inputs, only=INSIDE
        )
        made = planner.plan(taken, "snapshot", Request(remedies=remedies))
        return replace(made, changes=tuple(each for each in made.changes if each.target.kind in INSIDE))

    def apply(self, plan: Plan, name: str) -> None:
        run = executor.apply(plan, make_run(name), self._host, self._journal, lambda: NOON, lambda *_: None)
        assert run.state == "applied", (run, self.errors(name))

    def rollback(self, name: str, undoes: str) -> Run:
        undo = make_run(name, kind="rollback", undoes=undoes)
        return executor.rollback(undo, self._host, self._journal, lambda: NOON, lambda *_: None)

    def states(self, name: str) -> set[str]:
        return {entry.state for entry in self._journal.entries(name)}

    def errors(self, name: str) -> list[str]:
        return [entry.error for entry in self._journal.entries(name)]


@contextmanager
def agent_runs(libvirt: Libvirt, folder: Path) -> Iterator[AgentRuns]:
    journal = StoredJournal(folder)
    yield AgentRuns(libvirt, journal)
    journal.close()
