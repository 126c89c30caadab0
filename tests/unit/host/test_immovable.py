from dataclasses import replace

import pytest

from pinner.host.immovable import classify, is_qemu
from pinner.model.cpuset import CpuSet
from pinner.model.process import Process, Thread

ALL = CpuSet.parse("0-7")


def make(pid, name="daemon", command="/usr/sbin/daemon -f", masks=("0-7",), kernel=False, immovable_reason=""):
    threads = tuple(
        Thread(pid + place, 1, name, CpuSet.parse(mask), immovable_reason=immovable_reason)
        for place, mask in enumerate(masks)
    )
    return Process(pid, 1, name, "" if kernel else command, "", kernel, 0.0, threads)


def holds(*processes, guests=(), own=(), baseline=ALL, placed=()):
    found = classify(processes, guests=guests, own=own, baseline=baseline, placed=placed)
    assert [replace(process, immovable_reason="", threads=()) for process in found] == [
        replace(process, immovable_reason="", threads=()) for process in processes
    ]
    return [(process.immovable_reason, [thread.immovable_reason for thread in process.threads]) for process in found]


QEMU = make(100, "qemu-system-x86", "/usr/bin/qemu-system-x86_64 -name guest=a", masks=("0-7", "3"))


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (make(10), ("", [""])),
        (make(10, masks=("0-7", "2", "0-6")), ("", ["", "restricted", "restricted"])),
        (make(10, masks=("0-15",)), ("", [""])),
        (make(10, masks=("12",)), ("", ["restricted"])),
        (make(10, "kswapd0", kernel=True, masks=("0-3",)), ("", [""])),
        (make(10, "ksoftirqd/0", kernel=True, masks=("0",), immovable_reason="per-cpu"), ("per-cpu", ["per-cpu"])),
        (QEMU, ("guest", ["guest", "guest"])),
        (make(10, "vhost-100", kernel=True), ("guest", ["guest"])),
        (make(10, "kvm-pit/100", kernel=True), ("guest", ["guest"])),
        (make(10, "vhost-101", kernel=True), ("", [""])),
        (make(10, "vhost-100"), ("", [""])),
    ],
)
def test_each_hold(process, expected):
    assert holds(process, QEMU)[0] == expected


def test_a_guest_by_libvirts_word_whatever_its_executable():
    assert holds(make(10, command="/opt/vmm"), make(11, "vhost-10", kernel=True), guests={10}) == [
        ("guest", ["guest"]),
        ("guest", ["guest"]),
    ]


def test_pinner_itself():
    assert holds(make(10, masks=("0-7", "1")), own={10}) == [("pinner", ["pinner", "pinner"])]


def test_what_pinner_placed_is_nobodys_intent():
    placed = (CpuSet.parse("0-3"),)
    assert holds(make(10, masks=("0-3", "0-2")), placed=placed) == [("", ["", "restricted"])]


def test_narrower_than_a_baseline_that_is_itself_narrow():
    assert holds(make(10, masks=("0-3", "0-7", "0-2")), baseline=CpuSet.parse("0-3")) == [("", ["", "", "restricted"])]


def test_a_worker_of_io_uring_cannot_be_moved_but_its_process_can():
    process = make(10, masks=("0-7", "0-7"))
    main, worker = process.threads
    process = replace(process, threads=(main, replace(worker, immovable_reason="per-cpu")))
    assert holds(process) == [("", ["", "per-cpu"])]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/qemu-system-x86_64 -name x", True),
        ("qemu-system-aarch64", True),
        ("/usr/libexec/qemu-kvm -m 1", True),
        ("/usr/bin/kvm", True),
        ("/usr/bin/qemu-img convert", False),
        ("/usr/bin/qemu-ga", False),
        ("vi qemu-kvm", False),
        ("/usr/bin/kvmtool", False),
        ("", False),
    ],
)
def test_which_commands_are_qemu(command, expected):
    assert is_qemu(command) is expected
