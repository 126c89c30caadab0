"""A running `pinner serve`: its process, log and URL, and a client of it."""

import re
import subprocess
import time
from pathlib import Path

from support.server import warm
from support.server.unix_http import http_client


class PinnerServer:
    """A running server, its URL (of the Unix socket), and a client; ``tcp`` is the URL over TCP, empty without it."""

    def __init__(self, process: subprocess.Popen[str] | warm.Program, log: Path) -> None:
        self.process = process
        self.log = log
        deadline = time.monotonic() + 120
        while not (found := re.search(r"at (unix:\S+)(?: and (http://\S+:\d+))?", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        self.url, self.tcp = found[1], found[2] or ""
        self.http = http_client(self.url, timeout=60)

    def children(self) -> list[int]:
        """The process ids of the server's children: the API, where the server runs as root."""
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]
