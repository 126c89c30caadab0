"""Everything off in one command: a real server that enforces a policy, real guests, a daemon and its children."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import private_libvirt
import pytest
from support.guests.real_guests import ONLINE, only
from support.server import warm
from support.server.policy_host import NEVER_BUSY, all_on, fresh_policy_server, running, wait_until
from support.system.kernel import masks

pytestmark = [
    pytest.mark.needs("root", "exactly_two_cpus"),
    pytest.mark.fault(59),
]
CONFIG = "[policy]\nresync_seconds = 1\n[host]\nsample_seconds = 0.1\n"


@pytest.fixture
def server(libvirtd):
    with fresh_policy_server(libvirtd, CONFIG) as server:
        yield server


def cli(server, *command):
    return warm.run(*command, "--url", server.url)


def test_everything_is_off_after_one_command(server, libvirtd, start_guest, tmp_path):
    guest = start_guest(persistent=True, vcpus=2)
    before = masks(guest.pid)
    with running(tmp_path, "pinned") as daemon:
        free = masks(daemon.pid)
        server.policy("enforce", [guest.name], [daemon.name])
        server.wait_reconciled(lambda: all_on(daemon.pid, server.roles()["housekeeping"]))
        placed = masks(guest.pid)
        for _ in range(3):
            private_libvirt.virsh(libvirtd, "vcpupin", guest.name, "1", f"{ONLINE[0]},{ONLINE[1]}", "--live")
            assert wait_until(lambda: only(masks(guest.pid), placed) == only(placed, masks(guest.pid)), 60) < 60
        refused = cli(server, "rollback", "--all", "--yes")
        assert (refused.returncode, "first delete the policy" in refused.stderr) == (1, True)
        wait_until(lambda: not any(run["state"] == "running" for run in server.runs()), 60)
        done = cli(server, "rollback", "--all", "--delete-policy", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        run = json.loads(done.stdout)["run"]
        assert (run["state"], run["undoes"]) == ("rolled_back", "")
        time.sleep(1.5)  # longer than a resync: nothing places them again
        now = masks(guest.pid)
        assert only(now, before) == only(before, now)
        assert masks(daemon.pid) == free
        assert {run["state"] for run in server.runs()} == {"rolled_back"}
        report = server.drift()
        assert (report["placement"], report["mode"], report["drifts"]) == ("", None, [])
        assert server.http.get("/audit/verify").json()["ok"] is True


def applied(server, guest, **options):
    """The run of a plan for one guest."""
    request = {"strategy": "shared-pool", "busy_threshold": NEVER_BUSY, "guests": [guest]}
    plan = server.http.post(f"/hosts/{server.host}/plans", json=request)
    assert plan.status_code == 201, plan.text
    answer = server.http.post(f"/plans/{plan.json()['id']}/apply", json=options)
    assert answer.status_code == 202, answer.text
    run = answer.json()["id"]
    wait_until(lambda: state(server, run) != "running", 60)
    assert state(server, run) == "applied"
    return run


def state(server, run):
    return server.http.get(f"/runs/{run}").json()["run"]["state"]


def test_three_commands_at_once_undo_everything_once(server, start_guest):
    guests = [start_guest(vcpus=2) for _ in range(3)]
    before = [masks(guest.pid) for guest in guests]
    for guest in guests:
        applied(server, guest.name)
    with ThreadPoolExecutor(3) as at_once:
        ended = list(at_once.map(lambda _: cli(server, "rollback", "--all", "--yes", "--json"), range(3)))
    answers = [(each.stdout, each.stderr, each.returncode) for each in ended]
    for out, err, status in answers:
        refused = json.loads(err)["error"]["code"] in ("host_busy", "run_conflict") if status else False
        assert refused or json.loads(out)["run"]["state"] == "rolled_back", (out, err)
    assert any(not status for *_, status in answers), answers
    for guest, masks_before in zip(guests, before, strict=True):
        now = masks(guest.pid)
        assert only(now, masks_before) == only(masks_before, now)
    undone = [run for run in server.runs() if run["kind"] == "rollback" and run["state"] == "rolled_back"]
    entries = [server.changes(run["id"]) for run in undone]
    assert [bool(each) for each in entries].count(True) == 1, undone
    assert cli(server, "rollback", "--all", "--yes").returncode == 0


def test_a_guest_that_was_renamed_since_gets_its_definition_back(server, libvirtd, start_guest):
    guest = start_guest(persistent=True, vcpus=2)
    written = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
    assert "cpuset=" not in written
    applied(server, guest.name, persist=True)
    assert "cpuset=" in private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", guest.name)
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    private_libvirt.virsh(libvirtd, "domrename", guest.name, f"{guest.name}-renamed")
    try:
        done = cli(server, "rollback", "--all", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["run"]["state"] == "rolled_back"
        now = private_libvirt.virsh(libvirtd, "dumpxml", "--inactive", f"{guest.name}-renamed")
        # libvirt lists the ids of iothreads only after their first pin.
        now = now.replace("  <iothreadids>\n    <iothread id='1'/>\n  </iothreadids>\n", "")
        assert now == written.replace(f"<name>{guest.name}<", f"<name>{guest.name}-renamed<")
    finally:
        private_libvirt.virsh(libvirtd, "domrename", f"{guest.name}-renamed", guest.name)
