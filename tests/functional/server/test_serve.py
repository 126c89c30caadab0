"""`pinner serve` as a user starts it, in a process of its own."""

import ctypes
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.server import warm
from support.server.accounts import api_config, api_user
from support.server.pinner_server import PinnerServer
from support.server.unix_http import http_client

PINNER = Path(sys.executable).with_name("pinner")
REPOSITORY = Path(__file__).parents[3]
needs_root = pytest.mark.needs("root")
MORE = pytest.mark.slow("one more error in a configuration")


PATIENT = f"from pinner.server import api_process; api_process.ORPHAN_SECONDS = 600.0\n{warm.PINNER}"
"""`pinner`, which waits for the end of an orphan however busy the machine is."""

Start = Callable[..., PinnerServer]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the API's user may enter, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str] | warm.Program] = []
    clients = ExitStack()

    def begin(
        *arguments: str,
        config: str = "",
        own_state: bool = True,
        command: tuple[str, ...] = (),
        code: str = warm.PINNER,
    ) -> PinnerServer:
        file = folder / "pinner.conf"
        state = f"state_dir = {folder}/state\n" if own_state else ""
        file.write_text(
            f"[agent]\n{state}[libvirt]\nuri = qemu+unix:///system?socket={folder}/no-libvirt\ncall_timeout = 1\n"
            f"{api_config()}{config}"
        )
        log = folder / "log"
        words = ["serve", "--config-file", str(file), *arguments]
        if command:
            with log.open("w") as out:
                process = subprocess.Popen([*command, *words], stdout=out, stderr=out, text=True)
        else:
            process = warm.start(*words, output=log, code=code)
        running.append(process)
        server = PinnerServer(process, log)
        clients.callback(server.http.close)
        return server

    with clients:
        yield begin
    for process in running:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def uids(pid: int) -> set[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return set(re.search(r"^Uid:\s+(.*)$", status, re.MULTILINE)[1].split())  # type: ignore[index]


@needs_root
def test_the_agent_runs_as_root_and_the_api_does_not(start: Start, folder: Path) -> None:
    server = start(command=(str(PINNER),))
    (api,) = server.children()
    assert uids(api) == {str(api_user().uid)}
    assert uids(server.process.pid) == {"0"}
    assert server.http.get("/healthcheck").status_code == 200
    with pytest.raises(PermissionError):
        _as_api(folder / "state" / "agent" / "journal.sqlite")


@needs_root
@pytest.mark.fault(54)
def test_a_second_server_of_a_state_folder_is_refused_and_the_first_one_goes_on(start: Start, folder: Path) -> None:
    first = start()
    assert first.url
    second = warm.run("serve", "--config-file", folder / "pinner.conf")
    assert second.returncode == 2
    assert "[agent] state_dir" in second.stderr
    assert f"process {first.process.pid} does" in second.stderr
    answer = first.http.get(f"/v1/hosts/{socket.gethostname()}/guests")
    assert "libvirt does not answer" in answer.text, "the request has reached the agent"


@needs_root
@pytest.mark.fault(54)
@pytest.mark.parametrize("stop", [False, True], ids=["running", "stopped"])
def test_a_server_of_another_state_folder_leaves_the_sockets_of_the_first_one(
    start: Start, folder: Path, stop: bool
) -> None:
    first = start(config=f"[agent]\nsocket = {folder}/agent.sock\n[api]\nsocket = {folder}/api.sock\n")
    other = folder / "other.conf"
    other.write_text((folder / "pinner.conf").read_text().replace(f"{folder}/state", f"{folder}/other"))
    inodes = {name: (folder / name).stat().st_ino for name in ("agent.sock", "api.sock")}
    if stop:
        first.process.send_signal(signal.SIGSTOP)
    for only in ((), ("--only", "agent")):
        second = warm.run("serve", *only, "--config-file", other)
        assert second.returncode == 2, second.stderr
        assert f"'{folder}/agent.sock'" in second.stderr
        assert f"process {first.process.pid} does" in second.stderr
    first.process.send_signal(signal.SIGCONT)
    assert inodes == {name: (folder / name).stat().st_ino for name in inodes}
    # The API has noticed a long stop, and asks the agent again within seconds.
    deadline = time.monotonic() + 60
    while "libvirt does not answer" not in first.http.get(f"/v1/hosts/{socket.gethostname()}/guests").text:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@needs_root
@pytest.mark.fault(54)
def test_after_the_agent_was_killed_a_new_server_starts_at_once(start: Start) -> None:
    """The API of the killed agent ends by itself; the new server waits for that."""
    first = start()
    first.process.kill()
    first.process.wait()  # until then it has the lock of the folder
    second = start(code=PATIENT)
    assert second.http.get("/healthcheck").status_code == 200
    assert "libvirt does not answer" in second.http.get(f"/v1/hosts/{socket.gethostname()}/guests").text


def _as_api(path: Path) -> None:
    """Open a file as the API's user; raises PermissionError."""
    code = f"import os; os.setuid({api_user().uid}); open({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "PermissionError" in done.stderr:
        raise PermissionError(done.stderr)


@needs_root
@pytest.mark.needs("mounts")
def test_without_a_configured_folder_the_state_of_root_is_used(start: Start) -> None:
    """The API does not use the state of its own user. A private /var/lib and /run protect the machine's state."""
    apart = (
        "unshare",
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        'mount -t tmpfs none /var/lib && mount -t tmpfs none /run && exec "$@"',
        "sh",
    )
    server = start(own_state=False, command=(*apart, str(PINNER)))
    assert server.url == "unix:/run/pinner/api.sock"
    root = Path(f"/proc/{server.process.pid}/root")
    with http_client(f"unix:{root}/run/pinner/api.sock") as http:
        assert http.get("/v1/audit/verify").json()["ok"] is True
    state = root / "var/lib/pinner"
    assert (state / "api/pinner.sqlite").stat().st_uid == api_user().uid
    assert (state / "agent/journal.sqlite").stat().st_uid == 0


def test_the_api_reaches_the_agent(start: Start) -> None:
    """No libvirt runs at that address, so an error of the agent shows that the API reaches the agent."""
    server = start()
    host = server.http.get("/v1/hosts").json()["items"][0]
    answer = server.http.get(f"/v1/hosts/{host}/guests")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "host_unreachable"
    assert "no-libvirt" in answer.json()["error"]["message"]


@needs_root
@pytest.mark.parametrize("process", ["agent", "API"])
def test_a_signal_to_any_thread_ends_the_server(start: Start, process: str) -> None:
    """The kernel may deliver a signal of a process to any of its threads."""
    server = start()
    (api,) = server.children()
    pid = server.process.pid if process == "agent" else api
    other = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    assert other != pid
    assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
    server.process.wait(60)


def test_a_second_start_uses_the_files_of_the_first(start: Start) -> None:
    """The second server works with the files that the first one left."""
    server = start()
    server.process.terminate()
    assert server.process.wait(60) == 0
    restarted = start()
    assert restarted.http.get("/v1/audit/verify").json()["ok"] is True


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_processes(start: Start, kind: signal.Signals) -> None:
    server = start()
    processes = server.children()
    server.process.send_signal(kind)
    assert server.process.wait(60) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


@needs_root
def test_the_api_ends_when_the_agent_is_killed(start: Start) -> None:
    server = start()
    (api,) = server.children()
    server.process.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{api}").exists() and "Z" not in Path(f"/proc/{api}/stat").read_text().rpartition(")")[2]:
        assert time.monotonic() < deadline, "the API outlived its agent"
        time.sleep(0.05)


@needs_root
def test_the_agent_ends_when_the_api_is_killed(start: Start) -> None:
    server = start()
    (api,) = server.children()
    os.kill(api, signal.SIGKILL)
    assert server.process.wait(60) == 1
    assert f"the API's process {api} was ended by SIGKILL" in server.log.read_text()


@pytest.mark.parametrize(
    ("config", "arguments", "complaint"),
    [
        ("", ("--bind", "192.0.2.1"), "bind: '192.0.2.1:8077'"),
        pytest.param("[api]\nsocket = /dev/null\n", (), "[api] socket: '/dev/null'", marks=MORE),
        pytest.param("[api]\ngroup = no-such-group\n", (), "group: 'no-such-group'", marks=MORE),
        ("[api]\nuser = root\n", (), "user: 'root'"),
        pytest.param("[api]\nuser = nobody\n", (), "user: 'nobody'", marks=MORE),
        pytest.param("[api]\nuser = no-such-user\n", (), "user: 'no-such-user'", marks=MORE),
        pytest.param("[api]\ntrusted_proxies = 10.0.0.300\n", (), "[api] trusted_proxies: '10.0.0.300'", marks=MORE),
        pytest.param("[api]\ntls_client_roles = deploy:root\n", (), "[api] tls_client_roles: 'root'", marks=MORE),
        ("[oslo_policy]\npolicy_file = /no/such/file\n", (), "[oslo_policy] policy_file: '/no/such/file'"),
        ("[database]\nconnection = nonsense\n", (), "connection"),
        ("[database]\nconnection = sqlite:////tmp/x.sqlite\n", (), "[database] connection: '/tmp' is not valid"),
    ],
)
@needs_root
def test_an_error_in_the_configuration_is_one_line(
    folder: Path, config: str, arguments: tuple[str, ...], complaint: str
) -> None:
    file = folder / "pinner.conf"
    file.write_text(f"[agent]\nstate_dir = {folder}/state\n{api_config()}{config}")
    done = warm.run("serve", "--config-file", file, *arguments)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@needs_root
@pytest.mark.parametrize("database", ["api/pinner.sqlite", "agent/journal.sqlite"])
def test_a_database_of_another_version_is_refused_in_one_line(folder: Path, database: str) -> None:
    (folder / "pinner.conf").write_text(
        f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = qemu+unix:///system?socket={folder}/no-libvirt\n"
        f"{api_config()}"
    )
    config = ("--config-file", folder / "pinner.conf")
    (folder / "state" / "api").mkdir(parents=True)
    (folder / "state").chmod(0o711)
    os.chown(folder / "state" / "api", api_user().uid, api_user().gid)
    assert warm.run("run", "list", *config).returncode == 0
    file = folder / "state" / database
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '0025'")
    for command in (("run", "list"), ("serve",)):
        done = warm.run(*command, *config)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2
        assert f"pinner: error: database {file}: its revision is 0025" in line
        assert f"`pinner audit export FILE`, and stop it; then run `pinner-manage db set-aside {file}`" in line
    assert warm.run("db", "set-aside", file, "--yes", *config, code=warm.MANAGE).returncode == 0
    assert warm.run("run", "list", *config).returncode == 0
