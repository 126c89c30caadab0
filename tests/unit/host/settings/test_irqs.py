"""Affinities of interrupts in a made-up /proc and /sys; tests/lab has those of a real kernel."""

import errno
import os

import pytest
from support.hosts import process
from support.values import cpus

from pinner.host.kernel import files
from pinner.host.settings import irqs
from pinner.host.settings.irqbalance import read_balancers
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid, NotPermitted
from pinner.model.machine.interrupts import DeviceIrq

NIC, DISK = "0000:00:03.0", "0000:01:00.0"


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    for number, device, name, mask in ((24, NIC, "virtio0-input.0", "0-7"), (25, NIC, "virtio0-output.0", "3")):
        add(made, number, device, name, mask)
    return made


def add(root, number, device, name, mask, *, msi=True):
    irq, pci = root / f"proc/irq/{number}", root / "sys/bus/pci/devices" / device
    (root / f"sys/kernel/irq/{number}").mkdir(parents=True)
    irq.mkdir(parents=True)
    (pci / "msi_irqs").mkdir(parents=True, exist_ok=True)
    (irq / "smp_affinity_list").write_text(f"{mask}\n")
    (irq / "effective_affinity_list").write_text("3\n")
    (root / f"sys/kernel/irq/{number}/actions").write_text(f"{name}\n")
    (pci / "msi_irqs" / str(number)).write_text("msix\n") if msi else (pci / "irq").write_text(f"{number}\n")


def target(number=24, device=NIC, name="virtio0-input.0"):
    return DeviceIrq(number, name, device, cpus("")).target


def now(root, number=24):
    return (root / f"proc/irq/{number}/smp_affinity_list").read_text().strip()


def test_the_interrupts_of_devices_are_read_with_their_names(root):
    add(root, 9, DISK, "ahci[0000:01:00.0]", "1", msi=False)
    add(root, 30, DISK, "", "0-7")
    (root / "proc/irq/31").mkdir()
    read = irqs.read_device_irqs(root, ())
    assert read is not None
    assert read.irqs == (
        DeviceIrq(9, "ahci[0000:01:00.0]", DISK, cpus("1"), cpus("3")),
        DeviceIrq(24, "virtio0-input.0", NIC, cpus("0-7"), cpus("3")),
        DeviceIrq(25, "virtio0-output.0", NIC, cpus("3"), cpus("3")),
    )
    assert str(read.irqs[1].target) == "irq 24 virtio0-input.0 (0000:00:03.0)"


def test_a_machine_whose_kernel_does_not_tell_has_no_interrupts(tmp_path):
    assert irqs.read_device_irqs(tmp_path, ()) is None


def test_irqbalance_is_read_with_the_interrupts(root):
    (root / "proc/812").mkdir(parents=True)
    (root / "proc/812/environ").write_bytes(b"IRQBALANCE_BANNED_CPULIST=4-7\0")
    read = irqs.read_device_irqs(root, read_balancers(root, [process(812, 0.0, "0-7", name="irqbalance")]))
    assert [(each.pid, str(each.banned)) for each in read.balancers] == [(812, "4-7")]


def test_the_kernel_tells_of_managed_interrupts(root):
    debug = root / "sys/kernel/debug/irq/irqs"
    debug.mkdir(parents=True)
    (debug / "24").write_text("dstate: 0x1\n IRQD_AFFINITY_MANAGED\n")
    (root / "proc/irq/25/smp_affinity_list").chmod(0o444)
    read = irqs.read_device_irqs(root, ())
    assert [irq.managed for irq in read.irqs] == [True, True]
    (debug / "24").write_text("dstate: 0x1\n")
    assert irqs.is_managed(root, 24) is False
    (debug / "24").unlink()
    assert irqs.is_managed(root, 24) is None


def test_an_interrupt_gets_its_cpus_and_its_old_ones_back(root):
    irqs.set_affinity(root, target(), cpus("1"))
    assert (str(irqs.affinity(root, target())), now(root)) == ("1", "1")
    irqs.set_affinity(root, target(), cpus("0-7"))
    assert now(root) == "0-7"
    assert now(root, 25) == "3"


@pytest.mark.parametrize(
    "other", [target(name="other"), target(device=DISK), target(number=25), target(number=99)], ids=str
)
def test_another_device_under_the_number_is_gone(root, other):
    for act in (irqs.affinity, lambda *args: irqs.set_affinity(*args, cpus("1"))):
        with pytest.raises(Gone, match=r"irq \d+ "):
            act(root, other)
    assert (now(root), now(root, 25)) == ("0-7", "3")


@pytest.mark.parametrize("owner", ["../../../etc x", "virtio0", "", "0000:00:03.0/../x virtio0-input.0"])
def test_an_owner_that_is_no_device_is_refused_before_a_file_is_opened(root, owner):
    with pytest.raises(Invalid, match="the PCI address of its device"):
        irqs.set_affinity(root, Target("irq", owner, 24, "x"), cpus("1"))


def test_a_link_in_the_place_of_the_file_is_not_followed(root, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("secret")
    path = root / "proc/irq/24/smp_affinity_list"
    path.unlink()
    path.symlink_to(victim)
    with pytest.raises(ApplyFailed, match="Too many levels of symbolic links"):
        irqs.set_affinity(root, target(), cpus("1"))
    assert victim.read_text() == "secret"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.EIO, "; the kernel alone places managed and per-CPU"),
        (errno.EPERM, "; the kernel alone places managed and per-CPU"),
        (errno.EINVAL, "$"),
        (errno.ENOMEM, "$"),
        (errno.ENOSPC, "; these CPUs have no free interrupt vector$"),
        (errno.EROFS, "; the unit of the agent lacks ReadWritePaths=/proc/irq"),
    ],
)
def test_the_kernels_words_say_why_it_refuses(root, monkeypatch, code, hint):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(ApplyFailed, match=f"the kernel refuses CPUs 1: {os.strerror(code)}{hint}"):
        irqs.set_affinity(root, target(), cpus("1"))


def test_an_interrupt_that_is_freed_during_the_write_is_gone(root, monkeypatch):
    def free(*_):
        (root / "sys/kernel/irq/24/actions").write_text("another\n")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", free)
    with pytest.raises(Gone, match="virtio0-input"):
        irqs.set_affinity(root, target(), cpus("1"))


def test_a_number_with_another_device_is_not_written_after_the_file_was_opened(root, monkeypatch):
    opened = files.open_file

    def reuse(*args):
        if args[0] == "smp_affinity_list" and args[1] & os.O_WRONLY:
            (root / "sys/kernel/irq/24/actions").write_text("another\n")
        return opened(*args)

    monkeypatch.setattr(files, "open_file", reuse)
    monkeypatch.setattr(os, "write", lambda *_: pytest.fail("written"))
    with pytest.raises(Gone, match="virtio0-input"):
        irqs.set_affinity(root, target(), cpus("1"))


def test_an_affinity_that_the_kernel_changes_is_a_failure_that_tells_both(root, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, _: write(file, b"0-1"))
    with pytest.raises(ApplyFailed, match=r"asked for CPUs 1, the kernel says 0-1 \(in effect: 3\)"):
        irqs.set_affinity(root, target(), cpus("1"))


def test_a_host_without_descriptors_does_not_look_as_if_the_interrupt_had_ended(root, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Busy):
        irqs.affinity(root, target())


@pytest.mark.parametrize(
    ("mode", "kind", "words"),
    [(0o444, ApplyFailed, "Permission denied; the kernel alone places"), (0o644, NotPermitted, "needs root")],
)
def test_a_file_that_may_not_be_opened_says_why(root, monkeypatch, mode, kind, words):
    (root / "proc/irq/24/smp_affinity_list").chmod(mode)
    opened = files.open_file

    def refuse(*args):
        if args[1] & os.O_WRONLY:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(*args)

    monkeypatch.setattr(files, "open_file", refuse)
    with pytest.raises(kind, match=words):
        irqs.set_affinity(root, target(), cpus("1"))
