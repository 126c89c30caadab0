"""A running `pinner serve`: its process, log and URL."""

import re
import subprocess
import time
from pathlib import Path


class PinnerServer:
    """A running server and its URL."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        deadline = time.monotonic() + 30
        while not (found := re.search(r"http://\S+:\d+", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        self.url = found[0]

    def children(self) -> list[int]:
        """The process ids of the server's children: the API, where the server runs as root."""
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]
