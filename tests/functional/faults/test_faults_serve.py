"""`pinner serve` is killed during an apply, and a second apply begins during an apply.

A guest that does not answer delays the apply, which gives the test time for both.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.guests.real_guests import describes_hung_guests, hung, only
from support.server import warm
from support.server.policy_host import wait_until
from support.server.restartable_server import RestartableServer, restartable_server
from support.system.kernel import masks

from pinner.model.guest.guest import Guest

pytestmark = pytest.mark.needs("root", "two_cpus")


PATIENT = f"from pinner.host.virt.libvirt import Libvirt; Libvirt.__init__.__defaults__ = (10.0, 60.0); {warm.PINNER}"
"""A server that waits for a guest which has hung for more than a second already: this machine is busy."""


@pytest.fixture
def server(libvirtd: str) -> Iterator[RestartableServer]:
    with restartable_server(libvirtd, PATIENT) as running:
        yield running


@contextmanager
def running_apply(
    server: RestartableServer, libvirtd: str, guests: tuple[Guest, Guest]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """An apply that waits for the second guest: the id of its run, and a function that lets the guest run again."""
    if not describes_hung_guests(libvirtd):
        pytest.skip("this libvirt does not describe a guest whose QEMU hangs, so such a guest delays no apply")
    plan, before = server.plan(*guests), masks(guests[0].pid)
    with hung(libvirtd, guests[1]):
        answer = server.post(f"/plans/{plan}/apply")
        assert answer.status_code == 202, answer.text
        run = answer.json()["id"]
        assert wait_until(lambda: masks(guests[0].pid) != before, 60) < 60
        assert server.get(f"/runs/{run}")["run"]["state"] == "running"
        yield run, lambda: os.kill(guests[1].pid, signal.SIGCONT)


@pytest.fixture
def guests(start_guest: Callable[..., Guest]) -> tuple[Guest, Guest]:
    first, second = sorted((start_guest(vcpus=1), start_guest(vcpus=1)), key=lambda guest: guest.uuid)
    return first, second


def all_masks(guests: tuple[Guest, Guest]) -> dict[int, str]:
    return masks(guests[0].pid) | masks(guests[1].pid)


@pytest.mark.fault(32)
def test_the_next_start_undoes_the_apply_after_agent_and_api_were_killed(server, libvirtd, guests):
    """The next start undoes the changes and records that in the audit trail."""
    before = all_masks(guests)
    with running_apply(server, libvirtd, guests) as (run, resume_guest):
        for pid in (server.current.process.pid, *server.current.children()):
            os.kill(pid, signal.SIGKILL)
        server.current.process.wait()
        assert all_masks(guests) != before, "the apply had changed nothing before the kill"
        resume_guest()
        server.restart()
        ended = server.wait_ended(run)
    assert ended["state"] == "undone"
    assert ended["recovered"].startswith("interrupted; rolled back: ")
    now = all_masks(guests)
    assert now == only(before, now)
    records = [(record["action"], record["subject"], record["actor"]) for record in server.get("/audit")["items"]]
    assert ("run.recover", run, "pinner") in records
    assert server.get("/audit/verify")["ok"] is True


@pytest.mark.fault(32)
def test_the_agent_completes_the_apply_after_the_api_was_killed(server, libvirtd, guests):
    """The agent completes the plan and then ends; a new API reports the result."""
    before = all_masks(guests)
    with running_apply(server, libvirtd, guests) as (run, resume_guest):
        (api,) = server.current.children()
        os.kill(api, signal.SIGKILL)
        time.sleep(0.5)
        assert server.current.process.poll() is None
        resume_guest()
        assert server.current.process.wait(60) != 0
        server.restart()
        ended = server.wait_ended(run)
    assert (ended["state"], ended["error"], ended["recovered"]) == ("applied", "", "")
    planned = all_masks(guests)
    assert planned != only(before, planned)
    undo = server.post(f"/runs/{run}/rollback").json()["id"]
    assert server.wait_ended(undo)["state"] == "rolled_back"
    now = all_masks(guests)
    assert now == only(before, now)


@pytest.mark.fault(27)
def test_the_second_of_two_concurrent_applies_is_refused_with_the_first_run(server, libvirtd, guests):
    with running_apply(server, libvirtd, guests) as (run, resume_guest):
        second = server.post(f"/plans/{server.plan(guests[0])}/apply")
        assert second.status_code == 409, second.text
        assert second.json()["error"]["code"] == "host_busy"
        assert second.json()["error"]["details"] == {"host": "here", "run": run}
        resume_guest()
        assert server.wait_ended(run)["state"] == "applied"
