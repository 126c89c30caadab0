"""`pinner serve --only agent` and `--only api`: the parts of a server as systemd starts them."""

import os
import pwd
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from support.server import warm
from support.server.accounts import api_user, require_readable_checkout

pytestmark = pytest.mark.needs("root")
AS_API = f"from support.server.accounts import api_account, become; become(api_account()); {warm.PINNER}"


@dataclass
class Host:
    """The folder of a host's server, with its configuration."""

    folder: Path
    api_pid: int = 0
    """The process of the latest API."""

    @property
    def config(self) -> str:
        return str(self.folder / "pinner.conf")

    @contextmanager
    def agent(self) -> Iterator[warm.Program]:
        """The agent, once it is ready."""
        with ready(self.folder) as notify:
            words = ("serve", "--only", "agent", "--config-file", self.config)
            process = warm.start(*words, output=self.folder / "agent.log", environment=notify)
        yield from _until_the_end(process)

    @contextmanager
    def api(self) -> Iterator[httpx.Client]:
        """A client of the API on a Unix socket that the API has inherited, once it is ready."""
        path = self.folder / "api.sock"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            with ready(self.folder) as notify:
                process = self._start_api(listening, notify)
                self.api_pid = process.pid
        for _ in _until_the_end(process):
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
                client.timeout = httpx.Timeout(60)
                yield client

    def _start_api(self, listening: socket.socket, notify: dict[str, str]) -> warm.Program:
        require_readable_checkout()
        words = ("serve", "--only", "api", "--config-file", self.config)
        log = self.folder / "api.log"
        return warm.start(*words, output=log, code=AS_API, environment=notify, listening=listening)


@contextmanager
def ready(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a service that reports when it is ready; ends when it has reported.

    Each service has a socket of its own: one that runs already sends signs of life."""
    path = folder / f"notify-{uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        path.chmod(0o666)
        manager.settimeout(60)
        yield {"NOTIFY_SOCKET": str(path)}
        assert manager.recv(100) == b"READY=1"


def _until_the_end(process: warm.Program) -> Iterator[warm.Program]:
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(60) in (0, -9, -15)


@pytest.fixture
def host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "pinner.conf").write_text(
            f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = qemu+unix:///system?socket={folder}/no-libvirt\n"
            f"call_timeout = 1\n[host]\nname = here\nsample_seconds = 0.1\n{api_user().config}"
        )
        yield Host(folder)


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["message"]


def test_the_two_parts_serve_a_host_together(host: Host) -> None:
    with host.agent(), host.api() as api:
        assert api.get("/v1/hosts").json()["items"] == ["here"]
        status, code, message = error_of(api.get("/v1/hosts/here/guests"))
        assert (status, code) == (503, "host_unreachable")
        assert "libvirt does not answer" in message, "the error of the agent shows that the API reaches it"
    state = host.folder / "state"
    owner = {part: (state / part).stat().st_uid for part in (".", "agent", "agent/journal.sqlite", "api/pinner.sqlite")}
    assert owner == {".": 0, "agent": 0, "agent/journal.sqlite": 0, "api/pinner.sqlite": api_user().uid}


def test_only_the_apis_user_reaches_the_agents_socket(host: Host) -> None:
    with host.agent():
        found = (host.folder / "state" / "agent.sock").stat()
        assert (found.st_uid, found.st_mode & 0o777) == (api_user().uid, 0o600)


def test_the_api_goes_on_while_the_agent_is_away(host: Host) -> None:
    """Before the first start of the agent there is no state folder, so the agent starts once."""
    with host.agent():
        pass
    with host.api() as api:
        assert api.get("/healthcheck").status_code == 200
        policy = {"mode": "observe", "request": {"strategy": "shared-pool"}}
        assert api.put("/v1/hosts/here/policy", json=policy).status_code == 200
        status, code, message = error_of(api.get("/v1/hosts/here/guests"))
        assert (status, code) == (503, "host_unreachable")
        assert "its agent does not answer" in message
        for _ in range(2):
            with host.agent():
                assert "libvirt does not answer" in error_of(api.get("/v1/hosts/here/guests"))[2]
            time.sleep(0.5)
        assert "its agent does not answer" in error_of(api.get("/v1/hosts/here/guests"))[2]
        assert api.get("/v1/audit/verify").json()["result"] == "incomplete", "the agent is away"


def refused(host: Host, *arguments: str, user: int = 0) -> str:
    if user:
        require_readable_checkout()
    code = f"from support.server.accounts import become, numbered; become(numbered({user}, {user})); {warm.PINNER}"
    done = warm.run("serve", "--config-file", host.config, *arguments, code=code)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.fault(54)
def test_a_second_agent_and_a_second_api_are_refused(host: Host) -> None:
    with host.agent() as agent, host.api() as api:
        assert f"process {agent.pid} does" in refused(host, "--only", "agent")
        assert f"process {agent.pid} does" in refused(host)
        told = refused(host, "--only", "api", user=api_user().uid)
        assert f"{host.folder}/state/api" in told
        assert "; process " in told
        assert "libvirt does not answer" in error_of(api.get("/v1/hosts/here/guests"))[2]
        agent.kill()
        agent.wait()
        with host.agent():
            assert "libvirt does not answer" in error_of(api.get("/v1/hosts/here/guests"))[2]


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_the_api_alone_refuses_root_and_nobody(host: Host, user: str) -> None:
    told = refused(host, "--only", "api", user=pwd.getpwnam(user).pw_uid)
    assert repr(user) in told
    assert "pinner-manage setup-host" in told


def test_the_agent_alone_refuses_other_users(host: Host) -> None:
    assert "root" in refused(host, "--only", "agent", user=api_user().uid)


def test_a_socket_in_a_folder_that_others_write_is_refused(host: Host) -> None:
    with Path(host.config).open("a") as config:
        config.write("[agent]\nsocket = /tmp/agent.sock\n")
    assert "[agent] socket: '/tmp'" in refused(host, "--only", "agent")


def test_the_processes_of_the_apis_user_are_pinners_own(host: Host) -> None:
    """The agent does not start the API, and must not move its threads nevertheless."""
    from pinner.host.processes.immovable import OwnProcesses

    with host.agent() as agent, host.api():
        own = OwnProcesses(api_user().uid)
        assert host.api_pid in own
        assert agent.pid not in own
        assert os.getpid() in own
