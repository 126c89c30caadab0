"""A private RabbitMQ with a port, a folder and an Erlang port mapper of its own; it ends with its caller."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_SERVERS = Path("/usr/lib/rabbitmq/lib")
_START_SECONDS = 300
_STOP_SECONDS = 15


class Unusable(RuntimeError):
    """The broker cannot run here; the text says why."""


def missing() -> str:
    """The reason why no broker can run here; empty if it can."""
    return "" if _script() and shutil.which("epmd") else "not installed: rabbitmq-server"


class Rabbit:
    """A broker that can be killed and started again; durable queues and messages remain."""

    def __init__(self, folder: Path) -> None:
        """``folder`` must not be used by any other process."""
        self.folder = folder
        self.port, self._mapper_port, self._dist_port = _free_ports(3)
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The transport URL in the form of oslo.messaging."""
        return f"rabbit://guest:guest@127.0.0.1:{self.port}/"

    @property
    def running(self) -> bool:
        """Whether the broker was started and has not been ended since."""
        return bool(self._running)

    def start(self) -> None:
        """Start the broker and wait until it accepts connections. Raises Unusable."""
        environment = self._environment()
        with (self.folder / "output").open("ab") as output:
            for command in (["epmd", "-address", "127.0.0.1"], [str(_script())]):
                self._running.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        cwd=self.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                    )
                )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._running[-1].poll() is not None or time.monotonic() > deadline:
                raise Unusable(f"rabbitmq-server did not start: {(self.folder / 'output').read_text()[-400:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End the broker at once (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the broker in an orderly way (SIGTERM)."""
        self._end(signal.SIGTERM)

    def control(self, *command: str) -> None:
        """Run a command of rabbitmqctl. Raises Unusable."""
        environment = self._environment()
        program = [
            str((_script() or Path()).with_name("rabbitmqctl")),
            "-n",
            environment["RABBITMQ_NODENAME"],
            *command,
        ]
        done = subprocess.run(
            program,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            check=False,
        )
        if done.returncode:
            raise Unusable(f"rabbitmqctl {command[0]}: {done.stderr[-400:]}")

    def _end(self, kind: signal.Signals) -> None:
        for process in reversed(self._running):
            process.send_signal(kind)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as peer:
            # The header of AMQP 0-9-1; the answer is the broker's first frame.
            peer.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(peer.recv(1))
        return False

    def _environment(self) -> dict[str, str]:
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"pinner-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            # With this setting the script executes the broker in its own process instead of starting another one.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +S 1:1 +sbwt none",
        }


@contextlib.contextmanager
def private_rabbit(folder: Path, powerless: str = "") -> Iterator[Rabbit]:
    """A broker that runs for the duration of the context. Raises Unusable.

    ``powerless``: the name and password of a user who may log in and has no other permission.
    """
    folder.mkdir(parents=True)
    if powerless:
        _define_users(folder, powerless)
    rabbit = Rabbit(folder)
    try:
        rabbit.start()
        yield rabbit
    finally:
        rabbit.stop()


def _define_users(folder: Path, powerless: str) -> None:
    """Let the broker create the users at its start. rabbitmqctl would start an Erlang machine of its own for each."""
    rights = {"guest": ".*", powerless: "^$"}
    definitions = {
        "vhosts": [{"name": "/"}],
        "users": [{"name": name, "password": name, "tags": ""} for name in rights],
        "permissions": [
            {"user": name, "vhost": "/", "configure": names, "write": names, "read": names}
            for name, names in rights.items()
        ],
    }
    (folder / "definitions.json").write_text(json.dumps(definitions))
    (folder / "rabbitmq.conf").write_text(f"load_definitions = {folder}/definitions.json\n")


def _script() -> Path | None:
    """The server's script itself, because Debian's wrapper changes to another user."""
    return next(_SERVERS.glob("rabbitmq_server-*/sbin/rabbitmq-server"), None)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
