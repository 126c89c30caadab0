"""RPS in a made-up sysfs; tests/lab has that of a real kernel."""

import errno
import os

import pytest
from support.values import cpus

from pinner.host.settings import rps
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Gone, Invalid
from pinner.model.settings.cards import RpsQueue


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    device = made / "sys/devices/pci0000:00/0000:00:03.0/net/ens1"
    for queue, mask in ((0, "ff"), (1, "00000001,00000000")):
        (device / f"queues/rx-{queue}").mkdir(parents=True)
        (device / f"queues/rx-{queue}/rps_cpus").write_text(f"{mask}\n")
    (device / "ifindex").write_text("2\n")
    (made / "sys/class/net").mkdir(parents=True)
    (made / "sys/class/net/ens1").symlink_to("../../devices/pci0000:00/0000:00:03.0/net/ens1")
    (made / "sys/class/net/bonding_masters").write_text("\n")
    return made


def target(interface="ens1", index=2, queue=0):
    return RpsQueue(interface, index, queue, cpus("")).target


def now(root, queue=0):
    return (root / f"sys/class/net/ens1/queues/rx-{queue}/rps_cpus").read_text().strip()


def test_the_queues_of_interfaces_are_read(root, tmp_path):
    assert rps.read_rps(root) == (RpsQueue("ens1", 2, 0, cpus("0-7")), RpsQueue("ens1", 2, 1, cpus("32")))
    assert rps.read_rps(tmp_path / "nothing") is None


def test_a_queue_gets_its_cpus_and_its_old_ones_back(root):
    rps.set_cpus(root, target(), cpus(""))
    assert (now(root), rps.cpus_of(root, target())) == ("00000000", cpus(""))
    rps.set_cpus(root, target(), cpus("0-7"))
    assert (now(root), now(root, 1)) == ("000000ff", "00000001,00000000")


@pytest.mark.parametrize("other", [target("ens2", 7), target(index=3), target(queue=9)], ids=str)
def test_another_interface_under_the_name_is_gone(root, other):
    for act in (rps.cpus_of, lambda *args: rps.set_cpus(*args, cpus("1"))):
        with pytest.raises(Gone, match="rps ens"):
            act(root, other)
    assert now(root) == "ff"


@pytest.mark.parametrize("owner", ["../../../etc 2", ".. 2", " 2", "a/b 2", ""])
def test_an_owner_that_is_no_interface_is_refused(root, owner):
    with pytest.raises(Invalid, match="the name and index of an interface"):
        rps.set_cpus(root, Target("rps", owner, 0, "x"), cpus("1"))


def test_a_link_out_of_sysfs_is_not_followed(root, tmp_path):
    outside = tmp_path / "outside/queues/rx-0"
    outside.mkdir(parents=True)
    (outside / "rps_cpus").write_text("ff\n")
    (tmp_path / "outside/ifindex").write_text("7\n")
    (root / "sys/class/net/evil").symlink_to(tmp_path / "outside")
    with pytest.raises(Gone):
        rps.set_cpus(root, target("evil", 7), cpus("1"))
    assert (outside / "rps_cpus").read_text() == "ff\n"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EINVAL, ApplyFailed, "the kernel refuses CPUs 1: Invalid argument"),
        (errno.EPERM, ApplyFailed, "the kernel refuses CPUs 1: Operation not permitted"),
        (errno.EROFS, ApplyFailed, "Read-only file system; allow it with ReadWritePaths=/sys/devices"),
        (errno.ENODEV, Gone, "rps ens1 rx-0"),
    ],
)
def test_the_kernels_words_say_why_it_refuses(root, monkeypatch, code, kind, words):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(kind, match=words):
        rps.set_cpus(root, target(), cpus("1"))


def test_a_mask_that_the_kernel_changes_is_a_failure(root, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, _: write(file, b"0"))
    with pytest.raises(ApplyFailed, match="asked for CPUs 1, the kernel says none"):
        rps.set_cpus(root, target(), cpus("1"))


def test_an_interface_that_was_renamed_since_the_apply_gets_its_old_cpus_back(root):
    """A rollback has the name of the plan. The kernel gives the index of an interface to no other one."""
    rps.set_cpus(root, target(), cpus("0-1"))
    link = root / "sys/class/net/ens1"
    device = link.resolve()
    device.rename(device.parent / "lan0")
    link.unlink()
    (root / "sys/class/net/lan0").symlink_to("../../devices/pci0000:00/0000:00:03.0/net/lan0")
    assert rps.cpus_of(root, target()) == cpus("0-1")
    rps.set_cpus(root, target(), cpus("0-7"))
    assert (device.parent / "lan0/queues/rx-0/rps_cpus").read_text().strip() == "000000ff"


@pytest.mark.parametrize("index", ["None", "", "-1", "²", "2 "])
def test_an_index_that_is_no_number_finds_no_interface(root, index):
    with pytest.raises(Gone):
        rps.set_cpus(root, Target("rps", f"ens1 {index}", 0, "ens1"), cpus("1"))
