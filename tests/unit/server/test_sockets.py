"""The listening sockets, with real sockets, users and groups."""

import contextlib
import grp
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from pinner.model.errors import Invalid, NotPermitted
from pinner.server import sockets, supervisor

needs_root = pytest.mark.needs("root")
ANN = 54321
INHERIT = """
import os, sys
os.dup2({fd}, 3)
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api"}}
from pinner.server import sockets
found = sockets.inherited()
print(*(each.getsockname() for each in found), "LISTEN_FDS" in os.environ, found[0].get_inheritable())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "api.sock"


def listen(path: Path, **owner: int) -> socket.socket:
    return sockets.listen_unix(path, "[api] socket", **owner)


def test_the_socket_is_for_this_user_alone_unless_a_group_is_named(path: Path) -> None:
    with listen(path) as made:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert sockets.answers(path)
        assert made.getsockname() == str(path)


@needs_root
def test_the_owner_and_the_group_are_set_whatever_the_umask_is(path: Path) -> None:
    mask = os.umask(0o077)
    try:
        with listen(path, user=ANN, group=grp.getgrnam("adm").gr_gid, mode=0o660):
            found = path.lstat()
    finally:
        os.umask(mask)
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (ANN, grp.getgrnam("adm").gr_gid, 0o660)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755, "members of the group reach the socket"


def test_a_dead_socket_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.is_socket()
    assert not sockets.answers(path)
    with listen(path):
        assert sockets.answers(path)


def test_a_live_socket_is_refused_and_goes_on(path: Path) -> None:
    with listen(path) as first:
        with pytest.raises(Invalid, match="no other running") as refused:
            listen(path)
        assert refused.value.details["field"] == "[api] socket"
        assert sockets.answers(path)
        first.accept()[0].close()


@pytest.mark.fault(42)
@pytest.mark.fault(54)
def test_the_refusal_names_the_process_that_listens(path: Path) -> None:
    with sockets.listen_unix(path, "socket"), pytest.raises(Invalid, match=f"process {os.getpid()} does"):
        sockets.listen_unix(path, "socket")


@pytest.mark.fault(54)
def test_a_server_whose_queue_of_connections_is_full_is_alive(path: Path) -> None:
    """It may be stopped (SIGSTOP), or busy. connect(2) then says EAGAIN at once."""
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(sockets.listen_unix(path, "socket"))
        listening.listen(1)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = opened.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        assert sockets.answers(path)
        with pytest.raises(Invalid, match="no other running"):
            sockets.listen_unix(path, "socket")
    assert path.exists()


@pytest.mark.fault(54)
def test_a_server_that_is_about_to_end_is_waited_for(path: Path) -> None:
    first = sockets.listen_unix(path, "socket")
    threading.Timer(0.3, first.close).start()
    sockets.listen_unix(path, "socket", wait_seconds=10).close()


@pytest.mark.parametrize("kind", ["file", "symlink", "folder"])
def test_another_kind_of_file_is_refused_and_stays(path: Path, tmp_path: Path, kind: str) -> None:
    path.parent.mkdir()
    target = tmp_path / "precious"
    target.write_text("precious")
    match kind:
        case "file":
            path.write_text("precious")
        case "symlink":
            path.symlink_to(target)
        case "folder":
            path.mkdir()
    with pytest.raises(Invalid, match="another kind of file"):
        listen(path)
    assert path.lstat()
    assert target.read_text() == "precious"


@needs_root
@pytest.mark.fault(42)
def test_a_folder_that_another_user_can_write_is_refused(path: Path) -> None:
    path.parent.mkdir()
    os.chown(path.parent, ANN, -1)
    with pytest.raises(Invalid, match="only root can write"):
        listen(path)
    assert not list(path.parent.iterdir())


def test_a_long_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="107 bytes"):
        listen(tmp_path / ("x" * 100))


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(Invalid, match=r"\[api\] socket: '/proc/none/api.sock'"):
        listen(Path("/proc/none/api.sock"))


def test_tcp_is_served_where_an_address_is_set_and_the_socket_is_removed_at_the_end(path: Path) -> None:
    with ExitStack() as undo:
        unix, tcp = sockets.listen(sockets.ApiAddress(path, "root", "127.0.0.1", 0), undo)
        assert (unix.getsockname(), tcp.getsockname()[0]) == (str(path), "127.0.0.1")
        with pytest.raises(Invalid, match="a free address") as taken, ExitStack() as other:
            sockets.listen(sockets.ApiAddress(path.with_name("b"), "root", *tcp.getsockname()), other)
        assert taken.value.details["field"] == "bind"
        assert not path.with_name("b").exists()
    assert not path.exists()


def test_without_an_address_only_the_unix_socket_listens(path: Path) -> None:
    with ExitStack() as undo:
        assert len(sockets.listen(sockets.ApiAddress(path, "root", "", 0), undo)) == 1


@needs_root
def test_an_unknown_group_is_named(path: Path) -> None:
    with pytest.raises(Invalid, match=r"\[api\] group: 'no-such-group'.*setup-host"), ExitStack() as undo:
        sockets.listen(sockets.ApiAddress(path, "no-such-group", "", 0), undo)


@needs_root
@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("mode", "remedy"), [(0o660, "sudo usermod -aG adm"), (0o600, "only the user who runs this server may")]
)
def test_a_user_who_may_not_connect_gets_the_remedy(mode: int, remedy: str) -> None:
    """The folder is a temporary one that others may enter, unlike pytest's own folders."""
    code = (
        "import os, sys; from pathlib import Path; from pinner.server import sockets; os.setgroups([]);"
        "os.setgid(65534); os.setuid(65534); sockets.answers(Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "api.sock"
        Path(name).chmod(0o711)
        with listen(path, group=grp.getgrnam("adm").gr_gid, mode=mode):
            asked = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
            with pytest.raises(NotPermitted, match=remedy):
                raise NotPermitted("x", asked.stderr)


def test_a_socket_that_systemd_passes_is_taken_once(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as given:
        given.bind(str(tmp_path / "s"))
        given.listen()
        asked = _run(given.fileno())
    assert asked.stdout.split() == [str(tmp_path / "s"), "False", "False"]


def test_a_socket_that_does_not_listen_is_refused() -> None:
    with socket.socket(socket.AF_UNIX) as given:
        assert "ListenStream=" in _run(given.fileno()).stderr


def test_sockets_of_another_process_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert sockets.inherited() == []


def _run(fd: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", INHERIT.format(fd=fd)], capture_output=True, text=True, pass_fds=[fd], check=False
    )


def test_systemd_is_told_that_the_service_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor.notify(supervisor.READY)
    for address, bound in ((str(tmp_path / "n"), str(tmp_path / "n")), ("@pinner-test", "\0pinner-test")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(bound)
            monkeypatch.setenv("NOTIFY_SOCKET", address)
            supervisor.notify(supervisor.READY)
            assert manager.recv(100) == b"READY=1"


def test_a_service_that_cannot_tell_systemd_names_the_reason(tmp_path: Path) -> None:
    code = "from pinner.server.supervisor import Supervisor; Supervisor().wait()"
    environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "absent")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "PinnerError: systemd cannot be told that the service is ready (NOTIFY_SOCKET): " in done.stderr
