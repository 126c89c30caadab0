"""Whose a UDP socket is, and how large its receive buffer is: of this process, and on made-up files."""

import os
import socket
from pathlib import Path

import pytest
from support.roots import write

from pinner.host.kernel import procfs
from pinner.host.reading import network
from pinner.host.reading.network import parse_buffers, read_counters, read_owners, read_sockets
from pinner.model.reading import SocketOwner


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_socket_of_this_process_that_drops_packets(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as full, socket.socket(family, socket.SOCK_DGRAM) as sender:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 5000)
        full.bind((address, 0))
        for _ in range(30):
            sender.sendto(b"x" * 1000, full.getsockname())
        inode = os.fstat(full.fileno()).st_ino
        (row,) = (each for each in read_sockets(Path("/")) if each.inode == inode)
        assert row.drops > 0
        owner = read_owners(Path("/"), {inode})[inode]
        assert (owner.pid, owner.receive_buffer) == (os.getpid(), 10_000)
        assert owner.name == Path("/proc/self/comm").read_text().strip()


def test_the_owner_on_a_captured_machine_has_no_buffer(tmp_path):
    root = write(tmp_path, {"proc/70/comm": "ovs-vswitchd\n", "proc/70/cgroup": "0::/system.slice/ovs.service\n"})
    (root / "proc/70/fd").mkdir()
    (root / "proc/70/fd/3").symlink_to("socket:[55]")
    (root / "proc/70/fd/4").symlink_to("/dev/null")
    assert read_owners(root, {55, 56}) == {55: SocketOwner(70, "ovs-vswitchd", "ovs.service", 0)}
    assert read_owners(root, set()) == {}


def test_a_process_with_many_descriptors_is_not_searched_to_the_end(tmp_path, monkeypatch):
    root = write(tmp_path, {f"proc/{pid}/{name}": f"{pid}\n" for pid in (70, 80) for name in ("comm", "cgroup")})
    for pid, count in ((70, 50), (80, 1)):
        (root / f"proc/{pid}/fd").mkdir()
        for number in range(count):
            (root / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{100 * pid + number}]")
    monkeypatch.setattr(network, "MAX_DESCRIPTORS", 51)
    assert read_owners(root, {8000}).keys() == {8000}
    monkeypatch.setattr(network, "MAX_DESCRIPTORS", 11)
    monkeypatch.setattr(network, "MAX_OF_PROCESS", 10)
    assert read_owners(root, {8000}).keys() == {8000}
    monkeypatch.setattr(network, "MAX_OF_PROCESS", 50)
    monkeypatch.setattr(network, "MAX_DESCRIPTORS", 50)
    assert read_owners(root, {8000}) == {}
    assert len(read_owners(root, set(range(7000, 7050)))) == 50


def test_the_name_is_that_of_a_process(tmp_path):
    """Its owner chooses it: it is kept as the kernel has it, and escaped where it is shown."""
    root = write(tmp_path, {"proc/70/comm": b" \x1b[2J|\xff\n\n", "proc/70/cgroup": "0::/\n"})
    (root / "proc/70/fd").mkdir()
    (root / "proc/70/fd/3").symlink_to("socket:[55]")
    assert read_owners(root, {55})[55].name == procfs.name_of(root, 70) == " \x1b[2J|\\xff"


@pytest.mark.parametrize("answer", [b"", b"x" * 15, b"\x10\x00\x00\x00" + b"\x00" * 12, b"\xff" * 200])
def test_an_answer_that_is_none_has_no_buffers(answer):
    assert parse_buffers(answer) == {}


def test_the_memory_of_udp_is_counted(tmp_path):
    text = "sockets: used 17\nTCP: inuse 1 mem 167\nUDP: inuse 3 mem 45\nUDPLITE: inuse 0\n"
    assert read_counters(write(tmp_path, {"proc/net/sockstat": text})) == {"UdpMemPages": 45}
