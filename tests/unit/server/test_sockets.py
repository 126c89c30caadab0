import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.accounts import api_account

from pinner.model.errors import Invalid
from pinner.server import sockets, systemd

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
INHERIT = """
import os, sys
os.dup2({fd}, 3)
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "api"}}
from pinner.server import sockets
found = sockets.inherited()
print(*(each.getsockname() for each in found), "LISTEN_FDS" in os.environ, found[0].get_inheritable())
"""


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
    systemd.notify_ready()
    for address, bound in ((str(tmp_path / "n"), str(tmp_path / "n")), ("@pinner-test", "\0pinner-test")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(bound)
            monkeypatch.setenv("NOTIFY_SOCKET", address)
            systemd.notify_ready()
            assert manager.recv(100) == b"READY=1"


def test_the_folder_of_a_socket_is_made(tmp_path: Path) -> None:
    os.umask(mask := os.umask(0o022))
    sockets.prepare_folder(tmp_path / "run" / "pinner", "[agent] socket")
    assert (tmp_path / "run/pinner").stat().st_mode & 0o777 == 0o755 & ~mask


@pytest.mark.parametrize("mode", [0o775, 0o1777, 0o757])
def test_a_folder_in_which_others_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(Invalid, match=r"\[agent\] socket.*nobody else writes"):
        sockets.prepare_folder(tmp_path, "[agent] socket")


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, api_account().uid, -1)
    with pytest.raises(Invalid, match="belongs to this user"):
        sockets.prepare_folder(tmp_path, "[agent] socket")


def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(Invalid, match="/dev/null/run"):
        sockets.prepare_folder(Path("/dev/null/run"), "[agent] socket")
