"""The guests of a captured machine, and damaged files of a capture."""

import pytest
from support.roots import CPU, process, two_nodes, write

from pinner.host.captured.capture import capture, captured_guests
from pinner.host.kernel import partitions
from pinner.host.virt.guests import DomainDescription
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.process import CpuLimit

UUID = "6a5b7a0e-0000-4000-8000-00000000acce"
UNIT = "machine.slice/machine-qemu\\x2d1\\x2dacme.scope"
XML = f"""<domain><name>acme-db</name><uuid>{UUID}</uuid><memory unit='KiB'>2048</memory><vcpu>1</vcpu>
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/><target dev='tap-acme'/></interface></devices>
</domain>"""
GUEST = DomainDescription(UUID, "acme-db", "paused", XML, None)
CAPABILITIES = "<capabilities><host><topology/></host></capabilities>"
NUMA_MAPS = "7f0 default file=/acme/s3cret anon=3 N0=1 N2=2 kernelpagesize_kB=4\n"

HUGE = "9" * 400


@pytest.fixture
def root(tmp_path):
    """A machine with one guest, which has a tap."""
    machine = two_nodes(tmp_path / "machine")
    command = f"/usr/bin/qemu-system-x86_64\0-uuid\0{UUID}\0".encode()
    process(machine, 20, name=b"qemu-system-x86", command=command, cgroup=f"0::/{UNIT}/libvirt/emulator\n")
    write(machine, {f"sys/fs/cgroup/{name}/cpuset.cpus": "0-3\n" for name in ("machine.slice", UNIT)})
    write(machine, {f"sys/fs/cgroup/{name}/cpuset.cpus.partition": "member\n" for name in ("machine.slice", UNIT)})
    write(machine, {"sys/fs/cgroup/machine.slice/cpuset.cpus.effective": "0-3\n"})
    write(machine, {"proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", f"{CPU}/possible": "0-7\n"})
    write(machine, {"sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n"})
    counters = {"rx_packets": "7\n", "tx_packets": "8\n", "rx_dropped": "5\n", "tx_dropped": "6\n"}
    tap = "sys/devices/virtual/net/tap-acme"
    write(machine, {f"{tap}/statistics/{name}": value for name, value in counters.items()})
    write(machine, {"proc/20/numa_maps": NUMA_MAPS, f"{tap}/mtu": "1500\n"})
    (machine / "sys/class/net").mkdir(parents=True)
    (machine / "sys/class/net/tap-acme").symlink_to("../../devices/virtual/net/tap-acme")
    return machine


def test_taps_memory_units_and_limits_are_captured(root, tmp_path):
    capture(root, tmp_path / "copy", [GUEST], CAPABILITIES, scrub=False)
    (guest,) = captured_guests(tmp_path / "copy").guests(tmp_path / "copy")
    assert (guest.uuid, guest.name, guest.state, guest.pid) == (UUID, "acme-db", "paused", 20)
    (tap,) = guest.taps
    assert (tap.name, tap.rx_packets, tap.tx_packets, tap.rx_drops, tap.tx_drops) == ("tap-acme", 7, 8, 5, 6)
    assert guest.memory_per_node == {0: 4, 2: 8}
    assert [(cgroup.path, str(cgroup.state.cpus)) for cgroup in guest.cgroups] == [
        ("machine.slice", "0-3"),
        (UNIT, "0-3"),
    ]
    assert guest.cgroups == partitions.UnitReader(root).units_of(20)
    assert guest.cpu_limits == (CpuLimit("machine.slice", CpuSet.parse("0-3")),)


def test_a_scrubbed_guest_has_no_name_and_no_tap(root, tmp_path):
    capture(root, tmp_path / "copy", [GUEST], CAPABILITIES, scrub=True)
    (guest,) = captured_guests(tmp_path / "copy").guests(tmp_path / "copy")
    assert (guest.name, guest.pid, guest.taps, guest.memory_per_node) == ("guest-1", 20, (), {0: 4, 2: 8})
    for path in (tmp_path / "copy").rglob("*"):
        assert "acme" not in str(path)
        assert not path.is_file() or not any(name in path.read_bytes() for name in (b"acme", b"acce", b"s3cret"))


def test_a_capture_without_libvirt_has_no_guests(root, tmp_path):
    capture(root, tmp_path / "copy", scrub=False)
    assert captured_guests(tmp_path / "copy") is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("live.xml", b"<domain>"),
        ("live.xml", b""),
        ("live.xml", XML.replace("<vcpu>1", "<vcpu cpuset='x'>1").encode()),
        ("live.xml", XML.replace("<vcpu>1", "<vcpu>many").encode()),
        ("live.xml", XML.replace("<vcpu>1", "<vcpu>8193").encode()),
        ("live.xml", XML.replace(">2048<", f">{HUGE}<").encode()),
        ("live.xml", XML.replace("<vcpu>1", "<iothreads>-1</iothreads><vcpu>1").encode()),
        ("definition.xml", b"nonsense"),
        ("state", b"nonsense"),
    ],
)
def test_a_damaged_file_is_named(root, tmp_path, name, content):
    capture(root, tmp_path / "copy", [GUEST], CAPABILITIES, scrub=False)
    (tmp_path / f"copy/libvirt/guests/{UUID}/{name}").write_bytes(content)
    with pytest.raises(Invalid, match=f"copy/libvirt/guests/{UUID}.*pinner capture"):
        captured_guests(tmp_path / "copy").guests(tmp_path / "copy")


def test_missing_files_are_named(root, tmp_path):
    capture(root, tmp_path / "copy", [GUEST], CAPABILITIES, scrub=False)
    (tmp_path / f"copy/libvirt/guests/{UUID}/live.xml").unlink()
    with pytest.raises(Invalid, match=r"live\.xml"):
        captured_guests(tmp_path / "copy").guests(tmp_path / "copy")
