"""States of cgroups in a hand-made tree; tests/lab has those of a real kernel."""

import errno
import re

import pytest
from support.roots import write
from support.values import MEMBER, isolated

from pinner.host.kernel import beneath, cgroups, partitions
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.guest.guest import Cgroup

SCOPE = "machine.slice/g1.scope"


@pytest.fixture
def root(tmp_path):
    mount = tmp_path / "sys/fs/cgroup"
    for folder in (mount / "machine.slice", mount / SCOPE, mount / SCOPE / "libvirt"):
        folder.mkdir(parents=True)
        (folder / "cpuset.cpus").write_text("\n")
        (folder / "cpuset.cpus.partition").write_text("member\n")
    (mount / "cgroup.controllers").write_text("cpuset cpu\n")
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (tmp_path / "proc/7/cgroup").write_text(f"0::/{SCOPE}/libvirt/emulator\n")
    (tmp_path / partitions.POSSIBLE).parent.mkdir(parents=True)
    (tmp_path / partitions.POSSIBLE).write_text("0-39\n")
    return tmp_path


def allow(root):
    """Replaces systemd: it writes the CPUs, and does not write an empty list."""

    def write(unit, cpus):
        if cpus:
            (root / "sys/fs/cgroup" / SCOPE / "cpuset.cpus").write_text(f"{cpus}\n")

    return write


def test_the_units_of_a_process_end_at_its_innermost_unit(root):
    assert partitions.UnitReader(root).units_of(7) == (Cgroup("machine.slice", MEMBER), Cgroup(SCOPE, MEMBER))


INSIDE = "system.slice/docker-1.scope/machine.slice/machine-qemu.scope"
"""libvirtd in a container: its manager names units as it likes, and systemctl would take them for the host's."""


def test_a_process_in_a_container_has_no_units_of_the_host(root):
    (root / "proc/7/cgroup").write_text(f"0::/{INSIDE}/libvirt/emulator\n")
    for folder in (root / "sys/fs/cgroup" / INSIDE, *(root / "sys/fs/cgroup" / INSIDE).parents[:3]):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpuset.cpus").write_text("\n")
        (folder / "cpuset.cpus.partition").write_text("member\n")
    assert partitions.UnitReader(root).units_of(7) == ()


@pytest.mark.parametrize("path", [INSIDE, INSIDE.rpartition("/")[0], "a.scope/b.slice", "x/machine.slice", "*.slice"])
def test_a_unit_that_the_hosts_systemd_did_not_make_is_never_set(root, path):
    (root / "sys/fs/cgroup" / path).mkdir(parents=True)
    for file in ("cpuset.cpus", "cpuset.cpus.partition"):
        (root / "sys/fs/cgroup" / path / file).write_text("member\n")
    asked = []
    with pytest.raises(Invalid, match="of the host's systemd"):
        partitions.set_partition(root, path, isolated("4-7"), lambda *call: asked.append(call))
    assert asked == []


def test_a_unit_becomes_isolated_and_a_member_again(root):
    folder = root / "sys/fs/cgroup" / SCOPE
    partitions.set_partition(root, SCOPE, isolated("4-7"), allow(root))
    assert partitions.UnitReader(root).units_of(7)[1].state == isolated("4-7")
    partitions.set_partition(root, SCOPE, MEMBER, allow(root))
    assert partitions.UnitReader(root).units_of(7)[1].state == MEMBER
    # The kernel refuses an empty list for a cgroup with threads; all possible CPUs are no restriction either.
    assert (folder / "cpuset.cpus").read_text() == "0-39"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("isolated invalid (Parent is not a partition root)", "isolated invalid (Parent is not a partition root) 4-7"),
        ("root invalid", "root invalid (the kernel gives no reason) 4-7"),
        ("member", "member 4-7"),
    ],
)
def test_a_state_that_differs_from_the_requested_one_is_an_error(root, monkeypatch, answer, shown):
    """A kernel that refuses a partition accepts the write, and gives its reason when the file is read."""
    write = partitions._write
    refused = {"isolated": answer}
    monkeypatch.setattr(
        partitions, "_write", lambda at, name, text, path: write(at, name, refused.get(text, text), path)
    )
    words = f"asked for 'isolated 4-7', the kernel says '{shown}'"
    with pytest.raises(ApplyFailed, match=re.escape(words)) as failed:
        partitions.set_partition(root, SCOPE, isolated("4-7"), allow(root))
    assert failed.value.details["granted"] == shown


def test_cpus_that_differ_from_the_requested_ones_are_an_error(root, monkeypatch):
    """The kind is as requested, and only the list of CPUs is another one."""
    write = partitions._write
    monkeypatch.setattr(
        partitions, "_write", lambda at, name, text, path: write(at, name, "4-6" if text == "4-7" else text, path)
    )
    with pytest.raises(ApplyFailed, match="asked for 'isolated 4-7', the kernel says 'isolated 4-6'") as failed:
        partitions.set_partition(root, SCOPE, isolated("4-7"), lambda unit, cpus: None)
    assert failed.value.details["granted"] == "isolated 4-6"


def test_a_kind_of_partition_that_is_not_known(root):
    """The host can still be read, without the units of that guest."""
    (root / "sys/fs/cgroup" / SCOPE / "cpuset.cpus.partition").write_text("remote\n")
    with pytest.raises(Invalid, match="member, root or isolated"):
        partitions.set_partition(root, SCOPE, MEMBER, allow(root))
    assert partitions.UnitReader(root).units_of(7) == ()


def test_a_cgroup_that_does_not_exist(root):
    with pytest.raises(Gone):
        partitions.set_partition(root, "machine.slice/none.scope", MEMBER, allow(root))


def _outside(root):
    """A folder outside the mount, with the files of a cgroup."""
    folder = root / "outside.scope"
    folder.mkdir()
    for name in ("cpuset.cpus", "cpuset.cpus.partition"):
        (folder / name).write_text("secret\n")
    return folder


def _swapped_link(root):
    """A unit's folder that is a symbolic link."""
    (root / "sys/fs/cgroup/link.scope").symlink_to(root / "outside.scope")
    return "link.scope"


def _link_inside(root):
    """A symbolic link within the mount: it is refused, too."""
    (root / "sys/fs/cgroup/inside.slice").symlink_to("machine.slice")
    return "inside.slice/g1.scope"


@pytest.mark.fault(41)
@pytest.mark.parametrize(
    "path",
    [
        lambda root: str(root / "outside.scope"),
        lambda root: "../../../outside.scope",
        lambda root: "machine.slice/../../../../outside.scope",
        _swapped_link,
        _link_inside,
        lambda root: "",
        lambda root: ".",
        lambda root: "machine.slice//g1.scope",
        lambda root: "machine.slice\0/g1.scope",
        lambda root: "--help.slice/" * 400 + "x.slice",
        lambda root: "machine.slice/g1.scope/libvirt",
        lambda root: "not a unit",
    ],
)
@pytest.mark.parametrize("by_parts", [False, True])
def test_no_path_leads_out_of_the_controllers_mount(root, monkeypatch, path, by_parts):
    outside = _outside(root)
    if by_parts:
        # Kernels before 5.6 have no openat2.
        monkeypatch.setattr(beneath, "openat2", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSYS, "")))
    asked = path(root)
    for call in (
        lambda: partitions.partition(root, asked),
        lambda: partitions.set_partition(root, asked, isolated("4-7"), lambda *_: None),
    ):
        with pytest.raises((Gone, Invalid)) as refused:
            call()
        assert "secret" not in str(refused.value)
    assert {(outside / name).read_text() for name in ("cpuset.cpus", "cpuset.cpus.partition")} == {"secret\n"}


@pytest.mark.fault(41)
@pytest.mark.parametrize("name", ["cpuset.cpus", "cpuset.cpus.partition"])
def test_a_file_of_a_cgroup_that_is_a_link_is_not_followed(root, name):
    victim = root / "victim"
    victim.write_text("member\n")
    link = root / "sys/fs/cgroup" / SCOPE / name
    link.unlink()
    link.symlink_to(victim)
    with pytest.raises(Gone):
        partitions.set_partition(root, SCOPE, isolated("4-7"), lambda *_: None)
    assert victim.read_text() == "member\n"


def test_folders_open_the_same_way_without_openat2(root, monkeypatch):
    monkeypatch.setattr(beneath, "openat2", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSYS, "")))
    assert partitions.partition(root, SCOPE) == MEMBER


def group(folder: str, state: str, cpus: str) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{folder}/cpuset.cpus.partition": state,
        f"sys/fs/cgroup/{folder}/cpuset.cpus.effective": cpus,
    }


def test_cpus_of_valid_isolated_partitions(tmp_path):
    write(
        tmp_path,
        {"proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", "sys/fs/cgroup/cgroup.controllers": "cpuset"}
        | group("fast", "isolated\n", "4-5\n")
        | group("broken", "isolated invalid (Parent is not a partition root)\n", "6\n")
        | group("plain", "member\n", "0-3\n")
        | group("plain/deep", "isolated\n", "2\n")
        | group("root", "root\n", "8-9\n")
        | group("root/inner", "isolated\n", "9\n"),
    )
    assert str(partitions.partitioned(tmp_path)) == "4-5,9"
    write(tmp_path, {"sys/fs/cgroup/cpuset.cpus.isolated": "2,4-5,9\n"})
    assert str(partitions.partitioned(tmp_path)) == "2,4-5,9"


def test_partitions_without_end_are_not_all_searched(tmp_path, monkeypatch):
    """A captured machine may contain anything."""
    mount = {"proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup/cgroup.controllers": "cpuset"}
    groups = [group("/".join("g" * depth), "isolated\n", f"{depth}\n") for depth in range(1, 6)]
    root = write(tmp_path, dict(item for each in (mount, *groups) for item in each.items()))
    (root / "sys/fs/cgroup/g/g/link").symlink_to("..")
    assert str(partitions.partitioned(root)) == "1-5"
    monkeypatch.setattr(cgroups, "MAX_CGROUPS", 2)
    assert str(partitions.partitioned(root)) == "1-2"


def test_no_partitions_on_cgroup_v1(tmp_path):
    write(
        tmp_path,
        {"proc/mounts": "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n"}
        | group("fast", "isolated", "4-5"),
    )
    assert not partitions.partitioned(tmp_path)
