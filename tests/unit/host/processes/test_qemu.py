from dataclasses import replace
from pathlib import Path

import pytest
from support import roots

from pinner.host.processes import qemu
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import Thread

UUID = "6a5b7a0e-0000-4000-8000-000000000001"


def process(root: Path, pid: int, name: str, *words: str, started: int = 50) -> None:
    command = b"".join(word.encode() + b"\0" for word in words)
    roots.process(root, pid, name=name.encode(), command=command, started=started)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("CPU 0/KVM", ("vcpu", 0)),
        ("CPU 127/TCG", ("vcpu", 127)),
        ("IO iothread12", ("iothread", 12)),
        ("IO mon_iothread", ("emulator", None)),
        ("qemu-system-x86", ("emulator", None)),
        ("vhost-1234", ("emulator", None)),
        ("worker", ("emulator", None)),
        ("CPU x/KVM", ("emulator", None)),
        ("CPU ٣/KVM", ("emulator", None)),
        ("", ("emulator", None)),
    ],
)
def test_the_thread_name_gives_the_role(name, role):
    assert qemu.role(name) == role


@pytest.mark.fault(14)
def test_a_guests_process_and_its_vhost_and_kvm_threads(tmp_path):
    roots.kernel_thread(tmp_path, 2, b"kthreadd")
    process(tmp_path, 400, "qemu-system-x86", "/usr/bin/qemu-system-x86_64", "-uuid", UUID, "-S")
    roots.kernel_thread(tmp_path, 500, b"vhost-400")
    roots.kernel_thread(tmp_path, 501, b"kvm-pit/400")
    process(tmp_path, 502, "vhost-400", "/bin/impostor")
    roots.kernel_thread(tmp_path, 503, b"vhost-401")
    found = qemu.find(tmp_path, {UUID})
    assert found.qemus == {UUID: 400}
    assert {pid: [thread.tid for thread in threads] for pid, threads in found.vhost_threads.items() if threads} == {
        400: [500, 501],
        401: [503],
    }


def test_a_qemu_process_of_another_name_is_found_too(tmp_path):
    process(tmp_path, 300, "qemu-system-x86", "qemu-system-x86_64", "-uuid", "another")
    process(tmp_path, 400, "wrapped", "/opt/wrapped", "-name", "x", "-uuid", UUID)
    assert qemu.find(tmp_path, {UUID}).qemus == {UUID: 400}


def test_a_command_line_of_megabytes_is_not_read_to_its_end(tmp_path):
    process(tmp_path, 300, "long", "long", *["x" * 100_000] * 30, "-uuid", UUID)
    process(tmp_path, 400, "wrapped", "/opt/wrapped", *["x" * 10_000] * 6, "-uuid", UUID)
    assert qemu.find(tmp_path, {UUID}).qemus == {UUID: 400}


def test_the_oldest_process_with_the_uuid_is_qemu(tmp_path):
    process(tmp_path, 300, "qemu-system-x86", "impostor", "-uuid", UUID, started=90)
    process(tmp_path, 400, "qemu-system-x86", "qemu-system-x86_64", "-uuid", UUID, started=50)
    assert qemu.find(tmp_path, {UUID}).qemus == {UUID: 400}


@pytest.mark.parametrize(
    ("ids", "found"), [("64055 64055 64055 64055", 400), ("1000 0 0 0", 500), ("1000 1000 1000 1000", 500)]
)
def test_a_process_of_another_user_is_not_qemu(tmp_path, ids, found):
    """Also a setuid program, which gets its arguments from its caller."""
    user = 64055 if found == 400 else 0
    for pid, started, own in ((400, 50, ids), (500, 90, " ".join([str(user)] * 4))):
        process(tmp_path, pid, "qemu-system-x86", "qemu-system-x86_64", "-uuid", UUID, started=started)
        status = tmp_path / f"proc/{pid}/status"
        status.write_text(f"Name:\tx\nUid:\t{own}\n{status.read_text()}")
    assert qemu.find(tmp_path, {UUID}, {UUID: user}).qemus == {UUID: found}
    assert qemu.find(tmp_path, {UUID}, {UUID: None}).qemus == {UUID: 400}


@pytest.mark.parametrize(
    ("name", "found"), [("+64055", 64055), ("0", 0), ("root", 0), ("no-such-user", None), ("", None)]
)
def test_the_user_of_libvirts_label(name, found):
    assert qemu.user_id(name) == found


@pytest.mark.parametrize("words", [(), ("qemu", "-uuid"), ("qemu", UUID), ("qemu", "-uuid", UUID[:-1])])
def test_a_process_without_the_uuid_is_not_found(tmp_path, words):
    process(tmp_path, 400, "qemu-system-x86", *words)
    assert qemu.find(tmp_path, {UUID}).qemus == {}


def test_memory_per_node(tmp_path):
    process(tmp_path, 400, "qemu-system-x86")
    assert qemu.memory_per_node(tmp_path, 400) == {}
    (tmp_path / "proc/400/numa_maps").write_text(
        "7f00 default file=/usr/bin/qemu mapped=10 N0=3 N2=7 kernelpagesize_kB=4\n"
        "7f10 bind:0 anon=2 dirty=2 N0=2 kernelpagesize_kB=2048\n"
        "7f20 default\n"
    )
    assert qemu.memory_per_node(tmp_path, 400) == {0: 3 * 4 + 2 * 2048, 2: 7 * 4}


def test_a_per_cpu_worker_has_no_role():
    """io_uring's workers are such threads before Linux 6.3."""
    worker = Thread(tid=401, started=60, name="iou-wrk-400", affinity=CpuSet.of([0, 1]), immovable_reason="per-cpu")
    main = replace(worker, tid=400, name="qemu-system-x86", immovable_reason="")
    assert qemu.roles([main, worker]).emulator == (main,)
