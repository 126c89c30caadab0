"""Everything off in one command: a real server that enforces a policy, real guests, a daemon and its children."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import private_libvirt
import pytest
from support.kernel import masks
from support.policy_host import all_on, fresh_policy_server, running, wait_until
from support.real_guests import ONLINE, only

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(len(ONLINE) != 2, reason="needs two CPUs: one for housekeeping, the other for guests"),
    pytest.mark.fault(59),
]
CONFIG = "[policy]\nresync_seconds = 1\n[host]\nsample_seconds = 0.1\n"


@pytest.fixture
def server(libvirtd):
    with fresh_policy_server(libvirtd, CONFIG) as server:
        yield server


def cli(server, *command):
    pinner = Path(sys.executable).with_name("pinner")
    return subprocess.run([pinner, *command, "--url", server.url], capture_output=True, text=True, timeout=60)


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
            assert wait_until(lambda: only(masks(guest.pid), placed) == only(placed, masks(guest.pid)), 20) < 20
        refused = cli(server, "rollback", "--all", "--yes")
        assert (refused.returncode, "first delete the policy" in refused.stderr) == (1, True)
        wait_until(lambda: not any(run["state"] == "running" for run in server.runs()), 10)
        done = cli(server, "rollback", "--all", "--delete-policy", "--yes", "--json")
        assert done.returncode == 0, done.stderr
        run = json.loads(done.stdout)["run"]
        assert (run["state"], run["undoes"]) == ("rolled_back", "")
        time.sleep(2.5)  # longer than a resync: nothing places them again
        now = masks(guest.pid)
        assert only(now, before) == only(before, now)
        assert masks(daemon.pid) == free
        assert {run["state"] for run in server.runs()} == {"rolled_back"}
        report = server.drift()
        assert (report["placement"], report["mode"], report["drifts"]) == ("", None, [])
        assert server.http.get("/audit/verify").json()["ok"] is True
