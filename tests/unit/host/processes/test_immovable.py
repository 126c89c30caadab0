from dataclasses import replace

import pytest

from pinner.host.processes.immovable import classify, is_qemu, may_move
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import Process, Thread

ALL = CpuSet.parse("0-7")


def make(pid, name="daemon", command="/usr/sbin/daemon -f", masks=("0-7",), kernel=False, immovable_reason=""):
    threads = tuple(
        Thread(pid + place, 1, name, CpuSet.parse(mask), immovable_reason=immovable_reason)
        for place, mask in enumerate(masks)
    )
    return Process(pid, 1, name, "" if kernel else command, "", kernel, 0.0, threads)


def reasons(*processes, guests=(), own=(), forbidden=(), baseline=ALL, placed=()):
    found = classify(processes, guests=guests, own=own, forbidden=forbidden, baseline=baseline, placed=placed)
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
def test_each_immovable_reason(process, expected):
    assert reasons(process, QEMU)[0] == expected


def test_a_process_that_libvirt_reports_is_a_guest_whatever_its_executable():
    assert reasons(make(10, command="/opt/vmm"), make(11, "vhost-10", kernel=True), guests={10}) == [
        ("guest", ["guest"]),
        ("guest", ["guest"]),
    ]


def test_pinners_own_process_is_immovable():
    assert reasons(make(10, masks=("0-7", "1")), own={10}) == [("pinner", ["pinner", "pinner"])]


def test_only_programs_are_compared_with_pinners_own():
    """The agent reads a file for each comparison, and most processes of a host are kernel threads."""
    asked = []

    class Own:
        def __contains__(self, pid: object) -> bool:
            asked.append(pid)
            return False

    reasons(make(10), make(11, "kswapd0", kernel=True), QEMU, own=Own())
    assert asked == [10]


ALL_CAPABILITIES = "000001ffffffffff"
OF_A_CONTAINER = "00000000a80425fb"


def status(users="0 0 0 0", permitted=OF_A_CONTAINER, effective=""):
    return f"Name:\tx\nUid:\t{users}\nCapPrm:\t{permitted}\nCapEff:\t{effective or permitted}\n".encode()


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (status(), status(), True),
        (status(), status(permitted="0"), True),
        (status(), status(permitted=ALL_CAPABILITIES), False),
        (status(), status("1001 1001 1001 1001", permitted="0"), False),
        (status(), status("0 1001 1001 1001", permitted="0"), True),
        (status(), status("1001 0 0 0"), True),
        (status(), b"Name:\tof an old capture\n", True),
        (status(permitted=ALL_CAPABILITIES), status("1001 1001 1001 1001"), True),
        (status(permitted=ALL_CAPABILITIES, effective=OF_A_CONTAINER), status(permitted=ALL_CAPABILITIES), True),
        (status(permitted=ALL_CAPABILITIES, effective=OF_A_CONTAINER), status("1001 1001 1001 1001"), False),
        # Another user only plans: root makes the changes.
        (status("1001 1001 1001 1001", permitted="0"), status(permitted=ALL_CAPABILITIES), True),
    ],
)
def test_root_without_cap_sys_nice_may_move_its_own_processes_without_more_capabilities(ours, theirs, expected):
    assert may_move(ours, theirs) is expected


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (make(10), ("not-permitted", [""])),
        (make(10, masks=("0-7", "2")), ("not-permitted", ["", "restricted"])),
        (make(10, "kswapd0", kernel=True, masks=("0-3",)), ("not-permitted", [""])),
        (make(10, "ksoftirqd/0", kernel=True, masks=("0",), immovable_reason="per-cpu"), ("per-cpu", ["per-cpu"])),
        (make(10, "kvm-pit/100", kernel=True), ("guest", ["guest"])),
    ],
)
def test_a_process_that_pinner_may_not_move_keeps_the_reasons_of_its_threads(process, expected):
    assert reasons(process, guests={100}, forbidden={10}) == [expected]


def test_a_mask_that_pinner_set_is_not_restricted():
    placed = (CpuSet.parse("0-3"),)
    assert reasons(make(10, masks=("0-3", "0-2")), placed=placed) == [("", ["", "restricted"])]


@pytest.mark.fault(50)
def test_a_mask_that_pinner_set_is_not_restricted_while_one_of_its_cpus_is_offline():
    found = classify(
        [make(10, masks=("0-2",))],
        guests=(),
        own=(),
        baseline=CpuSet.parse("0-2,4-7"),
        placed=(CpuSet.parse("0-3"),),
        online=CpuSet.parse("0-2,4-7"),
    )
    assert found[0].threads[0].immovable_reason == ""


def test_a_mask_is_compared_with_the_baseline_and_not_with_all_cpus():
    process = make(10, masks=("0-3", "0-7", "0-2"))
    assert reasons(process, baseline=CpuSet.parse("0-3")) == [("", ["", "", "restricted"])]


def test_a_process_with_an_io_uring_worker_is_movable_without_the_worker():
    process = make(10, masks=("0-7", "0-7"))
    main, worker = process.threads
    process = replace(process, threads=(main, replace(worker, immovable_reason="per-cpu")))
    assert reasons(process) == [("", ["", "per-cpu"])]


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
def test_qemu_is_identified_by_its_executable(command, expected):
    assert is_qemu(command) is expected
