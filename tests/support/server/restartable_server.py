"""A real `pinner serve` that is killed and started again with the same files."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from support.server import warm
from support.server.accounts import api_config
from support.server.pinner_server import PinnerServer

from pinner.model.guest.guest import Guest


@dataclass
class RestartableServer:
    """A server that can be started again with the same files; ``current`` is the running one."""

    start: Callable[[], PinnerServer]
    current: PinnerServer

    def restart(self) -> None:
        self.current = self.start()

    def get(self, path: str, **query: object) -> Any:
        answer = self.current.http.get(f"/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.current.http.post(f"/v1{path}", json=body)

    def wait_ended(self, run: str) -> dict[str, Any]:
        """The run, once it has ended."""
        deadline = time.monotonic() + 60
        while (found := self.get(f"/runs/{run}")["run"])["state"] == "running":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def plan(self, *guests: Guest) -> str:
        """The id of a new plan for these guests only: the test moves no other process of this machine."""
        request = {"guests": [guest.name for guest in guests], "sample_seconds": 0}
        answer = self.post("/hosts/here/plans", strategy="shared-pool", **request)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


@contextmanager
def restartable_server(libvirtd: str, program: str = warm.PINNER, more: str = "") -> Iterator[RestartableServer]:
    """A running server of the host here, with ``more`` configuration."""
    running: list[warm.Program] = []
    clients = ExitStack()
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        config = folder / "pinner.conf"
        config.write_text(
            f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {libvirtd}\ncall_timeout = 60\n"
            f"[host]\nname = here\n{api_config()}{more}"
        )

        def start() -> PinnerServer:
            log = folder / f"log-{len(running)}"
            running.append(warm.start("serve", "--config-file", config, output=log, code=program))
            server = PinnerServer(running[-1], log)
            clients.callback(server.http.close)
            return server

        try:
            with clients:
                yield RestartableServer(start, start())
        finally:
            for process in running:
                process.terminate()
                process.wait(60)
