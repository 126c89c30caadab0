"""States of cgroups in a hand-made tree; tests/lab has those of a real kernel."""

import pytest

from pinner.host import cgroups
from pinner.host.kernel import UNBOUND
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.guest import Cgroup

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
    for path in (UNBOUND, cgroups.POSSIBLE):
        (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / cgroups.POSSIBLE).write_text("0-39\n")
    (tmp_path / UNBOUND).write_text("ff,ffffffff\n")
    return tmp_path


def allow(root):
    """Replaces systemd: it writes the CPUs, and does not write an empty list."""

    def write(unit, cpus):
        if cpus:
            (root / "sys/fs/cgroup" / SCOPE / "cpuset.cpus").write_text(f"{cpus}\n")

    return write


def test_the_units_of_a_process_end_at_its_innermost_unit(root):
    assert cgroups.units_of(root, 7) == (Cgroup("machine.slice", "member"), Cgroup(SCOPE, "member"))


def test_a_unit_becomes_isolated_and_a_member_again(root):
    folder = root / "sys/fs/cgroup" / SCOPE
    cgroups.set_partition(root, SCOPE, "isolated 4-7", allow(root))
    assert cgroups.units_of(root, 7)[1].state == "isolated 4-7"
    cgroups.set_partition(root, SCOPE, "member", allow(root))
    assert cgroups.units_of(root, 7)[1].state == "member"
    # The kernel refuses an empty list for a cgroup with threads; all possible CPUs are no restriction either.
    assert (folder / "cpuset.cpus").read_text() == "0-39"


def test_a_state_that_differs_from_the_requested_one_is_an_error(root):
    with pytest.raises(ApplyFailed, match="asked for 'isolated 7,4-6', the kernel says 'isolated 4-7'"):
        cgroups.set_partition(root, SCOPE, "isolated 7,4-6", allow(root))
    with pytest.raises(Gone):
        cgroups.set_partition(root, "machine.slice/none.scope", "member", allow(root))


def test_the_mask_of_unbound_work_has_words_of_32_bits(root):
    assert cgroups.unbound(root) == "0-39"
    cgroups.set_unbound(root, "0-3,39")
    assert (root / UNBOUND).read_text() == "00000080,0000000f"
