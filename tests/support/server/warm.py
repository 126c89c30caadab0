"""Programs of pinner in forks of a process that has imported it: half of the cost of a start is the imports.

Tests whose subject is the start itself, or the memory of a process, start real programs instead.
"""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

PINNER = "import sys; from pinner.cli.main import main; sys.exit(main())"
MANAGE = "import sys; from pinner.cli.manage.manage import main; sys.exit(main())"
_IMPORTED = [
    *("pytest", "support.server.warm", "libvirt", "rich.console", "rich.table"),
    *(
        "pinner.cli.main",
        "pinner.cli.commands.serve",
        "pinner.server.main",
        "pinner.server.opening",
        "pinner.server.access",
    ),
    *(
        "pinner.api.app",
        "pinner.api.server",
        "pinner.service.remote.remote",
        "pinner.wiring",
        "pinner.store.database.schema",
    ),
    "pinner.nova.listener",
]


class Program:
    """A running program, with the methods of subprocess.Popen that tests use."""

    def __init__(
        self,
        *arguments: str,
        code: str,
        output: Path,
        errors: Path | None,
        environment: Mapping[str, str],
        listening: socket.socket | None,
    ) -> None:
        output.write_bytes(b"")
        work = (code, arguments, str(output), str(errors or ""), {**os.environ, **environment}, listening)
        self._process = _context().Process(target=_run, args=work)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, as of subprocess.Popen."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit status of a program that has ended."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the exit status. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("pinner", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, kind: signal.Signals) -> None:
        """Send a signal to a program that runs."""
        # The fork server reaps it a moment before this process knows its status.
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, kind)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(
    *arguments: object,
    output: Path,
    code: str = PINNER,
    environment: Mapping[str, str] | None = None,
    listening: socket.socket | None = None,
) -> Program:
    """Start `pinner` with these arguments, or another program; ``output`` gets what it writes. It inherits the
    ``listening`` socket as systemd hands it over."""
    words, named = map(str, arguments), environment or {}
    return Program(*words, code=code, output=output, errors=None, environment=named, listening=listening)


def run(
    *arguments: object, code: str = PINNER, seconds: float = 120.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `pinner` with these arguments, or another program, to its end. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        output, errors = Path(name, "output"), Path(name, "errors")
        words = [str(argument) for argument in arguments]
        program = Program(*words, code=code, output=output, errors=errors, environment=environment, listening=None)
        try:
            status = program.wait(seconds)
        finally:
            program.kill()
        return subprocess.CompletedProcess(words, status, output.read_text(), errors.read_text())


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _run(
    code: str,
    arguments: tuple[str, ...],
    output: str,
    errors: str,
    environment: Mapping[str, str],
    listening: socket.socket | None,
) -> None:
    """Be the program, in the new process."""
    if listening is not None:
        os.dup2(listening.fileno(), 3)
        environment = {**environment, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(output, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT, 0o644) if errors else 1, 2)
    os.environ.clear()
    os.environ.update(environment)
    os.umask(0o022)
    sys.argv = ["pinner", *arguments]
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
