"""One guest hangs, or one process sets its own affinity again and again: the others are placed and stay."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial

import pytest
from support.guests.real_guests import (
    ONLINE,
    apply,
    change,
    daemon,
    describes_hung_guests,
    hung,
    only,
    plan_of,
    rollback,
    settle,
    whole,
)
from support.server import warm
from support.server.policy_host import (
    NEVER_BUSY,
    Daemon,
    PolicyServer,
    all_on,
    fresh_policy_server,
    guest_on,
    running,
    wait_until,
)
from support.system.kernel import masks, process

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.guest.guest import Guest

pytestmark = pytest.mark.needs("root", "exactly_two_cpus")
BUSY = pytest.mark.machine("keeps its CPUs busy")

TIMEOUT = 2.0
CONFIG = (
    f"[libvirt]\ncall_timeout = {TIMEOUT}\n[policy]\nresync_seconds = 1\nmeasure_seconds = 600\n"
    "[host]\nsample_seconds = 0.1\n"
)
RESETS = """
import os, time
print("ready", flush=True)
while True:
    os.sched_setaffinity(0, {cpus})
    {pause}
"""
FLIPS = """
import itertools, os, time
print("ready", flush=True)
for cpu in itertools.cycle({cpus}):
    os.sched_setaffinity(0, [cpu])
    time.sleep(0.02)
"""
FLIPPING = 10
"""Processes that set their own masks at the same time."""


@pytest.fixture(scope="module")
def started(libvirtd):
    with fresh_policy_server(libvirtd, CONFIG) as server:
        yield server


@pytest.fixture
def server(started):
    """The server; after a test that failed, too, it has no policy that refuses the plans of the next one."""
    yield started
    started.policy("observe", [])


@pytest.fixture
def placed_daemon(tmp_path):
    with running(tmp_path, "healthy") as daemon:
        yield daemon


def policy_runs(server: PolicyServer) -> list[dict[str, object]]:
    return [run for run in server.runs() if run["actor"] == "policy" and run["kind"] == "apply"]


def are_placed(server: PolicyServer, guest: Guest, daemon: Daemon) -> bool:
    """Whether the guest and the daemon are on the CPUs of the recorded placement."""
    roles = server.roles()
    return (
        bool(roles)
        and guest_on(guest.pid, roles["emulator"], roles["vcpu"])
        and all_on(daemon.pid, roles["housekeeping"])
    )


def undo_run(server: PolicyServer, run: str) -> None:
    undo = server.http.post(f"/runs/{run}/rollback", json={})
    assert undo.status_code == 202, undo.text
    path = f"/runs/{undo.json()['id']}"
    wait_until(lambda: server.http.get(path).json()["run"]["state"] != "running", 10)


@pytest.mark.fault(47)
@pytest.mark.slow("the real back-off of a policy")
def test_a_hung_guest_delays_no_other_guest_under_enforce(server, libvirtd, start_guest, placed_daemon):
    """The healthy guests are placed in the first reconcile and stay; the hung one backs off, and is placed later."""
    healthy, stuck = (start_guest(), start_guest()), start_guest()
    before = masks(stuck.pid)
    names = [guest.name for guest in (*healthy, stuck)]

    def on(*guests):
        roles = server.roles()
        return roles and all(guest_on(each.pid, roles["emulator"], roles["vcpu"]) for each in guests)

    with hung(libvirtd, stuck) as query:
        time.sleep(1)
        began, first = time.monotonic(), len(policy_runs(server))
        server.policy("enforce", names, [placed_daemon.name])
        assert wait_until(lambda: on(*healthy), 20) < 20
        moved_back = []
        while time.monotonic() - began < 25:
            if not on(*healthy):
                moved_back.append(time.monotonic() - began)
            time.sleep(0.1)
        assert query.poll() is None, "the guest answered before the end of the test"
        assert not moved_back
        assert all_on(placed_daemon.pid, server.roles()["housekeeping"])
        runs = list(reversed(policy_runs(server)))[first:]
        report = server.drift()
        now = masks(stuck.pid)
    assert runs[0]["state"] == "applied_partly"
    assert f"guest {stuck.name} metadata: its QEMU has not answered libvirt for " in runs[0]["error"]
    assert 2 <= len(runs) <= 4, "after 5, 10 and 20 s"
    assert {run["state"] for run in runs[1:]} == {"undone"}
    assert now == only(before, now)
    assert {(drift["target"]["name"], drift["cause"]) for drift in report["drifts"]} == {(stuck.name, "failed")}
    told = [record for record in server.audit() if record["action"] == "drift.backoff"]
    assert len([record for record in told if record["subject"] == f"guest {stuck.name}"]) == len(runs)
    assert wait_until(lambda: on(*healthy, stuck), 45) < 45, server.drift()
    server.policy("observe", [])
    for run in policy_runs(server):
        if run["state"] in ("applied", "applied_partly"):
            undo_run(server, run["id"])
    now = masks(stuck.pid)
    assert now == only(before, now)


@pytest.mark.fault(47)
def test_pinner_apply_places_the_guests_that_answer(server, libvirtd, start_guest, placed_daemon, tmp_path):
    healthy, stuck = (start_guest(), start_guest()), start_guest()
    is_described = describes_hung_guests(libvirtd)
    others = {each.pid: masks(each.pid) for each in (*healthy, stuck)}
    options = [f"--guest={guest.name}" for guest in (*healthy, stuck)]

    def pinner(*arguments):
        return warm.run("--url", server.url, *arguments)

    with hung(libvirtd, stuck):
        time.sleep(1)
        if is_described:
            whole_run = pinner("apply", "--yes", "--all-or-nothing", "--busy-threshold", str(NEVER_BUSY), *options)
            assert whole_run.returncode == 1, whole_run
            assert "undone" in whole_run.stdout
            assert {pid: masks(pid) for pid in others} == others
        partly = pinner("apply", "--yes", "--busy-threshold", str(NEVER_BUSY), *options)
        told = " ".join(partly.stdout.split())
        if is_described:
            assert partly.returncode == 1, partly
            assert "applied_partly" in told
            assert f"guest {stuck.name} metadata: its QEMU has not answered" in told
        else:  # the plan leaves it out
            assert partly.returncode == 0, partly
            assert f"{stuck.name} it cannot be read: libvirt does not answer about it" in told
        assert "to undo: pinner rollback run-" in partly.stderr
        for guest in healthy:
            assert masks(guest.pid) != others[guest.pid]
        now = masks(stuck.pid)
        assert now == only(others[stuck.pid], now)
    run = partly.stderr.rpartition("pinner rollback ")[2].strip()
    assert pinner("rollback", run, "--yes").returncode == 0
    for pid, before in others.items():
        now = masks(pid)
        assert now == only(before, now)


@pytest.mark.fault(47)
def test_a_guest_that_hangs_in_the_middle_of_a_run_is_undone_last(libvirtd, journal, start_guest):
    """A call is under way when the guest begins to hang: it takes the timeout, and so does its undo."""
    host = LiveHost(Libvirt(libvirtd, 1.0, occupied_seconds=60))
    guests = [start_guest() for _ in range(3)]
    before = {each.pid: masks(each.pid) for each in guests}
    stuck = guests[1]
    plan = plan_of(host, [part for each in guests for part in whole(host, each)])
    with hung(libvirtd, stuck):
        run = apply(plan, host, journal)
        for guest in (guests[0], guests[2]):
            now = masks(guest.pid)
            planned = {thread.tid: str(each.after) for each in plan.changes for thread in each.before}
            assert only(now, planned) == only(planned, now)
    assert run.state == "applied_partly"
    assert run.error.startswith(f"1 of 3 guests and processes are not placed: guest {stuck.name} metadata: no answer")
    settle(host)
    assert rollback(host, journal).state == "rolled_back"
    for pid, masks_before in before.items():
        now = masks(pid)
        assert now == only(masks_before, now)


@pytest.mark.fault(48)
def test_a_process_that_resets_its_affinity_fails_alone(host, journal, start_guest):
    guest = start_guest()
    with process(RESETS.format(cpus=ONLINE, pause="")) as pid:
        before = masks(pid)
        plan = plan_of(host, [change(host, daemon(pid), whole(host, guest)[0].after), *whole(host, guest)])
        run = apply(plan, host, journal)
        assert masks(pid) == before
    # A process that resets its affinity all the time may have the right mask at the moment of the check.
    assert run.state in ("applied", "applied_partly")
    if run.state == "applied_partly":
        assert "again each time that pinner moves it" in run.error
        assert "the process or another program sets its affinity" in run.error
    planned = {thread.tid: str(each.after) for each in plan.changes[1:] for thread in each.before}
    now = masks(guest.pid)
    assert only(now, planned) == only(planned, now)


@pytest.mark.fault(48)
@pytest.mark.slow("the real back-off of a policy")
@BUSY
def test_a_process_that_resets_its_affinity_backs_off_alone_under_enforce(server, start_guest, placed_daemon, tmp_path):
    guest = start_guest()
    program = tmp_path / f"reset-{os.getpid()}"[:15]
    program.write_text(f"#!{sys.executable}\n" + RESETS.format(cpus=ONLINE, pause="time.sleep(0.01)"))
    program.chmod(0o755)
    with subprocess.Popen([str(program)], stdout=subprocess.PIPE) as resets:
        try:
            assert resets.stdout.readline()
            first = len(policy_runs(server))
            server.policy("enforce", [guest.name], [placed_daemon.name, program.name])

            others_placed = partial(are_placed, server, guest, placed_daemon)
            assert wait_until(others_placed, 20) < 20
            began = time.monotonic()
            while time.monotonic() - began < 20:
                assert others_placed()
                time.sleep(0.2)
            runs = policy_runs(server)[: len(policy_runs(server)) - first]
            # Between the end of a backoff and the next attempt there is none for a moment.
            backs_off = lambda: [each for each in server.drift()["drifts"] if each["backoff_until"]]  # noqa: E731
            drifts = []
            assert wait_until(lambda: drifts.extend(backs_off()) or drifts, 20) < 20
            (drift,) = drifts
        finally:
            resets.kill()
            server.policy("observe", [])
    assert len(runs) <= 7
    assert drift["target"]["owner"] == str(resets.pid)
    assert "process" in drift["detail"]


@pytest.mark.fault(48)
@pytest.mark.slow("the real back-off of a policy")
@BUSY
def test_many_processes_that_flip_their_masks_keep_no_other_from_its_place(
    server, start_guest, placed_daemon, tmp_path
):
    """Each plan is stale, because another process flips each time."""
    guest = start_guest()
    programs = [tmp_path / f"flip{number}-{os.getpid()}"[:15] for number in range(FLIPPING)]
    with ExitStack() as running:
        for program in programs:
            program.write_text(f"#!{sys.executable}\n" + FLIPS.format(cpus=ONLINE))
            program.chmod(0o755)
            flips = running.enter_context(subprocess.Popen([str(program)], stdout=subprocess.PIPE))
            running.callback(flips.kill)
            assert flips.stdout.readline()
        log = len(server.log.read_text())
        server.policy("enforce", [guest.name], [placed_daemon.name, *(program.name for program in programs)])
        others_placed = partial(are_placed, server, guest, placed_daemon)
        try:
            assert wait_until(others_placed, 30) < 30, server.log.read_text()[log:]
            time.sleep(10)
            assert others_placed()
        finally:
            server.policy("observe", [])
    assert "reconcile failed" not in server.log.read_text()[log:]
