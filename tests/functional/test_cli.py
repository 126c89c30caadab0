"""The command as a user types it: a guest pinned and unpinned, and the kernel's word on every thread of it."""

import json
import os
import subprocess
import sys
import time

import pytest
from support.kernel import masks, process

from pinner.model.cpuset import CpuSet

PINNER = [sys.executable, "-W", "error", "-c", "import sys; from pinner.cli.main import main; sys.exit(main())"]

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two CPUs are needed to move between")


@pytest.fixture
def cli(libvirtd, tmp_path):
    """Runs the command: cli("plan", "--json") -> its parsed answer; the status must be ``status``."""
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n[host]\nname = here\n")

    def run(*words, status=0):
        done = subprocess.run(
            [*PINNER, "--json", "--config-file", config, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout) if status == 0 else done.stderr

    run.config = ("--config-file", str(config))
    return run


def test_pinned_as_planned_and_back_as_it_was(cli, start_guest):
    guest = start_guest()
    before = masks(guest.pid)
    # No host process is moved: those of this machine are not the test's to touch.
    plan = cli("plan", "--guest", guest.name, "--busy-threshold", "100000", "--sample-seconds", "0")
    assert plan["changes"]

    applied = cli("apply", plan["id"])
    assert applied["run"]["state"] == "applied"
    assert {entry["state"] for entry in applied["entries"]} == {"done"}
    planned = {mask["tid"]: change["after"] for change in plan["changes"] for mask in change["before"]}
    assert {tid: cpus for tid, cpus in masks(guest.pid).items() if tid in planned} == planned
    assert not cli("plan", "--guest", guest.name, "--busy-threshold", "100000", "--sample-seconds", "0")["changes"]

    taken_back = cli("rollback", applied["run"]["id"])
    assert taken_back["run"]["state"] == "rolled_back"
    assert {tid: cpus for tid, cpus in masks(guest.pid).items() if tid in before} == before
    assert cli("audit", "verify")["ok"]
    assert {"run.apply", "run.rollback"} <= {record["action"] for record in cli("audit", "list")["items"]}
    assert "rolled_back" in cli("rollback", applied["run"]["id"], status=1)


def test_a_plan_whose_guest_has_moved_is_refused(cli, start_guest):
    guest = start_guest()
    plan = cli("plan", "--guest", guest.name, "--busy-threshold", "100000", "--sample-seconds", "0")
    change = plan["changes"][0]
    os.sched_setaffinity(change["before"][0]["tid"], {min(os.sched_getaffinity(0))})
    before = masks(guest.pid)
    assert "is stale" in cli("apply", plan["id"], status=1)
    assert [run["state"] for run in cli("run", "list")["items"]] == ["failed"]
    assert masks(guest.pid) == before


def test_the_inventory_tells_the_guest(cli, start_guest):
    guest = start_guest()
    seen = {found["name"]: found for found in cli("inventory", "--sample-seconds", "0")["guests"]}
    assert seen[guest.name]["uuid"] == guest.uuid
    assert [vcpu["thread"]["tid"] for vcpu in seen[guest.name]["vcpus"]] == [v.thread.tid for v in guest.vcpus]


def test_libvirt_that_does_not_run(tmp_path, cli):
    config = tmp_path / "other.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/s\n[libvirt]\nuri = qemu+unix:///system?socket={tmp_path}/no\n")
    assert "libvirt does not answer" in cli("--config-file", config, "inventory", "--sample-seconds", "0", status=1)


UNEVEN = """
import os, threading, time
def sit(cpus):
    os.sched_setaffinity(0, cpus)
    time.sleep(600)
low, high = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
for cpus in ({low}, {high}, {low, high}):
    threading.Thread(target=sit, args=(cpus,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
POLLING = """
import os
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print("ready", flush=True)
while True:
    pass
"""


def uneven() -> set[str]:
    """The masks of UNEVEN's threads."""
    ours = os.sched_getaffinity(0)
    return {str(CpuSet.of(cpus)) for cpus in ({min(ours)}, {max(ours)}, {min(ours), max(ours)}, ours)}


def is_final(pid: int, distinct: set[str]) -> dict[int, str]:
    """The process's masks, once its threads have the distinct ones that they give themselves."""
    deadline = time.monotonic() + 10
    while set((found := masks(pid)).values()) != distinct:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_a_process_whose_threads_differ_is_moved_whole_and_comes_back_thread_by_thread(cli, start_guest):
    guest = start_guest()
    with process(UNEVEN) as pid:
        before = is_final(pid, uneven())
        options = ("--guest", guest.name, "--busy-threshold", "100000", "--sample-seconds", "0", "--process", str(pid))
        plan = cli("plan", *options)
        run = cli("apply", plan["id"])["run"]["id"]
        assert set(masks(pid).values()) == {plan["roles"]["housekeeping"]}
        cli("rollback", run)
        assert masks(pid) == before


def test_a_polling_thread_that_its_owner_pinned_is_left_alone_and_its_cpu_is_in_no_pool(cli, start_guest):
    guest = start_guest()
    high = max(os.sched_getaffinity(0))
    with process(POLLING) as pid:
        is_final(pid, {str(high)})
        plan = cli("plan", "--guest", guest.name, "--sample-seconds", "1")
        (left,) = [one for one in plan["skipped"] if f"({pid})" in one["name"] or str(pid) in one["why"]]
        assert str(high) in left["why"]
        assert not any(change["target"]["owner"] == str(pid) for change in plan["changes"])
        for role in ("housekeeping", "emulator", "vcpu"):
            assert high not in CpuSet.parse(plan["roles"][role]), role


def test_the_shell_commands_of_a_plan_do_the_same(cli, start_guest, libvirtd):
    guest = start_guest()
    with process(UNEVEN) as pid:
        is_final(pid, uneven())
        options = ("--guest", guest.name, "--busy-threshold", "100000", "--sample-seconds", "0", "--process", str(pid))
        plan = cli("plan", *options)
        script = subprocess.run(
            [*PINNER, *cli.config, "plan", "show", plan["id"], "--format", "shell"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        subprocess.run(
            ["sh", "-eu"], input=script, text=True, check=True, capture_output=True,
            env={**os.environ, "LIBVIRT_DEFAULT_URI": libvirtd},
        )  # fmt: skip
        planned = {mask["tid"]: change["after"] for change in plan["changes"] for mask in change["before"]}
        now = masks(guest.pid) | masks(pid)
        assert {tid: now[tid] for tid in planned} == planned
        assert not cli("plan", *options)["changes"]
