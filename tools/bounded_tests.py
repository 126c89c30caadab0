"""Runs tests whose code may loop, wait for ever, or leave processes behind: nothing of theirs outlasts the run."""

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

NO_PLUGINS = ("-p", "no:cacheprovider", "-p", "no:schemathesis")
_TREE = "BOUNDED_TESTS_TREE"
"""The environment variable that all processes of a run inherit, those with a session of their own, too."""


def run(tree: Path, seconds: float, *arguments: str) -> tuple[int, str]:
    """Run tests in a copy of the source tree; their status and output. A signal ends them once a process has used so
    many seconds of a CPU, or after five times as long: on a busy machine, tests that do not loop take much longer than
    usual."""
    limit = ("timeout", "--signal=KILL", f"{5 * seconds:.0f}", "prlimit", f"--cpu={seconds:.0f}")
    # A third of the time of a short run is the import of schemathesis. Its tests are left out.
    command = [*limit, sys.executable, "-m", "pytest", "-q", *NO_PLUGINS, *arguments]
    # Not a pipe: a process that outlasts the tests holds it open, and who reads it waits for that process.
    with tempfile.TemporaryFile() as output:
        try:
            environment = {**os.environ, _TREE: str(tree)}
            done = subprocess.run(
                command, cwd=tree, env=environment, check=False, stdout=output, stderr=subprocess.STDOUT
            )
        finally:
            _end_left_behind(tree)
        output.seek(0)
        return done.returncode, output.read().decode(errors="replace")


def _end_left_behind(tree: Path) -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_TREE) == str(tree):
                process.kill()
