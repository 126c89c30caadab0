"""Migrations of real guests between two libvirtds of one machine, the second of which has pinner's hook script."""

import os
import re
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import libvirt
import private_libvirt
from support.guests.real_guests import ONLINE
from support.system.kernel import masks

from pinner.cli import main
from pinner.host.processes import qemu
from pinner.host.virt import domain_xml

ROOT = Path("/")
FIRST, SECOND = str(ONLINE[0]), str(ONLINE[-1])
BOTH = f"{FIRST}-{SECOND}"
BEYOND = str(max(ONLINE) + 4)
"""A CPU that this machine does not have."""
NUMBERS = count()


@dataclass
class Destination:
    """The libvirtd that guests migrate to, and the folder of its hook scripts."""

    uri: str
    folder: Path

    @property
    def hooks(self):
        """The folder of the hook scripts."""
        return self.folder / "etc/hooks"

    def hook(self, command):
        """Install or remove pinner's hook script. libvirt must be restarted after the first one."""
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        assert main.main(["nova", command, "--root", str(root), "--hooks", str(self.hooks), "--yes"]) == 0

    def restart(self):
        with private_libvirt.killed(self.uri):
            pass
        deadline = time.monotonic() + 60
        while True:
            with suppress(subprocess.CalledProcessError):
                private_libvirt.virsh(self.uri, "list")
                return
            assert time.monotonic() < deadline


@contextmanager
def destination_at(folder):
    """A destination whose libvirtd is private, with pinner's hook script."""
    with private_libvirt.private_libvirtd(folder) as uri:
        destination = Destination(uri, folder)
        (destination.hooks / "qemu.d").mkdir(parents=True)
        destination.hook("install-hooks")
        destination.restart()
        # This guest takes the first id: a guest with the same id and name in both libvirtds would share a cgroup.
        private_libvirt.start_guest(uri, private_libvirt.guest_xml(f"first-{os.getpid()}"), paused=True)
        yield destination


class Mover:
    """A guest at the source, as a pinner there has placed it."""

    def __init__(self, source, *, cpus=FIRST, extra="", named=True):
        self.name = f"mover-{os.getpid()}-{next(NUMBERS)}"
        self.source = source
        tune = "".join(f"<{pin} cpuset='{cpus}'/>" for pin in ("vcpupin vcpu='0'", "vcpupin vcpu='1'", "emulatorpin"))
        tune += f"<iothreadpin iothread='1' cpuset='{cpus}'/>"
        if "<cputune>" not in extra:
            extra += f"<cputune>{tune}</cputune>"
        private_libvirt.start_guest(source, private_libvirt.guest_xml(self.name, extra=extra))
        if named:
            self.name_pins(cpus)

    def name_pins(self, cpus):
        """Write the metadata in which pinner names its pins."""
        parts = ("kind='vcpu' part='0'", "kind='vcpu' part='1'", "kind='emulator'", "kind='iothread' part='1'")
        self.set_metadata("urn:pinner:pins:1", "pinner", pins(*(f"{part} cpus='{cpus}'" for part in parts)))

    def set_metadata(self, uri, key, xml):
        # virsh takes the metadata only as an argument, which is at most 128 KiB long.
        with closing(libvirt.open(self.source)) as connection:
            domain = connection.lookupByName(self.name)
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, key, uri, libvirt.VIR_DOMAIN_AFFECT_LIVE)

    def xml(self, uri=None):
        return private_libvirt.virsh(uri or self.source, "dumpxml", "--migratable", self.name)

    def migrate(self, destination, *arguments, tmp_path=None, xml=""):
        """Migrate the guest; returns where its threads ran from its first moment at the destination."""
        given = []
        if xml:
            (tmp_path / "destination.xml").write_text(xml)
            given = ["--xml", str(tmp_path / "destination.xml")]
        before = self.pid()
        with Watch(private_libvirt.virsh(self.source, "domuuid", self.name).strip(), before) as watch:
            command = ["virsh", "-c", self.source, "migrate", "--live", self.name, destination.uri]
            how = arguments or ("tcp://127.0.0.1",)
            done = subprocess.run([*command, *how, *given], capture_output=True, text=True, timeout=60)
            if done.returncode:
                raise NotMigrated(done.stderr)
            time.sleep(0.2)
        return watch

    def pid(self):
        uuid = private_libvirt.virsh(self.source, "domuuid", self.name).strip()
        return qemu.find(ROOT, {uuid}).qemus[uuid]

    def end(self):
        with suppress(subprocess.CalledProcessError):
            private_libvirt.virsh(self.source, "destroy", self.name)


class NotMigrated(Exception):
    """libvirt could not migrate the guest."""


def pins(*pins):
    return f"<pins>{''.join(f'<pin {pin}/>' for pin in pins)}</pins>"


class Watch:
    """The affinities of the vCPUs of a guest that arrives, read from the kernel every few milliseconds."""

    def __init__(self, uuid, before):
        self.uuid, self.before = uuid, before
        self.seen, self.last = set(), {}
        self.open = True
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.open = False
        self.thread.join()

    def work(self):
        while self.open:
            with suppress(OSError, KeyError, AssertionError):
                found = qemu.find(ROOT, {self.uuid}).qemus[self.uuid]
                if found != self.before:
                    self.last = masks(found)
                    self.seen |= set(vcpus(found).values())
            time.sleep(0.005)


def vcpus(pid):
    """The affinity of each vCPU of a QEMU, by the name of its thread."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        name = re.search(r"Name:\t(.*)", status)[1]
        if name.startswith("CPU "):
            found[name] = re.search(r"Cpus_allowed_list:\t(.*)", status)[1]
    return found


def arrived(mover, destination):
    return domain_xml.parse(mover.xml(destination.uri))


def vcpus_of(mover, destination):
    uuid = private_libvirt.virsh(destination.uri, "domuuid", mover.name).strip()
    return vcpus(qemu.find(ROOT, {uuid}).qemus[uuid])
