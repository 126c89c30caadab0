"""pinner believes the command line of a process only as long as the process has it."""

import subprocess
import sys

import pytest
from support.nova.nova_listener import until

from pinner.host.kernel.files import Folder
from pinner.host.nova import nova_process
from pinner.host.nova.nova_process import PROC, NotBelieved, candidates, started

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
