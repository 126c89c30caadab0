"""The requests per second and the 99th percentile of the embedded server, under 64 clients and 200 slow ones.

Run ``python tests/benchmarks/live/load.py``. The server runs in a process of its own on a loopback port, with a real
database. wrk(1) sends the requests for SECONDS each. The slow clients send one byte a second. Each figure has a ratio
to a bare WSGI application on the same server in the same run, because other work on the machine slows both. Requests
per second of CPU time of the server do not depend on other work: they are what one idle core would carry.
"""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

import httpx
from support.hosts import GIB, guest, interleaved, process, snapshot
from support.server.access import bearer, make_control, one_caller

from pinner import conf, wiring
from pinner.api.app import create_app
from pinner.api.server import Server, serve
from pinner.model.snapshot import Snapshot
from pinner.server.sockets import listen_tcp

SECONDS = 5
TOKENS, TEXT = one_caller()
TOKEN = bearer(TEXT)
CLIENTS = 64
SLOW_CLIENTS = 200
PEER = "a bare WSGI application"


def host() -> Snapshot:
    """The documented host: 32 CPUs on two nodes, 10 guests, 100 processes."""
    top = interleaved(16, 2, memory_kib=64 * GIB)
    guests = [
        guest(n, (2, 4, 4, 4)[n % 4], top.online, memory={n % 2: 2 * GIB}, iothreads=1, vhost_threads=1)
        for n in range(10)
    ]
    processes = [process(1_000_000 + 10 * n, 5.0 if n < 10 else 0.1, *[str(top.online)] * 4) for n in range(100)]
    return snapshot(top, guests, processes)


class _Agent:
    """Gives the same snapshot each time: the benchmark measures the server, not the scan of a host."""

    def __init__(self, taken: Snapshot) -> None:
        self._taken = taken

    def snapshot(self, _seconds: float) -> Snapshot:
        """See Agent."""
        return self._taken

    def publish_policy_set(self) -> None:
        """See Agent."""


class _Bare:
    """The smallest WSGI application, with what Server needs of an application."""

    def __init__(self) -> None:
        self.extensions = {"pinner": SimpleNamespace(streams=SimpleNamespace(close=lambda: None))}
        self.config = {"MAX_CONTENT_LENGTH": 65536}

    def __call__(self, _environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Answer every request with one word."""
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
        return [b"hello"]


def serve_until_input_ends() -> None:
    """Serve pinner and the bare application, print their URLs, and end when the standard input ends."""
    logging.disable(logging.CRITICAL)
    taken = host()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as undo:
        agents: Any = {taken.host: _Agent(taken)}
        parts = wiring.service_parts(conf.load([]), agents, f"sqlite:///{folder}/pinner.sqlite", undo)
        apps: list[Any] = [create_app(parts.service, control=make_control(TOKENS), max_body_bytes=65536), _Bare()]
        servers: list[Server] = [serve(app, [listen_tcp("127.0.0.1", 0)]) for app in apps]
        for server in servers:
            undo.callback(server.stop)
        print(json.dumps({"pinner": servers[0].url, "bare": servers[1].url, "host": taken.host}), flush=True)
        sys.stdin.read()


@contextmanager
def running() -> Iterator[dict[str, Any]]:
    """The URLs of the servers in another process, and its id; the process ends afterwards."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield json.loads(child.stdout.readline()) | {"pid": child.pid}
        child.stdin.close()


@contextmanager
def slow_clients(url: str, count: int) -> Iterator[None]:
    """``count`` clients that send one byte of a request's head each second, and connect again when they are closed."""
    parts, ended = httpx.URL(url), threading.Event()

    def crawl() -> None:
        peers: list[socket.socket] = []
        while not ended.wait(1.0):
            for peer in tuple(peers):
                try:
                    peer.send(b"a")
                except OSError:
                    peer.close()
                    peers.remove(peer)
            with suppress(OSError):
                while len(peers) < count:
                    peers.append(socket.create_connection((parts.host, parts.port or 80), 5))
        for peer in peers:
            peer.close()

    thread = threading.Thread(target=crawl)
    thread.start()
    time.sleep(2 if count else 0)
    yield
    ended.set()
    thread.join()


@dataclass(frozen=True, slots=True)
class Load:
    """The answers per second, also of the server's CPU time, and the 99th percentile of their times in milliseconds."""

    per_second: float
    per_cpu_second: float
    p99: float


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(pid: int, url: str, body: dict[str, Any] | None = None) -> Load:
    """The load that the server at ``url``, process ``pid``, carries with CLIENTS clients; a POST where there is a body.

    Raises AssertionError for an answer that is no success.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if body is not None:
            script.write('wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n')
            script.write(f"wrk.body = [[{json.dumps(body)}]]\n")
        script.write(f'wrk.headers["Authorization"] = "Bearer {TEXT}"\n')
        script.flush()
        command = ["wrk", "-t1", f"-c{CLIENTS}", f"-d{SECONDS}s", "--timeout", "30s", "--latency", "-s", script.name]
        before = cpu_seconds(pid)
        said = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=120).stdout
    used = cpu_seconds(pid) - before
    assert "Non-2xx" not in said, said
    count = re.search(r"(\d+) requests in", said)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    slowest = re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
    assert count is not None, said
    assert rate is not None, said
    assert slowest is not None, said
    milliseconds = float(slowest[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[slowest[2]]
    return Load(float(rate[1]), int(count[1]) / used, milliseconds)


def rows() -> list[dict[str, str]]:
    """One row for each kind of request."""
    with running() as urls:
        base, name, pid = urls["pinner"], urls["host"], urls["pid"]
        bare = load(pid, urls["bare"])
        plan = httpx.post(f"{base}/v1/hosts/{name}/plans", json={"sample_seconds": 0}, headers=TOKEN, timeout=60).json()
        httpx.put(
            f"{base}/v1/hosts/{name}/policy", json={"mode": "observe"}, headers=TOKEN, timeout=60
        ).raise_for_status()
        stored = f"{base}/v1/plans/{plan['id']}"
        found = {"GET /healthcheck": load(pid, f"{base}/healthcheck"), "GET a stored plan": load(pid, stored)}
        with slow_clients(base, SLOW_CLIENTS):
            found[f"GET a stored plan, {SLOW_CLIENTS} slow clients beside"] = load(pid, stored)
        found["GET a policy (read from the database)"] = load(pid, f"{base}/v1/hosts/{name}/policy")
        new = {"snapshot": plan["basis"]["snapshot"]}
        found["POST a plan from a stored snapshot"] = load(pid, f"{base}/v1/hosts/{name}/plans", new)
        with slow_clients(base, SLOW_CLIENTS):
            found[f"POST a plan, {SLOW_CLIENTS} slow clients beside"] = load(pid, f"{base}/v1/hosts/{name}/plans", new)
        after = load(pid, urls["bare"])
    rates = ((one.per_second, one.per_cpu_second) for one in (bare, after))
    peer = Load(*(sum(pair) / 2 for pair in zip(*rates, strict=True)), max(bare.p99, after.p99))
    table = [_row(f"{PEER}, {CLIENTS} clients", peer, peer)]
    return [*table, *(_row(f"{what}, {CLIENTS} clients", result, peer) for what, result in found.items())]


def _row(what: str, found: Load, peer: Load) -> dict[str, str]:
    return {
        "what": what,
        "ours": f"{found.per_second:,.0f}/s",
        "p99": f"{found.p99:.0f} ms",
        "ours per CPU second": f"{found.per_cpu_second:,.0f}",
        "ours / bare WSGI": f"{found.per_cpu_second / peer.per_cpu_second:.3f}",
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve_until_input_ends()
    else:
        for row in rows():
            print(", ".join(f"{name}: {value}" for name, value in row.items()))
