"""The room of hosts inside nova-scheduler: servers that answer, are down, slow, or lie; and the longest wait."""

import ast
import json
import socket
import ssl
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens
from support.server.certificates import Authority
from support.server.real_service import answering

from pinner.nova.delivery import host_rooms
from pinner.nova.delivery.host_rooms import HostRooms, Need, Room, StrategyRoom, fits
from pinner.nova.weigher_conf import Settings, SettingsError

NOVA = Path(host_rooms.__file__).parents[1]
GOOD = {
    "host": "h1",
    "strategy": "shared-pool",
    "strategies": [
        {"strategy": "shared-pool", "within_node": False, "free_vcpus": 6, "nodes": []},
        {
            "strategy": "numa-local",
            "within_node": True,
            "free_vcpus": 6,
            "nodes": [{"node": 0, "free_vcpus": 4, "memory_kib": 2048}, {"node": 1, "free_vcpus": 2}],
        },
    ],
}
BOUND = 0.3
"""The timeout of these tests, in seconds."""
SILENT = 60.0
"""The seconds for which a server is silent."""
OVERHEAD = SILENT / 2
"""What a wait may take in addition on a loaded machine."""


def http(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\n\r\n" + body


@contextmanager
def server(behave, tls: ssl.SSLContext | None = None):
    """A TCP server; ``behave`` gets each accepted connection after the request has arrived. Yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections = []

        def accept():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connections.append(connection)
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection):
            try:
                if tls:
                    connection = tls.wrap_socket(connection, server_side=True)
                    connections.append(connection)
                connection.recv(65536)
                behave(connection)
                connection.close()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


def says(answer: bytes):
    return lambda connection: connection.sendall(answer)


def settings(url: str, **more: object) -> Settings:
    return Settings(**{"server": url, "timeout": BOUND, **more})


def asked(url: str, hosts=("h1",), **more: object) -> tuple[dict[str, Room], float]:
    """The rooms of the hosts, and the seconds that the caller waited for them."""
    rooms = HostRooms(settings(url, **more))
    began = time.monotonic()
    return rooms.rooms(hosts), time.monotonic() - began


def test_a_room_is_read():
    with server(says(http(json.dumps(GOOD).encode()))) as url:
        found, _ = asked(url, timeout=SILENT)
    assert found["h1"].strategies["numa-local"] == StrategyRoom(True, 6, ((4, 2048), (2, None)))


def test_a_real_server_over_tcp_with_a_token(tmp_path, monkeypatch):
    monkeypatch.setattr(host_rooms, "ANSWER_SECONDS", 30.0)
    tokens = InMemoryTokens()
    (tmp_path / "h1").write_text(tokens.add("reader") + "\n")
    with answering(InMemoryService(), tokens) as url:
        found, _ = asked(url, token_file=f"{tmp_path}/{{host}}", timeout=30.0)
    assert found["h1"].strategies["shared-pool"].free == 1


def drip(connection):
    for byte in http(json.dumps(GOOD).encode()):
        connection.sendall(bytes([byte]))
        time.sleep(SILENT / 100)


def endless(connection):
    connection.sendall(http(b""))
    while True:
        connection.sendall(b" " * 65536)


NESTED = b"[" * 100_000
LIES = {
    "another host": json.dumps({**GOOD, "host": "h2"}).encode(),
    "no object": b"[]",
    "nothing": b"",
    "no JSON": b"<html>",
    "no text": b"\xff\xfe",
    "nested": NESTED,
    "a huge number": b'{"host": "h1", "strategies": [{"strategy": "a", "free_vcpus": ' + b"9" * 200_000 + b"}]}",
    "too many": json.dumps(GOOD).replace('"free_vcpus": 6', '"free_vcpus": 1000000').encode(),
    "negative": json.dumps(GOOD).replace('"free_vcpus": 6', '"free_vcpus": -1').encode(),
    "not whole": json.dumps(GOOD).replace('"free_vcpus": 6', '"free_vcpus": 1.5').encode(),
    "a boolean": json.dumps(GOOD).replace('"free_vcpus": 6', '"free_vcpus": true').encode(),
    "not a number": json.dumps(GOOD).replace('"free_vcpus": 6', '"free_vcpus": NaN').encode(),
    "infinite memory": json.dumps(GOOD).replace("2048", "1e999").encode(),
    "no nodes": json.dumps(GOOD).replace('"nodes": []', '"nodes": 7').encode(),
    "no name": json.dumps(GOOD).replace('"strategy": "shared-pool", "within', '"strategy": 1, "within').encode(),
    "a million strategies": b'{"host": "h1", "strategies": [' + b"{}," * 50_000 + b"{}]}",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_tells_nothing(lie):
    with server(says(http(LIES[lie]))) as url:
        found, _ = asked(url, timeout=SILENT)
    assert found == {}


@pytest.mark.parametrize(
    "behave",
    [
        lambda _: time.sleep(SILENT),
        drip,
        endless,
        says(b""),
        says(b"nonsense\r\n\r\n"),
        says(http(b"{}", b"401 Unauthorized")),
        says(http(b"{}", b"503 Service Unavailable")),
        says(http(json.dumps(GOOD).encode(), b"302 Found\r\nLocation: http://127.0.0.1:1/")),
        says(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100_000),
        says(http(json.dumps(GOOD).encode()[:-9])),
        says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ],
    ids=["silent", "drip", "endless", "closes", "no-http", "401", "503", "redirect", "headers", "half", "chunked"],
)
def test_no_server_delays_a_scheduling_by_more_than_the_bound(behave):
    with server(behave) as url:
        found, seconds = asked(url)
    assert found == {}
    assert seconds < BOUND + OVERHEAD


def test_a_server_that_is_down_and_one_that_no_packet_reaches(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for url in (down, "http://192.0.2.1:8077", "http://no.such.host.invalid:8077"):
        found, seconds = asked(url)
        assert found == {}
        assert seconds < BOUND + OVERHEAD
    found, seconds = asked(down, token_file=str(tmp_path / "none"))
    assert (found, seconds < BOUND + OVERHEAD) == ({}, True)


def test_hosts_are_asked_after_no_thread_could_start(monkeypatch):
    """nova-scheduler may reach the limit of its processes and threads for a while."""
    monkeypatch.setattr(host_rooms, "fetch", lambda *_: json.dumps(GOOD).encode())
    start = threading.Thread.start

    def refused(thread):
        if thread.name == "pinner-weigher":
            raise RuntimeError("can't start new thread")
        start(thread)

    rooms = HostRooms(settings("http://127.0.0.1:1", timeout=0.0))
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        for number in range(20):
            assert rooms.rooms(["h1", f"h{number}"]) == {}
    until = time.monotonic() + 60
    while "h1" not in rooms.rooms(["h1"]):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_hundred_silent_hosts_take_one_bound_and_later_none():
    with server(lambda _: time.sleep(SILENT)) as url:
        rooms = HostRooms(settings(url, timeout=2.0))
        hosts = [f"h{number}" for number in range(100)]
        began = time.monotonic()
        assert rooms.rooms(hosts) == {}
        assert time.monotonic() - began < BOUND + OVERHEAD
        began = time.monotonic()
        assert rooms.rooms(hosts) == {}
        assert time.monotonic() - began < 1.0, "a host is waited for once"


def test_hosts_that_do_not_answer_let_no_other_room_grow_old(monkeypatch):
    """A rack without power: its questions take longer, in all, than an answer counts."""

    def fetch(url, *_):
        if "/silent-" in url:
            time.sleep(0.5)
            raise OSError("timed out")
        return json.dumps(GOOD).encode()

    monkeypatch.setattr(host_rooms, "fetch", fetch)
    rooms = HostRooms(settings("http://127.0.0.1:1", refresh=0.2, max_age=1.5, retry=0.1))
    assert "h1" in rooms.rooms(["h1"])
    hosts = ["h1", *(f"silent-{number}" for number in range(60))]
    for _ in range(40):
        assert "h1" in rooms.rooms(hosts)
        time.sleep(0.1)


def test_a_new_host_and_one_that_failed_once_are_asked_before_those_that_fail_each_time(monkeypatch):
    """With hundreds of hosts without power, each other host would wait for minutes and weigh 0."""
    asked_for, may_fail = [], threading.Event()
    address = "http://only-here.example:1"

    def fetch(url, *_):
        if not url.startswith(address):
            raise OSError("a thread of an earlier test asks")
        asked_for.append(url.split("/")[-2])
        assert may_fail.wait(60)
        raise OSError("timed out")

    monkeypatch.setattr(host_rooms, "fetch", fetch)
    monkeypatch.setattr(host_rooms, "THREADS", (1, 1))
    now = [0.0]
    rooms = HostRooms(settings(address, timeout=0.0, retry=1.0), lambda: now[0])

    def ask(*hosts):
        now[0] += 2
        rooms.rooms(hosts)

    def wait_for(count):
        until = time.monotonic() + 60
        while len(asked_for) < count or (may_fail.is_set() and any(each.asking for each in rooms._entries.values())):
            assert time.monotonic() < until
            time.sleep(0.01)

    may_fail.set()
    ask("dead-1", "dead-2")
    wait_for(2)
    ask("dead-1", "dead-2", "once")
    wait_for(5)
    may_fail.clear()
    ask("first")
    wait_for(6)
    ask("dead-1", "dead-2", "once", "new")
    may_fail.set()
    wait_for(10)
    assert asked_for[6:] == ["new", "once", "dead-1", "dead-2"]


def test_an_answer_counts_while_it_is_asked_for_again_and_not_for_ever():
    answers = [http(json.dumps(GOOD).encode()), http(b"no")]

    def behave(connection):
        connection.sendall(answers.pop(0) if answers else http(b"no"))

    with server(behave) as url:
        clock = [100.0]
        rooms = HostRooms(settings(url, timeout=10.0), lambda: clock[0])
        assert rooms.rooms(["h1"])
        clock[0] += 6
        assert rooms.rooms(["h1"]), "the earlier answer counts"
        until = time.monotonic() + 60
        while rooms._entries["h1"].asking:
            assert time.monotonic() < until
            time.sleep(0.01)
        clock[0] += 50
        assert rooms.rooms(["h1"])
        clock[0] += 5
        assert rooms.rooms(["h1"]) == {}


@pytest.mark.parametrize("host", ["../../etc", "a/b", "a b", "a?x=1", "a\r\nX: y", "", "-a", "a" * 300])
def test_a_name_that_is_no_host_is_not_asked_for(host):
    rooms = HostRooms(settings("http://127.0.0.1:1"))
    assert rooms.rooms([host]) == {}
    assert rooms._entries == {}


def test_tls_with_the_authority_and_without(tmp_path):
    authority, other = Authority.create(tmp_path, "ours"), Authority.create(tmp_path, "other")
    certificate, key = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with server(says(http(json.dumps(GOOD).encode())), context) as url:
        assert asked(url, ca_file=str(authority.certificate), timeout=10.0)[0]
        assert asked(url, ca_file=str(other.certificate), timeout=10.0)[0] == {}
        for wrong in (str(tmp_path / "none"), str(tmp_path), "/etc/\0"):
            with pytest.raises(SettingsError, match="ca_file"):
                asked(url, ca_file=wrong)


def test_claims_since_the_answer():
    with server(says(http(json.dumps(GOOD).encode()))) as url:
        clock = [100.0]
        rooms = HostRooms(settings(url, timeout=10.0), lambda: clock[0])
        assert rooms.rooms(["h1"])
        assert [rooms.claimed("h1", used) for used in (10, 14, 8)] == [0, 4, 0]


LOCAL = StrategyRoom(True, 6, ((2, 4096), (4, 1024)))
ROOM = Room("shared-pool", {"shared-pool": StrategyRoom(False, 6, ((2, 4096), (4, 1024))), "numa-local": LOCAL})


@pytest.mark.parametrize(
    ("need", "claimed", "expected"),
    [
        (Need(6, 9999), 0, True),
        (Need(7, 1), 0, False),
        (Need(6, 1), 1, False),
        (Need(4, 1024, "numa-local"), 0, True),
        (Need(4, 2048, "numa-local"), 0, False),
        (Need(2, 2048, "numa-local"), 0, True),
        (Need(5, 1, "numa-local"), 0, False),
        (Need(4, 1, "numa-local"), 1, False),
        (Need(6, 1, "unknown"), 0, True),
        (Need(6, 1, "shared-pool", (4, 2)), 0, True),
        (Need(6, 1, "shared-pool", (3, 3)), 0, False),
        (Need(6, 1, "numa-local", (2, 4)), 0, True),
        (Need(6, 1, "numa-local", (2, 2, 2)), 0, False),
        (Need(5, 1, "shared-pool", (5,)), 0, False),
    ],
)
def test_whether_a_guest_fits(need, claimed, expected):
    assert fits(ROOM, need, claimed) is expected


def test_a_room_without_the_hosts_strategy_fits_nothing():
    assert not fits(replace(ROOM, strategy="none"), Need(1, 1))


@pytest.mark.parametrize("module", ["delivery/host_rooms", "weigher_conf", "weigher", "delivery/plain_http"])
def test_the_modules_need_only_python_3_8_and_the_standard_library_and_nova(module):
    tree = ast.parse((NOVA / f"{module}.py").read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name.startswith("pinner.")}
    assert ours <= {
        "pinner.nova",
        "pinner.nova.weigher_conf",
        "pinner.nova.delivery",
        "pinner.nova.delivery.plain_http",
    }
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "pinner", "nova"}
