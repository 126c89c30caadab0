"""Commands run inside a lab host by the QEMU guest agent: JSON lines over a virtio serial port.

Source: https://www.qemu.org/docs/master/interop/qemu-ga-ref.html
"""

import base64
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command; the status is 128 plus the signal's number where a signal ended the command."""

    status: int
    output: bytes
    errors: bytes

    @property
    def out(self) -> str:
        """The standard output as text."""
        return self.output.decode()

    @property
    def err(self) -> str:
        """The standard error as text."""
        return self.errors.decode()


class GuestAgent:
    """A connection to one host's agent; only one thread may use it at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = count(1)
        self._socket: socket.socket | None = None
        self._buffer = b""

    def wait(self, alive: Callable[[], bool], deadline: float) -> None:
        """Wait until the agent answers. Raises TimeoutError at ``deadline`` (of time.monotonic), or if ``alive`` is
        false."""
        while alive() and time.monotonic() < deadline:
            number = next(self._numbers)
            with suppress(OSError, json.JSONDecodeError):
                self._connect()
                self._send("guest-sync-delimited", {"id": number})
                until = min(time.monotonic() + 2, deadline)
                while (answer := self._receive(until)) != {"return": number}:
                    del answer
                return
            time.sleep(_POLL_SECONDS)
        raise TimeoutError("the guest agent does not answer")

    def run(self, command: list[str], stdin: bytes, deadline: float) -> Result:
        """Run a command to its end. Raises TimeoutError, FileNotFoundError."""
        job: dict[str, Any] = {"path": command[0], "arg": command[1:], "capture-output": True}
        if stdin:
            job["input-data"] = base64.b64encode(stdin).decode()
        pid = self._call("guest-exec", job, deadline)["pid"]
        pause = _POLL_SECONDS
        while not (state := self._call("guest-exec-status", {"pid": pid}, deadline))["exited"]:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.3)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{' '.join(command)} does not end")
        status = state.get("exitcode", 128 + state.get("signal", 0))
        return Result(status, *(base64.b64decode(state.get(name, "")) for name in ("out-data", "err-data")))

    def close(self) -> None:
        """Close the connection."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        self.close()
        self._buffer = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(self._path))

    def _call(self, name: str, arguments: dict[str, Any], deadline: float) -> dict[str, Any]:
        self._send(name, arguments)
        answer = self._receive(deadline)
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error'].get('desc')}")
        result: dict[str, Any] = answer["return"]
        return result

    def _send(self, name: str, arguments: dict[str, Any]) -> None:
        assert self._socket
        self._socket.sendall(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")

    def _receive(self, deadline: float) -> dict[str, Any]:
        assert self._socket
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the machine has ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        # A delimited answer begins with a byte that is not valid in JSON.
        answer: dict[str, Any] = json.loads(line.lstrip(b"\xff"))
        return answer
