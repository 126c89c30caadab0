"""Guests as pinner reads them from a real libvirt and the kernel."""

import os
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import private_libvirt
import pytest
from support.system import another_user
from support.system.kernel import masks, names

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, HostUnreachable, NotPermitted

ROOT = Path("/")

NOVA = """<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/{version}">
<nova:name>web</nova:name><nova:flavor name="m1.small">{specs}</nova:flavor>
<nova:owner><nova:user uuid="1">ann</nova:user><nova:project uuid="2">shop</nova:project></nova:owner>
</nova:instance></metadata>"""
DEDICATED = '<nova:extraSpecs><nova:extraSpec name="hw:cpu_policy">dedicated</nova:extraSpec></nova:extraSpecs>'


def test_threads_have_the_roles_that_qemu_names(start_guest):
    guest = start_guest(vcpus=2, iothreads=2)
    named = names(guest.pid)
    assert {vcpu.id: named[vcpu.thread.tid] for vcpu in guest.vcpus} == {0: "CPU 0/TCG", 1: "CPU 1/TCG"}
    assert {io.id: named[io.thread.tid] for io in guest.iothreads} == {1: "IO iothread1", 2: "IO iothread2"}
    emulator = {thread.tid for thread in guest.emulator.threads}
    assert guest.pid in emulator
    assert {named[tid] for tid in emulator} >= {"qemu-system-x86", "IO mon_iothread"}
    parts = [vcpu.thread.tid for vcpu in guest.vcpus] + [io.thread.tid for io in guest.iothreads]
    assert sorted([*parts, *emulator]) == sorted(named)


def test_masks_are_those_of_the_kernel(start_guest, libvirtd):
    guest = start_guest(vcpus=2)
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "1", "0", "--live")
    found = next(each for each in Libvirt(libvirtd).guests(ROOT) if each.name == guest.name)
    kernel = masks(guest.pid)
    assert str(found.vcpus[1].thread.affinity) == kernel[found.vcpus[1].thread.tid] == "0"
    assert str(found.vcpus[1].pin) == "0"
    assert found.vcpus[0].pin == guest.vcpus[0].pin
    for thread in (*found.emulator.threads, found.vcpus[0].thread, found.iothreads[0].thread):
        assert str(thread.affinity) == kernel[thread.tid]


def test_state_memory_and_threads_are_read(start_guest):
    paused, running = start_guest(persistent=True, memory_mib=32), start_guest(paused=False)
    assert (paused.state, paused.persistent, paused.memory_kib) == ("paused", True, 32 * 1024)
    assert (running.state, running.persistent, running.nova, running.dedicated) == ("running", False, None, False)
    assert sum(running.memory_per_node.values()) > 1024
    assert all(thread.run_ns and thread.started for thread in paused.emulator.threads)


def test_an_unplugged_vcpu_has_no_thread(start_guest):
    guest = start_guest(vcpus=3, plugged=1)
    assert [vcpu.thread is None for vcpu in guest.vcpus] == [False, True, True]


@pytest.mark.needs("taps")
def test_a_tap_is_read_with_its_counters(start_guest):
    tap = f"pt{os.getpid()}"
    device = f"<interface type='ethernet'><mac address='52:54:00:00:00:01'/><target dev='{tap}'/></interface>"
    guest = start_guest(devices=device, paused=False)
    assert [(tap.name, tap.mac) for tap in guest.taps] == [(tap, "52:54:00:00:00:01")]
    folder = Path(f"/sys/class/net/{tap}/statistics")
    assert guest.taps[0].tx_drops <= int((folder / "tx_dropped").read_text())


@pytest.mark.parametrize("version", [pytest.param("1.0", marks=pytest.mark.slow("an older metadata of Nova")), "1.1"])
@pytest.mark.parametrize(
    ("specs", "pins", "dedicated"),
    [
        (DEDICATED, "", True),
        ("", "<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>", True),
        ("", "<cputune><vcpupin vcpu='0' cpuset='0-1'/></cputune>", False),
        ("", "", False),
    ],
    ids=["by its flavor", "by its pins", "shared", "unpinned"],
)
def test_the_metadata_of_nova_is_read(start_guest, version, specs, pins, dedicated):
    guest = start_guest(persistent=True, extra=NOVA.format(version=version, specs=specs) + pins)
    assert guest.nova is not None
    assert (guest.nova.instance, guest.nova.flavor) == ("web", "m1.small")
    assert (guest.nova.project, guest.nova.user) == ("shop", "ann")
    assert guest.dedicated is dedicated


def test_a_live_pin_alone_makes_no_nova_guest_dedicated(start_guest, libvirtd):
    """pinner's own pins are live pins, which must not look like pins of Nova."""
    guest = start_guest(persistent=True, extra=NOVA.format(version="1.1", specs=""))
    private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "0", "0", "--live")
    assert not next(each for each in Libvirt(libvirtd).guests(ROOT) if each.name == guest.name).dedicated


def test_a_guest_whose_qemu_was_killed_is_not_listed(start_guest, kill, libvirt):
    guest, other = start_guest(), start_guest()
    kill(guest)
    found = {each.uuid for each in libvirt.guests(ROOT)}
    assert other.uuid in found
    assert guest.uuid not in found


def test_a_guest_with_a_stopped_qemu_is_read(start_guest, libvirt):
    guest = start_guest()
    os.kill(guest.pid, 19)
    try:
        found = next(each for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)
        assert len(found.vcpus) == 2
    finally:
        os.kill(guest.pid, 18)


def test_another_process_with_the_uuid_on_its_command_line_is_ignored(start_guest, libvirt):
    guest = start_guest()
    code = "print('ready', flush=True); input()"
    command = [sys.executable, "-c", code, "-uuid", guest.uuid]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as impostor:
        assert impostor.stdout.readline()
        found = next(each for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)
        impostor.communicate(b"\n")
    assert found.pid == guest.pid


def test_a_process_of_another_user_that_waited_for_the_guest_is_not_its_qemu(start_guest, libvirt):
    """A guest keeps its UUID when it is started again, so the impostor can be older than QEMU."""
    uuid = str(uuid4())
    code = "echo qemu-impostor > /proc/self/comm; echo; read line"
    command = ["/bin/sh", "-c", code, "-uuid", uuid]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, user=another_user.ID, group=another_user.ID, extra_groups=[], **pipes) as impostor:
        assert impostor.stdout.read(1)
        guest = start_guest(extra=f"<uuid>{uuid}</uuid>")
        assert (guest.uuid, "qemu-system-x86" in names(guest.pid).values()) == (uuid, True)
        host = LiveHost(libvirt)
        assert {mask.tid for mask in host.masks(Target("emulator", uuid, None, guest.name))} <= set(names(guest.pid))


def test_the_error_names_libvirt_when_it_is_down(tmp_path, capfd):
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    with pytest.raises(
        HostUnreachable, match=r"libvirt does not answer at qemu.*; start libvirtd or set \[libvirt\] uri"
    ):
        Libvirt(uri).guests(ROOT)
    assert capfd.readouterr().err == ""


def test_the_error_says_that_libvirt_refuses_the_connection(libvirtd):
    """Only root may use libvirtd's socket here; the process that connects has given up root."""
    socket = libvirtd.partition("socket=")[2]
    before = Path(socket).stat().st_mode
    imports = (
        "import libvirt\nfrom pinner.host.virt.libvirt import Libvirt\nfrom pinner.model.errors import NotPermitted\n"
    )
    code = f"try: Libvirt({libvirtd!r}).capabilities()\nexcept NotPermitted as error: print(error.code)\n"
    Path(socket).chmod(0o700)
    try:
        done = another_user.run(imports, code)
    finally:
        Path(socket).chmod(before)
    assert done.stdout == f"{NotPermitted.code}\n", done.stderr


def test_a_lost_connection_is_opened_again(libvirt, libvirtd, start_guest):
    guest = start_guest(persistent=True)
    admin = "libvirtd+unix:///system?socket=" + libvirtd.partition("socket=")[2].replace(
        "libvirt-sock", "libvirt-admin-sock"
    )
    rows = subprocess.run(
        ["virt-admin", "-c", admin, "client-list", "libvirtd"], capture_output=True, text=True, check=True
    )
    for row in rows.stdout.splitlines()[2:]:
        if row.strip():
            subprocess.run(
                ["virt-admin", "-c", admin, "client-disconnect", "libvirtd", row.split()[0]], capture_output=True
            )
    assert libvirt.persistent(guest.uuid)


@pytest.mark.fault(23)
def test_errors_of_pins_name_the_cpu_or_the_missing_part(start_guest, kill, host: LiveHost, libvirt: Libvirt):
    guest = start_guest()
    absent = max(os.sched_getaffinity(0)) + 1
    vcpu = Target("vcpu", guest.uuid, 0, guest.name)
    with pytest.raises(ApplyFailed, match=f"CPUs {absent} are not online"):
        host.pin(vcpu, CpuSet.of([0, absent]), persist=False)
    with pytest.raises(ApplyFailed, match=r"libvirt: .*transient"):
        host.pin(vcpu, CpuSet.of([0]), persist=True)
    for part in (7, 3):
        with pytest.raises(Gone, match=f"guest {guest.name} vcpu {part} is gone"):
            host.masks(Target("vcpu", guest.uuid, part, guest.name))
    kill(guest)
    with pytest.raises(Gone):
        host.masks(vcpu)
    with pytest.raises(Gone):
        libvirt.pin(vcpu, CpuSet.of([0]), persist=False)
    # libvirtd notices the end of QEMU a moment later.
    deadline = time.monotonic() + 60
    with pytest.raises(Gone):
        while time.monotonic() < deadline:
            libvirt.definition(guest.uuid)
