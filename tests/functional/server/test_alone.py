"""The CLI and pinner-manage without a server: root opens no file of a database that belongs to the API's user.

The API's user replaces each file by a symlink to a file of root, as an attacker would. strace shows every file that the
processes open, and as whom.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import rights
from support.server import warm
from support.server.accounts import api_user
from support.server.pinner_server import PinnerServer

BIN = Path(sys.executable).parent
FILES = ("pinner.sqlite", "pinner.sqlite-wal", "pinner.sqlite-shm", "pinner.sqlite-journal")
SECRET = "root's secret"
TRACED = "open,openat,openat2,creat,clone,clone3,fork,vfork,setuid,setresuid,chown,fchownat,chmod,fchmodat,link,linkat"

pytestmark = [
    pytest.mark.needs("root"),
    pytest.mark.fault(42),
]


@dataclass
class State:
    """The state of a server that has ended, in a folder that other users may enter."""

    folder: Path

    @property
    def api(self) -> Path:
        return self.folder / "state" / "api"

    def run(self, *command: str, trace: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of pinner with this state, as root; with ``trace`` its system calls are in the file trace."""
        program, *arguments = command
        if not trace:
            code = {"pinner": warm.PINNER, "pinner-manage": warm.MANAGE}[program]
            return warm.run(*arguments, "--config-file", self.folder / "pinner.conf", code=code, **environment)
        options = ["-f", "--seccomp-bpf", "-y", "-qq", "-e", f"trace={TRACED}", "-o", str(self.folder / "trace")]
        return subprocess.run(
            ["strace", *options, BIN / program, *arguments, "--config-file", self.folder / "pinner.conf"],
            capture_output=True, text=True, check=False, timeout=120, env=os.environ | environment,
        )  # fmt: skip

    def link(self, name: str, target: Path) -> None:
        """As the API's user, replace a file of the database by a symlink."""
        user = {"user": api_user().uid, "group": api_user().gid, "extra_groups": []}
        subprocess.run(["ln", "-sfn", target, self.api / name], check=True, cwd="/", **user)  # type: ignore[call-overload]


@pytest.fixture
def state() -> Iterator[State]:
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "pinner.conf").write_text(
            f"[agent]\nstate_dir = {folder}/state\n[host]\nname = here\nsample_seconds = 0.1\n"
            f"[libvirt]\nuri = qemu+unix:///system?socket={folder}/no-libvirt\ncall_timeout = 1\n{api_user().config}"
        )
        api = folder / "state" / "api"
        api.mkdir(parents=True)
        api.parent.chmod(0o711)
        os.chown(api, api_user().uid, api_user().gid)
        api.chmod(0o700)
        yield State(folder)


def opened_by_root(trace: str) -> list[str]:
    """The calls of root that concern a file of the database. A process counts as root until it has given up root."""
    children: set[str] = set()
    _root_calls(trace, children)
    # A child may be seen before the end of the call that has made it.
    return _root_calls(trace, children)


def _root_calls(trace: str, children: set[str]) -> list[str]:
    """The calls; ``children`` begin without root, and those that the trace shows are added to them."""
    dropped = set(children)
    found = []
    for pid, call in _whole_calls(trace):
        if re.search(r"set(res)?uid\([1-9]\d*.*= 0$", call):
            dropped.add(pid)
        elif pid in dropped and (child := re.search(r"\b(?:clone3?|v?fork)\b.* = (\d+)$", call)):
            dropped.add(child[1])
            children.add(child[1])
        elif "api/pinner.sqlite" in call and pid not in dropped:
            found.append(f"{pid} {call}")
    return found


def _whole_calls(trace: str) -> Iterator[tuple[str, str]]:
    """Each call with the id of its process. strace shows a call in two lines where another process is active then."""
    begun: dict[str, str] = {}
    for line in trace.splitlines():
        pid, _, call = line.partition(" ")
        if call.endswith(" <unfinished ...>"):
            begun[pid] = call.removesuffix(" <unfinished ...>")
        else:
            resumed = re.sub(r"^\s*<\.\.\. \w+ resumed>", "", call)
            yield pid, call if resumed == call else begun.pop(pid, "") + resumed


def test_a_command_of_root_works_with_the_database_of_the_apis_user(state: State) -> None:
    # strace shows the files of a process that has given up root only with this right.
    is_traced = bool(shutil.which("strace")) and not rights.lacking("read_other_users")
    changed = state.run("pinner", "policy", "set", "--yes", "--mode", "observe", SUDO_USER="ann", trace=is_traced)
    assert changed.returncode == 0, changed.stderr
    assert (state.api / "pinner.sqlite").stat().st_uid == api_user().uid
    if is_traced:
        trace = (state.folder / "trace").read_text()
        assert "api/pinner.sqlite" in trace
        assert opened_by_root(trace) == []
    listed = state.run("pinner", "audit", "list", "--json")
    assert '"actor": "ann"' in listed.stdout, listed.stderr
    assert state.run("pinner-manage", "db", "current").returncode == 0
    assert {path.stat().st_uid for path in state.api.iterdir()} == {api_user().uid}
    assert not list(Path("/run").glob("pinner-*/api.sock")), "the sockets of the command are removed"


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize(
    "database", ["a file of root", pytest.param("absent", marks=pytest.mark.slow("one more symlink of the API's user"))]
)
@pytest.mark.parametrize(
    "command",
    [("pinner", "run", "list"), ("pinner", "plan", "--sample-seconds", "0"), ("pinner-manage", "db", "upgrade")],
    ids=" ".join,
)
def test_root_follows_no_symlink_of_the_apis_user(state: State, command: tuple[str, ...], database: str) -> None:
    secret = state.folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    before = secret.stat()
    absent = state.folder / "absent"
    absent.mkdir(0o700)
    for name in FILES:
        state.link(name, absent / name)
    if database == "a file of root":
        state.link("pinner.sqlite", secret)
    done = state.run(*command, trace=True)
    assert done.returncode == 1
    assert "internal" not in done.stderr
    assert list(absent.iterdir()) == [], "nothing was created through a symlink"
    after = secret.stat()
    assert (secret.read_text(), after.st_uid, after.st_mode, after.st_ctime_ns) == (
        SECRET, before.st_uid, before.st_mode, before.st_ctime_ns,
    )  # fmt: skip
    trace = (state.folder / "trace").read_text()
    assert opened_by_root(trace) == []
    assert f"<{secret}>" not in trace, "nobody has opened the file"


def test_serve_follows_no_symlink_of_the_apis_user(state: State) -> None:
    """The server goes on without the database, and names the file that its API cannot open."""
    secret = state.folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    for target in (secret, state.folder / "absent" / "pinner.sqlite"):
        state.link("pinner.sqlite", target)
        with serving(state) as server:
            assert server.http.get("/healthcheck").status_code == 200
            refused = server.http.get("/v1/runs")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_unavailable")
            assert str(state.api / "pinner.sqlite") in refused.json()["error"]["message"]
        assert (secret.read_text(), secret.stat().st_uid, secret.stat().st_mode & 0o777) == (SECRET, 0, 0o600)
        assert not target.parent.exists() or target == secret


@contextmanager
def serving(state: State) -> Iterator[PinnerServer]:
    """A server that is killed at the end."""
    log = state.folder / "log"
    process = warm.start("serve", "--config-file", state.folder / "pinner.conf", output=log)
    server = PinnerServer(process, log)
    try:
        yield server
    finally:
        for pid in (*server.children(), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        server.http.close()


@pytest.mark.parametrize(
    "command", [("pinner", "run", "list"), ("pinner", "serve"), ("pinner-manage", "db", "current")]
)
def test_a_state_folder_of_another_user_is_refused(state: State, command: tuple[str, ...]) -> None:
    """Its owner could replace the folder of the agent's journal."""
    os.chown(state.api.parent, api_user().uid, -1)
    done = state.run(*command)
    if command[0] == "pinner":
        assert done.returncode == 2
        assert "only root can write" in done.stderr
    assert not (state.api.parent / "agent").exists()


@pytest.mark.fault(43)
def test_the_cli_asks_the_server_and_goes_on_alone_after_it(state: State) -> None:
    """A socket of a dead server counts as no server. A user outside the group is told the remedy."""
    with (state.folder / "pinner.conf").open("a") as config:
        config.write("[api]\ngroup = adm\n")
    with serving(state) as server:
        assert state.run("pinner", "policy", "set", "--yes", "--mode", "observe", SUDO_USER="ann").returncode == 0
        assert server.http.get("/v1/audit").json()["items"][0]["actor"] == "ann"
        (state.folder / "pinner.conf").chmod(0o644)
        command = [sys.executable, "-c", AS_NOBODY, "--config-file", str(state.folder / "pinner.conf"), "run", "list"]
        refused = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        assert refused.returncode == 1
        assert "sudo usermod -aG adm nobody" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    time.sleep(0.2)
    assert (state.folder / "state" / "api.sock").is_socket()
    alone = state.run("pinner", "audit", "list", "--json")
    assert '"actor": "ann"' in alone.stdout, alone.stderr


AS_NOBODY = """
import os, pkgutil, sys
import pinner.cli, pinner.server.opening, pinner.service.remote.remote, pinner.wiring
import rich.console, rich.table, rich.text
for module in pkgutil.walk_packages(pinner.cli.__path__, "pinner.cli."):
    __import__(module.name)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(sys.modules["pinner.cli.main"].main(sys.argv[1:]))
"""
"""Python in root's home could not be read after the change of the user, so the modules are imported before it."""
