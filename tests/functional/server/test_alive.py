"""No silent death: what hangs or dies is told, bounded, and goes on by itself."""

import os
import resource
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import httpx
import pytest
from support.server import warm
from support.server.accounts import api_config, become
from support.server.pinner_server import PinnerServer

from pinner.server import privileges

pytestmark = [
    pytest.mark.fault(56),
    pytest.mark.needs("root"),
]
Start = Callable[..., PinnerServer]
MORE = pytest.mark.slow("the death of one more thread")


QUICK_CHECKS = f"""
from pinner.service.upkeep import monitor
monitor.CHECK_SECONDS = 0.2
{warm.PINNER}"""
"""A server that checks its health five times a second in place of once in five."""
QUICK_SILENCE = f"""
from pinner.agent.socket import client, wire
wire.PULSE_SECONDS = 0.2
client.AgentClient.__init__.__kwdefaults__["silence"] = 1.0
{QUICK_CHECKS}"""
"""A server whose agent counts as silent after one second in place of ten."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    running: list[warm.Program] = []
    clients = ExitStack()

    def begin(uri: str, code: str = warm.PINNER, config: str = "", **environment: str) -> PinnerServer:
        file, log = folder / "pinner.conf", folder / "log"
        file.write_text(
            f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {uri}\ncall_timeout = 1\n[host]\nname = here\n"
            f"{api_config()}{config}"
        )
        process = warm.start("serve", "--config-file", file, output=log, code=code, environment=environment)
        running.append(process)
        server = PinnerServer(process, log)
        clients.callback(server.http.close)
        return server

    with clients:
        yield begin
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(60)


def until(holds: Callable[[], object], seconds: float, told: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def checks(server: PinnerServer) -> dict[str, str]:
    """The failing checks by name, and why they fail."""
    return {each["name"]: each["why"] for each in server.http.get("/v1/health").json()["checks"] if not each["ok"]}


def status(server: PinnerServer) -> int:
    return server.http.get("/healthcheck/ready").status_code


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_a_stopped_agent_costs_the_api_a_bounded_time_and_recovers(start: Start, libvirtd: str) -> None:
    server = start(libvirtd, QUICK_SILENCE)
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    until(lambda: server.http.get("/v1/hosts/here/guests").status_code == 200, 60)
    asked: list[float] = []
    took: list[tuple[float, int]] = []
    transport = partial(httpx.HTTPTransport, uds=server.url.removeprefix("unix:"), verify=ssl.create_default_context())

    def observe(_: int) -> None:
        asked.append(began := time.monotonic())
        with httpx.Client(transport=transport(), base_url="http://localhost", timeout=60) as client:
            answer = client.get("/v1/hosts/here/guests")
        took.append((time.monotonic() - began, answer.status_code))

    with stopped(server.process.pid), ThreadPoolExecutor(80) as callers:
        list_of = [callers.submit(observe, number) for number in range(80)]
        until(lambda: len(asked) == 80, 30)
        for path in ("/v1/runs", "/healthcheck", "/v1/hosts"):
            assert server.http.get(path).status_code == 200, f"{path} needs the agent"
        for each in list_of:
            each.result()
        assert {code for _, code in took} == {503}
        until(lambda: status(server) == 503, 30)
        assert "no sign of life" in checks(server)["agent"]
        answer = server.http.get("/healthcheck/ready")
        assert int(answer.headers["Retry-After"]) > 0
        assert {"name": "agent", "ok": False} in answer.json()["checks"], "the public learns no reason"
        assert "sign of life" not in answer.text
        assert server.http.get("/healthcheck/live").status_code == 200
        print("seconds of the 80 calls:", sorted(round(seconds, 1) for seconds, _ in took)[::8])
    until(lambda: status(server) == 200, 30, lambda: checks(server))
    until(lambda: server.http.get("/v1/hosts/here/guests").status_code == 200, 30)


def test_a_libvirtd_that_hangs_adds_no_thread_at_each_observation_and_is_told(start: Start, libvirtd: str) -> None:
    """An observation waits 1.8 s here (six times call_timeout): some seconds stand for an hour."""
    server = start(libvirtd, QUICK_CHECKS, config="[libvirt]\ncall_timeout = 0.3\n")
    agent = server.process.pid
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    guests = "/v1/hosts/here/guests"
    until(lambda: server.http.get(guests).status_code == 200, 60)
    daemon = int((Path(libvirtd.partition("socket=")[2]).parent.parent / "libvirtd.pid").read_text())
    with stopped(daemon):
        for _ in range(2):
            assert server.http.get(guests).status_code == 503
        settled = threads_of(agent)
        with ThreadPoolExecutor(8) as callers:
            for _ in range(30):
                answers = list(callers.map(lambda _: server.http.get(guests).status_code, range(8)))
                assert set(answers) == {503}
        assert threads_of(agent) <= settled + 2, "a thread of each observation stays behind"
        until(lambda: "libvirt" in checks(server), 15)
        assert "libvirt has not answered for" in checks(server)["libvirt"]
        metrics = server.http.get("/metrics").text
        assert 'pinner_check_ok{check="libvirt"} 0.0' in metrics
        assert 'pinner_agent_threads{host="here"}' in metrics
        assert server.http.get("/v1/hosts/here/topology").status_code == 200, "what needs no libvirt goes on"
    until(lambda: server.http.get(guests).status_code == 200, 20)
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    until(lambda: threads_of(agent) <= settled, 20)


DYING = """
import os, sys, threading, time
from pinner.{module} import {kind}
kept = {kind}.{method}
def dying(self, *arguments):
    if {thread!r} not in threading.current_thread().name:
        return kept(self, *arguments)
    while not os.path.exists({go!r}):
        time.sleep(0.05)
    raise ArithmeticError("broken on purpose")
{kind}.{method} = dying
from pinner.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "kind", "method", "thread"),
    [
        ("agent.socket.server", "AgentServer", "_accept", "agent-accept"),
        pytest.param("agent.socket.server", "AgentServer", "_pulse", "agent-pulse", marks=MORE),
        pytest.param("agent.freed_memory", "FreedMemory", "_repeat", "freed memory", marks=MORE),
        ("host.watch.events", "HostWatcher", "_run", "events"),
        pytest.param("host.virt.libvirt_events", "LibvirtEvents", "_reconnect", "libvirt-events", marks=MORE),
        ("service.reconcile.controller", "PolicyController", "_repeat", "controller-"),
        pytest.param("service.runs.audit_heads", "AuditHeads", "_repeat", "audit-heads", marks=MORE),
        pytest.param("service.upkeep.retention", "Daily", "_repeat", "retention", marks=MORE),
        ("worker", "Passes", "_repeat", "outcomes of runs"),
        pytest.param("worker", "Passes", "_repeat", "interrupted probes", marks=MORE),
        pytest.param("service.upkeep.monitor", "Monitor", "_repeat", "health", marks=MORE),
    ],
)
def test_the_death_of_any_thread_ends_the_server_with_a_line_in_the_log(
    start: Start, folder: Path, module: str, kind: str, method: str, thread: str
) -> None:
    """The code of the thread is replaced, because no fault from outside makes it raise."""
    code = DYING.format(module=module, kind=kind, method=method, thread=thread, go=f"{folder}/go")
    server = start(f"qemu+unix:///system?socket={folder}/no-libvirt", code)
    (folder / "go").touch()
    assert server.process.wait(60) == 1
    told = [line for line in server.log.read_text().splitlines() if "broken on purpose" in line and "ends" in line]
    assert told, server.log.read_text()
    assert thread in told[0]
    assert "ArithmeticError" in told[0]


@pytest.mark.parametrize("target", ["delivery.DeliveryQueue._work", "broker.Receiver._start"])
def test_the_death_of_a_thread_of_the_nova_listener_ends_it(tmp_path: Path, target: str) -> None:
    """Neither a broker nor a server answers; the listener would wait for the broker for ever."""
    pytest.importorskip("oslo_messaging")
    config = tmp_path / "pinner.conf"
    config.write_text(
        f"[agent]\nstate_dir = {tmp_path}\n[nova_listener]\ntransport_url = rabbit://a:b@127.0.0.1:9/\n"
        f"server = unix:{tmp_path}/no-server\n"
    )
    code = textwrap.dedent(f"""
        import sys, time
        from pinner.nova import listener  # before its parts: it sets how oslo makes threads
        from pinner.nova.broker import broker
        from pinner.nova.delivery import delivery
        def dying(*_):
            time.sleep(0.2)
            raise ArithmeticError("broken on purpose")
        {target} = dying
        sys.exit(listener.main(["--config-file", {str(config)!r}]))
    """)
    done = warm.run(code=code, seconds=60)
    assert done.returncode == 1, done.stderr
    assert "ended by ArithmeticError: broken on purpose" in done.stderr


def test_an_error_of_the_watcher_is_told_and_it_goes_on(start: Start, libvirtd: str) -> None:
    code = textwrap.dedent("""
        from pinner.host.watch import events
        from pinner.host.watch.sources import Sources
        events.FIRST_RETRY = 0.3
        kept, calls = Sources.wait, []
        def wait(self, seconds):
            calls.append(seconds)
            if 3 < len(calls) < 7:
                raise OSError(24, "Too many open files")
            return kept(self, min(seconds, 0.5))
        Sources.wait = wait
    """)
    server = start(libvirtd, code + QUICK_CHECKS)
    until(lambda: "events" in checks(server), 30, server.log.read_text)
    assert "Too many open files" in checks(server)["events"]
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    assert server.process.poll() is None


def test_the_watchdog_is_told_only_while_the_threads_make_progress(folder: Path) -> None:
    """A thread hangs after a moment; systemd would end the process then."""
    code = textwrap.dedent("""
        import sys, threading, time
        from pinner.worker import Heartbeat
        from pinner.server.supervisor import Supervisor
        supervisor = Supervisor()
        def work():
            for _ in range(5):
                heartbeat.beat()
                time.sleep(0.1)
            time.sleep(3600)
        thread = threading.Thread(target=work, name="worker", daemon=True)
        heartbeat = Heartbeat(thread, 1.0)
        thread.start()
        supervisor.wait([heartbeat])
    """)
    path = folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(20)
        environment = os.environ | {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "600000"}
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True
        ) as server:
            assert manager.recv(100) == b"READY=1"
            assert manager.recv(100) == b"WATCHDOG=1"
            assert server.stderr is not None
            assert "the thread worker has made no progress" in server.stderr.readline()
            while select.select([manager], [], [], 0)[0]:
                assert manager.recv(100) == b"WATCHDOG=1"
            assert not select.select([manager], [], [], 1)[0], "the watchdog hears nothing any more"
            server.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert server.wait(60) == 0


def limit_files(pid: int, soft: int) -> None:
    """Set the soft limit of open files of a process. Only its own user may do that, or CAP_SYS_RESOURCE."""
    user = Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split()[0]
    code = (
        "import resource as r, sys; pid, soft = map(int, sys.argv[1:]);"
        "r.prlimit(pid, r.RLIMIT_NOFILE, (soft, r.prlimit(pid, r.RLIMIT_NOFILE)[1]))"
    )
    account = privileges.numbered(int(user), int(user))
    subprocess.run(
        ["/usr/bin/python3", "-c", code, str(pid), str(soft)], preexec_fn=lambda: become(account), check=True
    )


@pytest.mark.parametrize("process", ["agent", "api"])
def test_a_process_without_file_descriptors_serves_again_once_it_has_some(
    start: Start, libvirtd: str, process: str
) -> None:
    server = start(libvirtd, QUICK_CHECKS)
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    (api,) = server.children()
    pid = server.process.pid if process == "agent" else api
    before = resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE)
    used = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    lines = len(server.log.read_text().splitlines())
    limit_files(pid, next(number for number in count() if number not in used))
    with ExitStack() as opened:
        try:
            for _ in range(30):
                peer = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                peer.settimeout(2)
                peer.connect(str(server.url.removeprefix("unix:")))
                peer.sendall(b"GET /v1/hosts/here/guests HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # The API has no descriptor for a connection; the agent may have one, but none for its work.
            reasons = ("cannot be accepted", "no file can be opened")
            until(lambda: any(reason in server.log.read_text() for reason in reasons), 30, server.log.read_text)
            time.sleep(1)
            flood = server.log.read_text().splitlines()[lines:]
            refusals = sum("cannot be accepted" in line for line in flood)
            assert refusals == 1 or (refusals == 0 and process == "agent"), "one line a minute"
            assert len(flood) < 300
        finally:
            limit_files(pid, before[0])
    until(lambda: server.http.get("/v1/hosts/here/guests").status_code == 200, 30, server.log.read_text)
    until(lambda: status(server) == 200, 60, lambda: checks(server))
    assert server.process.poll() is None
