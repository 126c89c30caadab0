"""Whom pinner believes to be nova-compute, and the files below the root directory of a process."""

import errno
import os
import subprocess
import sys

import pytest
from support.nova.nova_listener import until

from pinner.host.kernel import beneath
from pinner.host.kernel.files import Folder
from pinner.host.nova import nova_process
from pinner.host.nova.nova_process import PROC, NotBelieved, candidates, started
from pinner.model.errors import Invalid

SCRIPT = """\
import os, sys
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.readline()"])
"""


def test_a_process_that_runs_another_program_now_is_not_believed(tmp_path):
    """A user's process with any command line can run a program of root, such as sudo, and keeps its process id."""
    script = tmp_path / "nova-compute"
    script.write_text(SCRIPT)
    command = [sys.executable, script, "--config-file", "/tmp/mine.conf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            # The kernel sets the command line a moment after the program.
            until(lambda: process.pid in [each.pid for each in candidates()], 20, candidates)
            candidate = next(each for each in candidates() if each.pid == process.pid)
            process.stdin.write("\n")
            cmdline = PROC / str(process.pid) / "cmdline"
            until(lambda: b"readline" in cmdline.read_bytes(), 20, cmdline.read_bytes)
            with (
                Folder(f"{PROC}/{process.pid}") as folder,
                nova_process.opened("root", folder) as root,
                pytest.raises(NotBelieved, match="command line"),
            ):
                started(candidate, folder, root)
        finally:
            process.kill()


@pytest.fixture
def root(tmp_path):
    (tmp_path / "top/etc").mkdir(parents=True)
    (tmp_path / "top/etc/inside").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    with nova_process.opened(str(tmp_path / "top")) as root:
        yield root


@pytest.fixture
def top(tmp_path):
    return tmp_path / "top"


@pytest.fixture
def old_kernel(monkeypatch):
    def missing(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(beneath, "openat2", missing)


def test_a_file_is_read(root):
    assert root.read("/etc/inside") == b"inside"
    assert root.names("/etc") == ["inside"]
    assert root.names("/etc/inside") == root.names("/nowhere") == []


@pytest.mark.parametrize("target", ["/etc/inside", "inside", "../../../etc/inside", "/../etc/inside"])
def test_links_stay_inside(root, top, target):
    (top / "etc/link").symlink_to(target)
    assert root.read("/etc/link") == b"inside"


@pytest.mark.parametrize("path", ["/../outside", "../outside", "/etc/../../outside", "/etc/link", "/etc/absolute"])
@pytest.mark.parametrize("kernel", ["new", "old"])
def test_no_path_leads_out(root, top, tmp_path, path, kernel, request):
    (top / "etc/link").symlink_to("../../outside")
    (top / "etc/absolute").symlink_to(tmp_path / "outside")
    if kernel == "old":
        request.getfixturevalue("old_kernel")
    assert not root.exists(path)
    with pytest.raises(OSError, match=r"No such file|symbolic link"):
        root.read(path)


def test_an_old_kernel_reads_paths_without_links_only(root, top, old_kernel):
    (top / "etc/link").symlink_to("inside")
    assert root.read("/etc/../etc/inside") == b"inside"
    with pytest.raises(OSError, match="symbolic link"):
        root.read("/etc/link")


def test_only_regular_files_of_a_bounded_size_are_read(root, top):
    os.mkfifo(top / "pipe")
    (top / "large").write_bytes(bytes(nova_process.MAX_FILE + 1))
    (top / "full").write_bytes(bytes(nova_process.MAX_FILE))
    for path, expected in (("/pipe", "a regular file"), ("/large", "at most 1048576 bytes")):
        with pytest.raises(Invalid, match=expected):
            root.read(path)
    assert len(root.read("/full")) == nova_process.MAX_FILE
    with pytest.raises(IsADirectoryError):
        root.read("/etc")


def test_the_null_device_is_an_empty_file_and_no_other_device_is_read():
    with nova_process.opened("/") as machine:
        assert machine.read("/dev/null") == b""
        with pytest.raises(Invalid, match="a regular file"):
            machine.read("/dev/zero")


def test_a_path_with_a_nul_does_not_exist(root):
    assert not root.exists("/etc/inside\0")
