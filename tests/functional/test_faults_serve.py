"""`pinner serve` is killed while an apply is under way, and two applies meet.

A guest that does not answer holds the apply up, so that there is time for it.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.kernel import masks
from support.pinner_server import PinnerServer
from support.real_guests import hung, only

from pinner.model.guest import Guest

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root is parted into agent and API"),
]
COMMAND = [sys.executable, "-c", "import sys; from pinner.cli.main import main; sys.exit(main())"]


@dataclass
class Interface:
    """The server that runs now; ``started`` begins another one over the same files."""

    start: Callable[[], PinnerServer]
    served: PinnerServer

    def restart(self) -> None:
        self.served = self.start()

    def get(self, path: str, **query: object) -> Any:
        answer = httpx.get(f"{self.served.url}/v1{path}", params=query, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(f"{self.served.url}/v1{path}", json=body, timeout=20)

    def ended(self, run: str) -> dict[str, Any]:
        deadline = time.monotonic() + 20
        while (found := self.get(f"/runs/{run}")["run"])["state"] == "running":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        return found

    def plan(self, *guests: Guest) -> str:
        """No host process is moved: those of this machine are not the test's to touch."""
        asked = {"guests": [guest.name for guest in guests], "busy_threshold": 100000.0, "sample_seconds": 0}
        made = self.post("/hosts/here/plans", strategy="shared-pool", **asked)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


@pytest.fixture
def interface(libvirtd: str) -> Iterator[Interface]:
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        config = folder / "pinner.conf"
        config.write_text(
            f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {libvirtd}\ncall_timeout = 8\n[host]\nname = here\n"
        )

        def start() -> PinnerServer:
            log = folder / f"log-{len(running)}"
            with log.open("w") as out:
                command = [*COMMAND, "serve", "--config-file", str(config), "--port", "0"]
                running.append(subprocess.Popen(command, stdout=out, stderr=out, text=True))
            return PinnerServer(running[-1], log)

        yield Interface(start, start())
        for process in running:
            process.terminate()
            process.wait(20)


@contextmanager
def under_way(
    interface: Interface, libvirtd: str, guests: tuple[Guest, Guest]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """An apply that waits for the second guest; the run, and what lets it go on."""
    plan = interface.plan(*guests)
    with hung(libvirtd, guests[1]):
        asked = interface.post(f"/plans/{plan}/apply")
        assert asked.status_code == 202, asked.text
        run = asked.json()["id"]
        time.sleep(1)
        assert interface.get(f"/runs/{run}")["run"]["state"] == "running"
        yield run, lambda: os.kill(guests[1].pid, signal.SIGCONT)


@pytest.fixture
def guests(start_guest: Callable[..., Guest]) -> tuple[Guest, Guest]:
    made = sorted((start_guest(vcpus=1), start_guest(vcpus=1)), key=lambda guest: guest.uuid)
    return made[0], made[1]


def all_masks(guests: tuple[Guest, Guest]) -> dict[int, str]:
    return masks(guests[0].pid) | masks(guests[1].pid)


@pytest.mark.fault(32)
def test_both_halves_are_killed(interface, libvirtd, guests):
    """The next start takes back what was made, and the audit trail tells it."""
    before = all_masks(guests)
    with under_way(interface, libvirtd, guests) as (run, go_on):
        for pid in (interface.served.process.pid, *interface.served.children()):
            os.kill(pid, signal.SIGKILL)
        interface.served.process.wait()
        assert all_masks(guests) != before, "something had been made"
        go_on()
        interface.restart()
        ended = interface.ended(run)
    assert ended["state"] == "undone"
    assert ended["recovered"].startswith("interrupted; rolled back: ")
    now = all_masks(guests)
    assert now == only(before, now)
    told = [(record["action"], record["subject"], record["actor"]) for record in interface.get("/audit")["items"]]
    assert ("run.recover", run, "pinner") in told
    assert interface.get("/audit/verify")["ok"] is True


@pytest.mark.fault(32)
def test_the_api_is_killed_and_its_agent_works_on(interface, libvirtd, guests):
    """It makes the plan so, and goes then. A new API tells the end."""
    before = all_masks(guests)
    with under_way(interface, libvirtd, guests) as (run, go_on):
        (api,) = interface.served.children()
        os.kill(api, signal.SIGKILL)
        time.sleep(0.5)
        assert interface.served.process.poll() is None
        go_on()
        assert interface.served.process.wait(20) != 0
        interface.restart()
        ended = interface.ended(run)
    assert (ended["state"], ended["error"], ended["recovered"]) == ("applied", "", "")
    planned = all_masks(guests)
    assert planned != only(before, planned)
    back = interface.post(f"/runs/{run}/rollback").json()["id"]
    assert interface.ended(back)["state"] == "rolled_back"
    now = all_masks(guests)
    assert now == only(before, now)


@pytest.mark.fault(27)
def test_of_two_applies_at_once_the_second_is_told_who_holds_the_host(interface, libvirtd, guests):
    with under_way(interface, libvirtd, guests) as (run, go_on):
        second = interface.post(f"/plans/{interface.plan(guests[0])}/apply")
        assert second.status_code == 409, second.text
        assert second.json()["error"]["code"] == "host_busy"
        assert second.json()["error"]["details"] == {"host": "here", "run": run}
        go_on()
        assert interface.ended(run)["state"] == "applied"
