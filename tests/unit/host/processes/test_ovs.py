"""The masks of Open vSwitch: of a real ovsdb-server, of hostile ones, and its polling threads as real threads."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.hosts import cpus
from support.system import ovsdb as private

from pinner.host.inventory import SnapshotInputs, take_snapshot
from pinner.host.processes import ovs
from pinner.host.processes.ovs import ANSWER_SECONDS, FRESH_SECONDS, MAX_ANSWER, RETRY_SECONDS, Ovsdb, read
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.process import Process, Thread
from pinner.model.snapshot import OvsDpdk, OvsMasks

LIVE = Path("/")
POLLING = """
import ctypes, os, sys, threading, time
prctl = ctypes.CDLL(None).prctl
def poll(name, cpu):
    prctl(15, name.encode(), 0, 0, 0)
    os.sched_setaffinity(0, [cpu])
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    time.sleep(600)
prctl(15, b"ovs-vswitchd", 0, 0, 0)
for name in sys.argv[2:]:
    threading.Thread(target=poll, args=(name, int(sys.argv[1])), daemon=True).start()
time.sleep(0.1)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(tmp_path):
    if why := private.missing():
        pytest.skip(why)
    with private.private_ovsdb(tmp_path / "ovs") as found:
        yield found


def test_the_masks_of_a_real_database(server):
    server.set(pmd_cpu_mask="0xf0", dpdk_lcore_mask="1", dpdk_init="true")
    assert read(server.socket) == OvsMasks(cpus("4-7"), cpus("0"))
    server.set(pmd_cpu_mask="1" + "0" * 40)
    assert read(server.socket).pmd == cpus("160")
    server.clear()
    assert read(server.socket) == OvsMasks()


def test_a_real_database_that_hangs_or_ends_is_asked_rarely(server, monkeypatch):
    server.set(pmd_cpu_mask="c")
    seconds = [1000.0]
    database = Ovsdb(server.socket, lambda: seconds[0])
    assert database.masks() == OvsMasks(cpus("2-3"))
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        assert database.masks().error == "", "the answer of before is fresh"
        seconds[0] += FRESH_SECONDS
        found = database.masks()
        assert (str(found.pmd), "no answer" in found.error or "timed out" in found.error) == ("2-3", True)
        with monkeypatch.context() as patch:
            patch.setattr(ovs, "read", lambda _: pytest.fail("the database is asked again"))
            assert database.masks() == found
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    seconds[0] += RETRY_SECONDS
    assert database.masks() == OvsMasks(cpus("2-3"))


def test_the_masks_of_a_database_that_has_ended_count_until_it_is_back(tmp_path):
    """Open vSwitch restarts: its database removes the socket, and its threads come back on the same CPUs."""
    if why := private.missing():
        pytest.skip(why)
    seconds = [1000.0]
    database = Ovsdb(tmp_path / "ovs/db.sock", lambda: seconds[0])
    with private.private_ovsdb(tmp_path / "ovs") as running:
        running.set(pmd_cpu_mask="c", dpdk_lcore_mask="1")
        assert database.masks() == OvsMasks(cpus("2-3"), cpus("0"))
    assert not running.socket.exists()
    for _ in range(2):
        seconds[0] += RETRY_SECONDS
        found = database.masks()
        assert found == OvsMasks(cpus("2-3"), cpus("0"), f"{running.socket}: the database has ended")
    (tmp_path / "ovs/conf.db").unlink()
    with private.private_ovsdb(tmp_path / "ovs") as running:
        running.clear()
        seconds[0] += RETRY_SECONDS
        assert database.masks() == OvsMasks(), "the new database has no masks"
    seconds[0] += FRESH_SECONDS
    assert database.masks() == OvsMasks()


def row(other_config: object) -> bytes:
    return json.dumps({"id": "pinner", "result": [{"rows": [{"other_config": other_config}]}], "error": None}).encode()


@contextmanager
def answering(path: Path, *parts: bytes, pause: float = 0.0, close: bool = True):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        over = threading.Event()

        def serve():
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    for part in parts:
                        connection.sendall(part)
                        time.sleep(pause)
                    if not close:
                        over.wait(60)

        threading.Thread(target=serve, daemon=True).start()
        yield
        over.set()


GOOD = row(["map", [["pmd-cpu-mask", "0x6"]]])
ECHO = b'{"id": "echo", "method": "echo", "params": []}'


@pytest.mark.parametrize("parts", [(GOOD,), (ECHO, GOOD), (ECHO + b"\n" + GOOD,), (GOOD[:20], GOOD[20:])])
def test_an_answer_in_parts_and_behind_other_messages(tmp_path, parts):
    with answering(tmp_path / "db.sock", *parts, pause=0.05, close=False):
        assert read(tmp_path / "db.sock").pmd == cpus("1-2")


HOSTILE = {
    "closes": (b"",),
    "no JSON": (b"hello}",),
    "an error": (b'{"id": "pinner", "result": null, "error": "no such table"}',),
    "no result": (b'{"id": "pinner", "result": null, "error": null}',),
    "no row": (b'{"id": "pinner", "result": [{"rows": []}], "error": null}',),
    "no map": (row("0xf"),),
    "no pairs": (row(["map", [1, 2]]),),
    "no mask": (row(["map", [["pmd-cpu-mask", "0-3"]]]),),
    "a negative mask": (row(["map", [["pmd-cpu-mask", "-0x1"]]]),),
    "a huge mask": (row(["map", [["pmd-cpu-mask", "f" * 100_000]]]),),
    "huge": (b" " * 65536,) * 40,
    "nested": (b"[" * 50_000 + b"}",),
    "a huge number": (b'{"id": ' + b"9" * 500_000 + b"}",),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_database_is_an_error_at_once(tmp_path, name):
    began = time.thread_time()
    with answering(tmp_path / "db.sock", *HOSTILE[name]):
        found = Ovsdb(tmp_path / "db.sock").masks()
    assert found.error.startswith(f"{tmp_path}/db.sock: ")
    assert len(found.error) < 500
    assert (found.pmd, found.lcore) == (CpuSet(), CpuSet())
    assert time.thread_time() - began < ANSWER_SECONDS + 1.5


def test_a_database_that_drips_and_one_that_is_silent(tmp_path):
    for name, parts in (("drip", [bytes([byte]) for byte in GOOD]), ("silent", [])):
        # The whole answer would come later, and the end of the connection much later.
        with (
            answering(tmp_path / name, *parts, pause=0.1, close=False),
            pytest.raises(OSError, match=r"timed out|no answer"),
        ):
            read(tmp_path / name)


def test_a_host_without_a_database(tmp_path):
    assert Ovsdb(tmp_path / "none" / "db.sock").masks() == OvsMasks()


def test_a_socket_in_a_folder_of_many_is_not_asked(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with answering(folder / "db.sock", GOOD), pytest.raises(Invalid, match="others can write"):
        read(folder / "db.sock")


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "db.sock").write_text("no socket")
    assert "it is not a socket" in Ovsdb(tmp_path / "db.sock").masks().error


def test_a_socket_without_a_server(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "db.sock"))
    assert "refused" in Ovsdb(tmp_path / "db.sock").masks().error


def process(*threads: Thread, name: str = "ovs-vswitchd", reserves: str = "privileged") -> Process:
    return Process(70, 5, name, f"/usr/sbin/{name}", "", False, 0.0, threads, reserves=reserves)


def thread(name: str, mask: str) -> Thread:
    return Thread(71, 5, name, cpus(mask))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (process(thread("pmd-c03/id:9", "3"), thread("pmd-c127/id:100", "127")), "3,127"),
        (process(thread("pmd8", "4"), thread("pmd-9", "5")), "4-5"),
        (process(thread(">d-c127/id:1000", "127"), thread(">-c127/id:10000", "126")), "126-127"),
        (process(thread("handler1", "3"), thread("pmd-monitor", "4")), ""),
        (process(thread(">revalidator100", "3"), thread(">d-c127/id:", "4")), ""),
        (process(thread("pmd-c03/id:9", "2-3")), ""),
        (process(thread("pmd-c03/id:9", "3"), name="other"), ""),
        (process(thread("pmd-c03/id:9", "3"), reserves=""), ""),
    ],
)
def test_the_polling_threads(found, expected):
    polling = ovs.dpdk([found], OvsMasks())
    assert str(polling.polling if polling else "") == expected


def test_without_open_vswitch_there_is_nothing():
    assert ovs.dpdk([process(name="other")], OvsMasks()) is None
    assert ovs.dpdk([], OvsMasks(error="down")) == OvsDpdk(OvsMasks(error="down"))


@pytest.mark.needs("root")
def test_real_threads_of_a_real_process():
    cpu = max(os.sched_getaffinity(0))
    command = [sys.executable, "-c", POLLING, str(cpu), "pmd-c01/id:8", "pmd-c02/id:12"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout.readline() == b"ready\n"
            taken = take_snapshot(
                LIVE,
                "h",
                None,
                sample_seconds=0.0,
                now=lambda: None,
                inputs=SnapshotInputs(ovs_masks=lambda: OvsMasks(cpus("0"))),
            )
        finally:
            running.kill()
    assert taken.ovs == OvsDpdk(OvsMasks(cpus("0")), CpuSet.of([cpu]))
    names = {thread.name for process in taken.processes if process.pid == running.pid for thread in process.threads}
    assert names >= {"pmd-c01/id:8", "pmd-c02/id:12"}


@pytest.mark.parametrize("message", [b"{}0 ", b"[[]]"])
def test_an_answer_of_many_messages_takes_no_longer_than_one(tmp_path, message):
    # All of them are read at the end of the time: only then something that can be the end of an answer arrives. The
    # clock is that of the CPU time: a busy machine takes longer.
    many = message * (MAX_ANSWER // len(message) - 2)
    with answering(tmp_path / "db.sock", many, b"{}", pause=ANSWER_SECONDS * 0.9, close=False):
        began = time.thread_time()
        with pytest.raises(TimeoutError):
            read(tmp_path / "db.sock")
        assert time.thread_time() - began < ANSWER_SECONDS * 0.1 + 0.15
