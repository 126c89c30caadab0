"""No file descriptor is left: then nothing is known about a file, and nothing passes for absent or ended."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinner.host.hardware.sysfs import read_topology
from pinner.host.kernel import affinity, beneath, files, procfs
from pinner.host.live import LiveHost
from pinner.host.nova import nova_process
from pinner.host.processes import lineage, qemu
from pinner.host.processes.immovable import OwnProcesses
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Busy

ROOT = Path("/")
ME = os.getpid()
STARTED = procfs.started(ROOT, ME)
DAEMON = Target("process", str(ME), STARTED, "me")


@contextmanager
def exhausted() -> Iterator[None]:
    """This process can open no file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def calls():
    host = LiveHost(Libvirt("test:///default"))
    return {
        "text": lambda: files.text(Path("/proc/self/stat")),
        "a list of CPUs": lambda: files.cpu_list(Path("/sys/devices/system/cpu/online")),
        "numbers": lambda: files.numbers("/proc"),
        "numbered": lambda: files.numbered(Path("/sys/devices/system/cpu"), "cpu"),
        "a thread": lambda: affinity.mask(ME),
        "threads": lambda: affinity.masks(ME),
        "setting a mask": lambda: affinity.set_affinity(ThreadMask(ME, STARTED, CpuSet.of(os.sched_getaffinity(0)))),
        "the start of a process": lambda: procfs.started(ROOT, ME),
        "its threads": lambda: procfs.threads_of(ROOT, ME),
        "its lineage": lambda: lineage.read(ME),
        "all processes": lineage.scan,
        "QEMUs": lambda: qemu.find(ROOT, {"uuid"}, {}),
        "own processes": lambda: 1 in OwnProcesses(0),
        "the topology": lambda: read_topology(ROOT),
        "the target of a change": lambda: host.masks(DAEMON),
        "the online CPUs": host.online,
    }


@pytest.mark.fault(56)
@pytest.mark.parametrize("name", calls())
def test_a_reader_says_that_it_cannot_read(name):
    call = calls()[name]
    with exhausted(), pytest.raises(Busy, match="this host: no file can be opened"):
        call()


@pytest.mark.fault(56)
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_a_path_below_a_root_is_not_taken_for_absent(tmp_path, kernel, monkeypatch):
    if kernel == "old":

        def missing(*_):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(beneath, "openat2", missing)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nova.conf").write_text("")
    with nova_process.opened(str(tmp_path)) as root, beneath.folder(tmp_path, "etc") as folder:
        for call in (
            lambda: root.exists("/etc/nova.conf"),
            lambda: root.names("/etc"),
            lambda: root.read("/etc/nova.conf"),
            lambda: beneath.read(folder, "nova.conf"),
            lambda: beneath.open_folder(folder, "."),
        ):
            with exhausted(), pytest.raises(Busy):
                call()
        assert root.exists("/etc/nova.conf")
        assert beneath.read(folder, "nova.conf") == ""
