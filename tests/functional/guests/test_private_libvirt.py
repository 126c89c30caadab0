"""The private libvirtd of the tests and the demo leaves no process, folder or cgroup behind, however it ends."""

import glob
import os
import signal
import subprocess
import sys
from pathlib import Path

import private_libvirt
import pytest

pytestmark = pytest.mark.usefixtures("module_room_for_libvirtd")

CODE = """
import signal, sys
from pathlib import Path
import private_libvirt
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in a shell's background
folder = Path(sys.argv[1])
with private_libvirt.private_libvirtd(folder) as uri:
    private_libvirt.start_guest(uri, private_libvirt.guest_xml(sys.argv[2]), paused=True)
    print(*[(folder / name).read_text().strip() for name in ("libvirtd.pid", f"run/qemu/{sys.argv[2]}.pid")])
    sys.stdout.flush()
    if sys.argv[3] == "raise":
        raise RuntimeError("broken")
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["raise", "Ctrl-C", "Ctrl-C twice", "libvirtd is killed"])
def test_no_process_folder_or_cgroup_is_left(tmp_path, how):
    name = f"left-{os.getpid()}"
    folder = tmp_path / "d"
    with subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder), name, how],
        env=os.environ | {"PYTHONPATH": str(Path(private_libvirt.__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        libvirtd, guest = map(int, running.stdout.readline().split())
        if how == "libvirtd is killed":
            os.kill(libvirtd, signal.SIGKILL)
            running.stdin.close()
        elif how != "raise":
            for _ in how.split()[1:] or [1]:
                running.send_signal(signal.SIGINT)
        running.wait(60)
    assert not _runs(libvirtd, "libvirtd")
    assert not _runs(guest, "qemu")
    assert not folder.exists()
    # Path.glob fails where another test removes a folder meanwhile.
    assert not glob.glob(f"/sys/fs/cgroup/**/qemu-*{name}*", recursive=True)


def _runs(pid: int, name: str) -> bool:
    """Whether the process runs; a process that has ended, but is not reaped yet, has no command line any more."""
    try:
        return name in Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return False
