"""The commands as a user types them; the tests read the masks of all threads from the kernel."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.server import warm
from support.server.accounts import WITHOUT_NOVA
from support.server.policy_host import NEVER_BUSY
from support.system.kernel import masks, process

from pinner.model.cpuset import CpuSet

STRICT = f"import warnings; warnings.simplefilter('error'); {warm.PINNER}"
PINNER = [sys.executable, "-W", "error", "-c", "import sys; from pinner.cli.main import main; sys.exit(main())"]

pytestmark = pytest.mark.needs("two_cpus")
MORE = pytest.mark.slow("one more command without libvirt")


@pytest.fixture
def cli(libvirtd, tmp_path):
    """Runs a command and checks its status; returns the parsed JSON, or the error text if ``status`` is not 0."""
    config = tmp_path / "pinner.conf"
    config.write_text(
        f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {libvirtd}\n[host]\nname = here\n{WITHOUT_NOVA}"
    )

    def run(*arguments, status=0):
        done = warm.run("--json", "--config-file", config, *arguments, code=STRICT)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return json.loads(done.stdout) if status == 0 else done.stderr

    run.config = ("--config-file", str(config))
    return run


def test_apply_pins_as_planned_and_rollback_restores_the_masks(cli, start_guest):
    guest = start_guest()
    before = masks(guest.pid)
    # A plan for one guest moves no process of this machine.
    plan = cli("plan", "--guest", guest.name, "--sample-seconds", "0")
    assert plan["changes"]

    applied = cli("apply", "--yes", plan["id"])
    assert applied["run"]["state"] == "applied"
    assert {entry["state"] for entry in applied["entries"]} == {"done"}
    planned = {mask["tid"]: change["after"] for change in plan["changes"] for mask in change["before"]}
    assert {tid: cpus for tid, cpus in masks(guest.pid).items() if tid in planned} == planned
    assert not cli("plan", "--guest", guest.name, "--sample-seconds", "0")["changes"]

    undone = cli("rollback", "--yes", applied["run"]["id"])
    assert undone["run"]["state"] == "rolled_back"
    assert {tid: cpus for tid, cpus in masks(guest.pid).items() if tid in before} == before
    assert cli("audit", "verify")["ok"]
    assert {"run.apply", "run.rollback"} <= {record["action"] for record in cli("audit", "list")["items"]}
    assert "rolled_back" in cli("rollback", "--yes", applied["run"]["id"], status=1)


def test_a_plan_whose_guest_has_moved_is_refused(cli, start_guest):
    guest = start_guest()
    plan = cli("plan", "--guest", guest.name, "--sample-seconds", "0")
    change = plan["changes"][0]
    os.sched_setaffinity(change["before"][0]["tid"], {min(os.sched_getaffinity(0))})
    before = masks(guest.pid)
    assert "is stale" in cli("apply", "--yes", plan["id"], status=1)
    assert [run["state"] for run in cli("run", "list")["items"]] == ["failed"]
    assert masks(guest.pid) == before


def test_the_inventory_shows_the_guest(cli, start_guest):
    guest = start_guest()
    shown = {each["name"]: each for each in cli("inventory", "--sample-seconds", "0")["guests"]}
    assert shown[guest.name]["uuid"] == guest.uuid
    assert [vcpu["thread"]["tid"] for vcpu in shown[guest.name]["vcpus"]] == [v.thread.tid for v in guest.vcpus]


@pytest.fixture
def without_libvirt(tmp_path):
    """The options of a configuration whose libvirt does not exist."""
    config = tmp_path / "other.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/s\n[libvirt]\nuri = qemu+unix:///system?socket={tmp_path}/no\n")
    return "--config-file", config


@pytest.mark.parametrize(
    "command",
    [
        *("guest list", "inventory --save - --sample-seconds 0"),
        *(pytest.param(command, marks=MORE) for command in ("process list", "plan --sample-seconds 0")),
    ],
)
def test_the_error_says_that_libvirt_does_not_answer(tmp_path, cli, without_libvirt, command):
    error = json.loads(cli(*without_libvirt, *command.split(), status=1))["error"]
    assert error["code"] == "host_unreachable"
    assert f"libvirt does not answer at qemu+unix:///system?socket={tmp_path}/no" in error["message"]


@pytest.mark.parametrize("command", ["inventory", pytest.param("host show", marks=MORE), "topology"])
def test_cpus_and_nodes_are_shown_without_libvirt(tmp_path, without_libvirt, command):
    shown = warm.run(*without_libvirt, *command.split(), code=STRICT)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.startswith("warning: ")
    assert f"libvirt does not answer at qemu+unix:///system?socket={tmp_path}/no" in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert "node 0" in shown.stdout or "NODE  CPUS" in shown.stdout
    document = warm.run(*without_libvirt, *command.split(), "--json", code=STRICT).stdout
    assert {cpu["id"] for cpu in json.loads(document)["topology"]["cpus"]} >= os.sched_getaffinity(0)
    assert "guests" not in json.loads(document)


def test_cpus_and_nodes_are_shown_while_libvirt_hangs(tmp_path):
    """A libvirtd that accepts a connection and never answers."""
    config, path = tmp_path / "hung.conf", tmp_path / "hung"
    uri = f"qemu+unix:///system?socket={path}"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/s\n[libvirt]\nuri = {uri}\ncall_timeout = 0.5\n")
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        shown = warm.run("--config-file", config, "inventory", "--sample-seconds", "0", code=STRICT)
    assert shown.returncode == 0
    assert f"the guests at {uri}: no answer from libvirt within 3 s" in shown.stderr
    assert "NODE  CPUS" in shown.stdout


def test_a_change_without_an_answer_is_refused_and_no_changes_nothing(cli, start_guest):
    guest = start_guest()
    plan = cli("plan", "--guest", guest.name, "--busy-threshold", str(NEVER_BUSY), "--sample-seconds", "0")
    before = masks(guest.pid)
    assert json.loads(cli("apply", plan["id"], status=2))["error"]["code"] == "answer_needed"
    assert cli("run", "list") == {"items": [], "next": ""}
    assert answered("n\n", *cli.config, "apply", plan["id"]) == 0
    assert masks(guest.pid) == before
    assert answered("y\n", *cli.config, "apply", plan["id"]) == 0
    assert masks(guest.pid) != before
    (run,) = cli("run", "list")["items"]
    assert answered("y\n", *cli.config, "rollback", run["id"]) == 0
    assert masks(guest.pid) == before


def answered(word, *arguments):
    """Run a command at a real terminal, and answer its question. Returns the exit status."""
    master, terminal = os.openpty()
    with subprocess.Popen([*PINNER, *arguments], stdin=terminal, stderr=terminal, stdout=subprocess.DEVNULL) as command:
        os.close(terminal)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(master, 1024)
        os.write(master, word.encode())
        try:
            while os.read(master, 1024):
                pass
        except OSError:  # Linux answers EIO once the command has closed the terminal
            pass
    os.close(master)
    return command.returncode


UNEVEN = """
import os, threading, time
def wait_on(cpus):
    os.sched_setaffinity(0, cpus)
    time.sleep(600)
low, high = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
for cpus in ({low}, {high}, {low, high}):
    threading.Thread(target=wait_on, args=(cpus,), daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
POLLING = """
import os, pathlib
pathlib.Path("/proc/self/comm").write_text("poller")
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print("ready", flush=True)
while True:
    pass
"""


def uneven() -> set[str]:
    """The masks that the threads of UNEVEN set."""
    ours = os.sched_getaffinity(0)
    return {str(CpuSet.of(cpus)) for cpus in ({min(ours)}, {max(ours)}, {min(ours), max(ours)}, ours)}


def wait_for_masks(pid: int, expected: set[str]) -> dict[int, str]:
    """The masks of the process's threads, once they are the expected ones."""
    deadline = time.monotonic() + 60
    while set((found := masks(pid)).values()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_threads_with_different_masks_are_moved_together_and_restored_one_by_one(cli, start_guest):
    guest = start_guest()
    with process(UNEVEN) as pid:
        before = wait_for_masks(pid, uneven())
        options = ("--guest", guest.name, "--sample-seconds", "0", "--process", str(pid))
        plan = cli("plan", *options)
        run = cli("apply", "--yes", plan["id"])["run"]["id"]
        assert set(masks(pid).values()) == {plan["roles"]["housekeeping"]}
        cli("rollback", "--yes", run)
        assert masks(pid) == before


def test_a_polling_thread_pinned_by_its_owner_is_skipped_and_its_cpu_is_in_no_pool(cli, start_guest):
    """It is younger than others whose restriction counts, so the configuration names it."""
    guest = start_guest()
    high = max(os.sched_getaffinity(0))
    config = Path(cli.config[1])
    config.write_text(config.read_text().replace("[host]\n", "[host]\naffinity_owners = poller\n"))
    with process(POLLING) as pid:
        wait_for_masks(pid, {str(high)})
        plan = cli("plan", "--guest", guest.name, "--with-processes", "--sample-seconds", "1")
        (skipped,) = [one for one in plan["skipped"] if one["target"]["owner"] == str(pid)]
        assert str(high) in skipped["why"]
        assert not any(change["target"]["owner"] == str(pid) for change in plan["changes"])
        for role in ("housekeeping", "emulator", "vcpu"):
            assert high not in CpuSet.parse(plan["roles"][role]), role


@pytest.mark.needs("guest_cgroups")
def test_the_shell_commands_of_a_plan_set_the_planned_masks(cli, start_guest, libvirtd):
    guest = start_guest()
    with process(UNEVEN) as pid:
        wait_for_masks(pid, uneven())
        options = ("--guest", guest.name, "--sample-seconds", "0", "--process", str(pid))
        plan = cli("plan", *options)
        script = warm.run(*cli.config, "plan", "show", plan["id"], "--format", "shell", code=STRICT).stdout
        subprocess.run(
            ["sh", "-eu"], input=script, text=True, check=True, capture_output=True,
            env={**os.environ, "LIBVIRT_DEFAULT_URI": libvirtd},
        )  # fmt: skip
        planned = {mask["tid"]: change["after"] for change in plan["changes"] for mask in change["before"]}
        now = masks(guest.pid) | masks(pid)
        assert {tid: now[tid] for tid in planned} == planned
        assert not cli("plan", *options)["changes"]
