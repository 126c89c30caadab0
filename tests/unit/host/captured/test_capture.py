"""A captured machine gives the same snapshot as the machine itself, and a scrubbed capture contains no names."""

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.roots import CPU, kernel_thread, process, two_nodes, write

from pinner.host.captured.capture import capture
from pinner.host.hardware.sysfs import read_topology
from pinner.host.inventory import take_snapshot
from pinner.host.kernel import files
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid

SECRETS = (b"s3cret", b"payroll", b"tap0", b"10.0.0.7", b"guest-of-acme")
SECOND = "proc/20/task/21"


@pytest.fixture
def root(tmp_path):
    """A machine with a daemon, a guest, a kernel thread, a tap, a partition and a network card."""
    machine = two_nodes(tmp_path / "machine")
    process(
        machine,
        10,
        name=b"payroll",
        command=b"/opt/payroll\0--key=s3cret\0",
        cgroup="0::/system.slice/payroll.service\n",
    )
    process(
        machine,
        20,
        name=b"qemu-system-x86",
        command=b"/usr/bin/qemu-system-x86_64\0-name\0guest=guest-of-acme\0",
        cgroup="0::/machine.slice/machine-qemu\\x2d1\\x2dguest-of-acme.scope\n",
        threads=(21,),
    )
    kernel_thread(machine, 30, b"vhost-20", cpus="1-3")
    stat = (machine / SECOND / "stat").read_bytes()
    card = "sys/devices/pci0000:00/0000:00:03.0"
    write(
        machine,
        {
            "proc/cmdline": "root=UUID=s3cret isolcpus=3 nohz-full=3 -- --listen 10.0.0.7\n",
            "proc/mounts": "10.0.0.7:/payroll /mnt nfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            f"{SECOND}/stat": stat.replace(b"(qemu-system-x86)", b"(CPU 0/KVM)"),
            "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
            "sys/fs/cgroup/lab/cpuset.cpus.partition": "isolated\n",
            "sys/fs/cgroup/lab/cpuset.cpus.effective": "5\n",
            "sys/fs/cgroup/payroll/cpuset.cpus.partition": "member\n",
            f"{card}/class": "0x020000\n",
            f"{card}/vendor": "0x8086\n",
            f"{card}/device": "0x1572\n",
            f"{card}/numa_node": "2\n",
            f"{card}/uevent": "DRIVER=i40e\n",
            f"{card}/net/eth0/mtu": "1500\n",
            "sys/devices/virtual/net/tap0/mtu": "1500\n",
        },
    )
    links = {
        "sys/bus/pci/devices/0000:00:03.0": "../../../devices/pci0000:00/0000:00:03.0",
        "sys/class/net/eth0": "../../devices/pci0000:00/0000:00:03.0/net/eth0",
        "sys/class/net/tap0": "../../devices/virtual/net/tap0",
        f"{card}/net/eth0/device": "../../../0000:00:03.0",
    }
    for name, target in links.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).symlink_to(target)
    return machine


def snapshot(root):
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    return take_snapshot(root, "host", None, sample_seconds=0, now=lambda: moment)


def test_a_capture_gives_the_same_snapshot_as_the_machine(root, tmp_path):
    capture(root, tmp_path / "copy", scrub=False)
    first = snapshot(root)
    assert snapshot(tmp_path / "copy") == first
    assert [(device.name, device.node) for device in first.topology.devices if device.kind == "net"] == [
        ("eth0", 2),
        ("tap0", None),
    ]
    assert first.topology.isolated == CpuSet.of([5])
    assert [process.name for process in first.processes] == ["payroll", "qemu-system-x86", "vhost-20"]


def test_a_scrubbed_capture_contains_no_names(root, tmp_path):
    copy = tmp_path / "copy"
    capture(root, copy, scrub=True)
    for path in copy.rglob("*"):
        name_and_content = bytes(path.relative_to(copy)) + (path.read_bytes() if path.is_file() else b"")
        assert not [secret for secret in SECRETS if secret in name_and_content], path
    first, second = snapshot(root), snapshot(copy)
    ours = [device for device in first.topology.devices if device.name != "tap0"]
    assert second.topology.kernel.command_line == "root= isolcpus=3 nohz-full=3"
    kernel = first.topology.kernel
    assert replace(second.topology, kernel=kernel) == replace(first.topology, devices=tuple(ours))
    assert [(p.name, p.command, p.unit, p.immovable_reason) for p in second.processes] == [
        ("process-10", "process-10", "unit-1.service", ""),
        ("qemu-system-x86", "qemu-system-x86_64", "unit-2.scope", "guest"),
        ("vhost-20", "", "", "guest"),
    ]
    assert [t.name for p in second.processes for t in p.threads] == [
        "process-10",
        "qemu-system-x86",
        "CPU 0/KVM",
        "vhost-20",
    ]
    for mine, theirs in zip(first.processes, second.processes, strict=True):
        assert [(t.tid, t.started, t.affinity, t.immovable_reason) for t in mine.threads] == [
            (t.tid, t.started, t.affinity, t.immovable_reason) for t in theirs.threads
        ]


@pytest.mark.parametrize(("users", "expected"), [("0 0 0 0", (0, "privileged")), ("1001 0 0 0", (65534, ""))])
def test_a_scrubbed_capture_tells_of_a_user_only_whether_it_is_root(root, tmp_path, users, expected):
    process(root, 10, cpus="2", users=users)
    capture(root, tmp_path / "copy", scrub=True)
    assert "1001" not in (tmp_path / "copy/proc/10/status").read_text()
    restricted = next(each for each in snapshot(tmp_path / "copy").processes if each.pid == 10)
    assert (restricted.user, restricted.reserves) == expected


def test_a_capture_of_this_machine_has_its_fingerprint(tmp_path):
    capture(Path("/"), tmp_path / "copy", scrub=False)
    assert read_topology(tmp_path / "copy").fingerprint == read_topology(Path("/")).fingerprint


def test_a_folder_that_is_removed_meanwhile_is_left_out(root, tmp_path, monkeypatch):
    """As that of a CPU that goes offline, or of a guest's partition."""
    cpu, scandir = root / "sys/devices/system/cpu/cpu1/topology", os.scandir

    def look(path):
        if Path(os.fspath(path)) == cpu:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return scandir(path)

    assert cpu.is_dir()
    monkeypatch.setattr(os, "scandir", look)
    capture(root, tmp_path / "copy", scrub=False)
    assert not (tmp_path / "copy" / cpu.relative_to(root)).exists()
    assert (tmp_path / "copy/sys/devices/system/cpu/cpu0/topology").is_dir()


def test_only_the_owner_can_read_a_capture(root, tmp_path):
    capture(root, tmp_path / "copy", scrub=False)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700


def test_a_link_that_takes_the_folders_place_is_not_followed(root, tmp_path, monkeypatch):
    """The owner of the folder above can replace the folder while root writes into it."""
    victim, shown = tmp_path / "victim", tmp_path / "moved"
    victim.mkdir()
    real = files.read

    def swap(path, *arguments, **more):
        if (tmp_path / "copy").exists() and not shown.exists():
            (tmp_path / "copy").rename(shown)
            (tmp_path / "copy").symlink_to(victim)
        return real(path, *arguments, **more)

    monkeypatch.setattr(files, "read", swap)
    assert capture(root, tmp_path / "copy", scrub=False) > 10
    assert list(victim.iterdir()) == []
    assert (shown / "proc/cmdline").exists()


@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_a_folder_that_others_can_write_is_closed_and_a_link_is_refused(root, tmp_path, kind):
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o777)
    if kind == "a link":
        (tmp_path / "copy").symlink_to(tmp_path / "real")
        with pytest.raises(Invalid):
            capture(root, tmp_path / "copy", scrub=False)
        assert list((tmp_path / "real").iterdir()) == []
    else:
        capture(root, tmp_path / "real", scrub=False)
        assert (tmp_path / "real").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_not_empty_is_refused(root, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(Invalid, match="a new or empty folder"):
        capture(root, tmp_path / "full", scrub=False)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_a_folder_that_cannot_be_created_is_refused(root, tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="a folder that can be written"):
        capture(root, tmp_path / folder, scrub=False)


def test_a_root_without_cpus_is_refused_before_the_folder_is_created(tmp_path):
    with pytest.raises(Invalid, match="root"):
        capture(tmp_path, tmp_path / "copy", scrub=False)
    assert not (tmp_path / "copy").exists()


def test_a_link_out_of_the_root_is_not_followed(root, tmp_path):
    (root / f"{CPU}/cpu0/cache").symlink_to("../../../../../../../outside")
    write(tmp_path, {"outside/index0/level": "3"})
    capture(root, tmp_path / "copy", scrub=False)
    assert not list(tmp_path.glob("copy/**/index0"))
