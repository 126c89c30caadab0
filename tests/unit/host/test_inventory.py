import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.roots import CPU, NODE, kernel_thread, process, two_nodes
from support.values import NOON

from pinner import codec
from pinner.host.hardware.sysfs import read_topology
from pinner.host.inventory import SnapshotInputs, baseline_of, take_snapshot
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.guest.guest import Emulator, Guest, InactiveGuest
from pinner.model.guest.nova import NovaConf, NovaSets
from pinner.model.machine.process import Thread
from pinner.model.snapshot import Snapshot

QEMU = Guest("uuid", "vm", "running", 100, (), Emulator(CpuSet(), ()), (), (), 1024, {})


class FakeLibvirt:
    """Replaces libvirt for answers that a real libvirtd never gives."""

    def __init__(self, capabilities="<capabilities/>", guests=(QEMU,)):
        self.xml = capabilities
        self._guests = guests

    def guests(self, root, *, memory=True):
        return self._guests

    def inactive(self):
        return (InactiveGuest("off", "uuid-2"),)

    def capabilities(self):
        return self.xml


def snapshot(root, libvirt=None, *, only=None, **options):
    return take_snapshot(
        root, "h1", libvirt, sample_seconds=0, now=lambda: NOON, inputs=SnapshotInputs(**options), only=only
    )


def test_a_snapshot_in_full(tmp_path):
    two_nodes(tmp_path)
    process(tmp_path, 1, cpus="0-5,7")
    process(tmp_path, 10, cpus="4")
    process(tmp_path, 11, cpus="0-1")
    process(tmp_path, 12)
    process(tmp_path, 100, command=b"/opt/vmm\0")
    kernel_thread(tmp_path, 101, b"vhost-100")
    placed = (CpuSet.parse("0-1"),)
    found = snapshot(tmp_path, FakeLibvirt(), own={12}, placed=placed, sets=NovaSets(CpuSet.parse("6")))
    assert (found.host, found.taken_at, found.sample_seconds) == ("h1", NOON, 0)
    assert (str(found.baseline), str(found.dedicated), found.placed) == ("0-5", "6", placed)
    assert found.guests == (QEMU,)
    assert found.inactive == (InactiveGuest("off", "uuid-2"),)
    assert [
        (process.pid, process.immovable_reason, process.threads[0].immovable_reason) for process in found.processes
    ] == [
        (1, "", ""),
        (10, "", "restricted"),
        (11, "", ""),
        (12, "pinner", "pinner"),
        (100, "guest", "guest"),
        (101, "guest", "guest"),
    ]
    assert found.warnings == ("libvirt reports no nodes; sysfs reports nodes 0,2",)
    assert codec.load(Snapshot, codec.dump(found)) == found


def test_threads_that_pinner_may_not_move(tmp_path):
    two_nodes(tmp_path)
    process(tmp_path, 1, cpus="0-5,7")
    process(tmp_path, 100, command=b"/opt/vmm\0")
    kernel_thread(tmp_path, 101, b"kvm-pit/100")
    kernel_thread(tmp_path, 102, b"kswapd0")
    timer = Thread(101, 1, "kvm-pit/100", CpuSet.parse("0-7"))
    libvirt = FakeLibvirt(guests=(replace(QEMU, vhost_threads=(timer, replace(timer, tid=103))),))
    found = snapshot(tmp_path, libvirt, forbidden={101, 102})
    assert [thread.immovable_reason for thread in found.guests[0].vhost_threads] == ["not-permitted", ""]
    assert {each.pid: each.immovable_reason for each in found.processes} == {
        1: "",
        100: "guest",
        101: "guest",
        102: "not-permitted",
    }


def test_a_snapshot_with_the_settings_of_one_kind():
    """A snapshot for an admission has no warnings, and libvirt's capabilities are only for warnings."""

    class WithoutCapabilities(FakeLibvirt):
        def capabilities(self):
            pytest.fail("libvirt is asked for its capabilities")

    full = snapshot(Path("/"), FakeLibvirt())
    found = snapshot(Path("/"), WithoutCapabilities(), only={"rps", "process"})
    assert (found.irqs, found.sysctls, found.rings, found.warnings) == (None, None, None, ())
    assert (found.governors, found.coalescing, found.cpu_weights) == (None, None, None)
    assert None not in (full.governors, full.coalescing, full.cpu_weights)
    assert found.rps is not None
    assert found.rps == full.rps
    assert found.topology.fingerprint == full.topology.fingerprint
    assert (found.guests, found.inactive, found.boot) == (full.guests, full.inactive, full.boot)


def test_a_captured_machine_without_processes(tmp_path):
    found = snapshot(two_nodes(tmp_path))
    assert (found.processes, found.guests, str(found.baseline), found.warnings) == ((), (), "0-6", ())


def test_no_load_is_measured_on_a_captured_machine(tmp_path):
    def sleep(seconds):
        raise AssertionError(f"slept {seconds} s")

    found = take_snapshot(
        two_nodes(tmp_path), "h1", None, sample_seconds=5, now=lambda: NOON, inputs=SnapshotInputs(sleep=sleep)
    )
    assert found.sample_seconds == 0


def test_loads_of_the_live_machine_are_measured():
    slept = []
    found = take_snapshot(
        Path("/"), "h1", None, sample_seconds=0.5, now=lambda: NOON, inputs=SnapshotInputs(sleep=slept.append)
    )
    assert (found.sample_seconds, slept) == (0.5, [0.5])


def test_contradictions_are_warnings(tmp_path):
    root = two_nodes(tmp_path, {f"{NODE}/node2/cpulist": "0-1,3,5"})
    first, second = snapshot(root, FakeLibvirt("no XML")).warnings
    assert first == "node 2 lists CPUs 0 of node 0; pinner uses the first node that lists a CPU"
    assert second.startswith("capabilities: 'no XML' is not valid")


def test_the_baseline_ignores_a_mask_of_process_1_that_pinner_set(tmp_path):
    root = process(two_nodes(tmp_path, {f"{CPU}/isolated": "5-6"}), 1, cpus="0-1")
    topology = read_topology(root)
    assert str(baseline_of(root, topology)) == "0-1"
    assert str(baseline_of(root, topology, (CpuSet.parse("0-1"),))) == "0-4"


def test_a_root_without_cpus_is_refused(tmp_path):
    with pytest.raises(Invalid, match="cpu0"):
        snapshot(tmp_path)


def test_a_snapshot_of_the_live_machine():
    found = snapshot(Path("/"), own={os.getpid()})
    mine = next(process for process in found.processes if process.pid == os.getpid())
    assert (mine.immovable_reason, mine.threads[0].affinity.ids) == ("pinner", os.sched_getaffinity(0))
    assert found.baseline
    assert found.topology.online.ids >= os.sched_getaffinity(0)
    assert found.warnings == ()
    assert codec.load(Snapshot, codec.dump(found)) == found


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed")
def test_a_real_qemu_that_libvirt_does_not_know_is_a_guest():
    command = ["qemu-system-x86_64", "-machine", "none", "-display", "none", "-nodefaults", "-S", "-monitor", "stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as qemu:
        qemu.stdout.readline()
        found = next(process for process in snapshot(Path("/")).processes if process.pid == qemu.pid)
        qemu.communicate(b"quit\n", timeout=60)
    assert found.immovable_reason == "guest"
    assert {thread.immovable_reason for thread in found.threads} == {"guest"}


@pytest.mark.parametrize(
    ("own_sets", "conf", "dedicated", "shared"),
    [
        (NovaSets(), None, "", ""),
        (NovaSets(), NovaConf((), "4-7,^5", " 0-3,, "), "4,6-7", "0-3"),
        (NovaSets(CpuSet.parse("2")), NovaConf((), "4-7", "0-3"), "2", "0-3"),
        (NovaSets(), NovaConf((), pin_set="2-5", shared="0-1"), "", "2-5"),
        (NovaSets(), NovaConf((), "4-x", "0-3"), "", ""),
        (NovaSets(CpuSet.parse("2")), NovaConf(("/etc/nova/nova.conf",), error="no right"), "2", ""),
    ],
    ids=["nothing", "nova.conf", "pinner's own first", "vcpu_pin_set", "invalid set", "unreadable file"],
)
def test_novas_cpu_sets_of_a_snapshot(tmp_path, own_sets, conf, dedicated, shared):
    found = snapshot(two_nodes(tmp_path), sets=own_sets, nova=conf)
    assert (str(found.dedicated), str(found.shared), found.nova) == (dedicated, shared, conf)
    assert codec.load(Snapshot, codec.dump(found)) == found
