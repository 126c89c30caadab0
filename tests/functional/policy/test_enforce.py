"""A policy in mode ``enforce`` on a real host: misplaced threads are moved back soon, and no other thread is moved.

tests/benchmarks/live/reconcile_latency.py measures the reconcile latency.
"""

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import private_libvirt
import pytest
from support import needs
from support.guests.real_guests import ONLINE
from support.server.policy_host import all_on, fresh_policy_server, guest_on, qemu_of, running, wait_until
from support.system.kernel import masks

from pinner.host.kernel.kernel import cpuset_mount

pytestmark = [
    pytest.mark.needs("root", "exactly_two_cpus"),
    pytest.mark.machine("the process connector tells of new processes in the first namespaces alone"),
]

CONFIG = "[policy]\nresync_seconds = {}\n[host]\nsample_seconds = 0.1\n"
NO_RESYNC = CONFIG.format(3600)
"""Only an event can cause a correction within the time of a test; a resync finds changes that cause no event."""
ROOT = Path("/")


@pytest.fixture(scope="module")
def server(libvirtd):
    with fresh_policy_server(libvirtd, NO_RESYNC) as server:
        yield server


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path, "pinned") as daemon:
        yield daemon


@pytest.fixture
def guest(start_guest):
    return start_guest(persistent=True, vcpus=3, plugged=2)


@pytest.fixture
def other(start_guest):
    return start_guest()


@dataclass(frozen=True)
class Placed:
    """The CPUs of each role in the placement, and the number of runs until it was complete."""

    roles: dict[str, str]
    runs: int

    def has_guests(self, *pids):
        """Whether all threads of these QEMUs are on the CPUs of their roles."""
        return all(guest_on(pid, self.roles["emulator"], self.roles["vcpu"]) for pid in pids)

    def has_daemon(self, daemon):
        return all_on(daemon.pid, self.roles["housekeeping"])

    def cpu_outside(self, role):
        """A CPU that does not belong to the role."""
        return str(next(cpu for cpu in ONLINE if str(cpu) != self.roles[role]))


@pytest.fixture
def placed(server, guest, other, daemon):
    """Two guests and a daemon, placed by a policy in mode ``enforce`` until the end of the test."""
    with enforced(server, guest, other, daemon) as placed:
        yield placed


@contextmanager
def enforced(server, guest, other, daemon):
    server.policy("enforce", [guest.name, other.name], [daemon.name])

    def all_placed():
        now = Placed(server.roles(), 0)
        return now.has_guests(guest.pid, other.pid) and now.has_daemon(daemon)

    roles = server.wait_reconciled(all_placed)
    yield Placed(roles, len(server.runs()))
    server.policy("observe", [])


def assert_reconciled(condition):
    assert wait_until(condition, 60) < 60


def assert_later_event_is_handled(placed, guest, virsh):
    """Move a vCPU of this guest, and wait until it is back: the server has seen all events before."""
    virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
    assert_reconciled(lambda: placed.has_guests(guest.pid))


def assert_moved(server, placed, *targets):
    """Assert that the runs since the first placement moved only these targets (kind, owner), and that they named no
    pins of other guests."""

    def moved():
        runs = server.runs()
        new = runs[: len(runs) - placed.runs]
        assert {run["actor"] for run in new} <= {"policy"}
        return {
            (target["kind"], target["owner"])
            for run in new
            if run["state"] != "running"
            for target in server.changes(run["id"])
        }

    wait_until(lambda: moved() >= set(targets), 60)  # the last run ends after its changes are made
    assert {target for target in moved() if target[0] != "metadata"} == set(targets)
    assert {owner for kind, owner in moved() if kind == "metadata"} <= {owner for _, owner in targets}


def all_targets_of(guest):
    return [(kind, guest.uuid) for kind in ("emulator", "vcpu", "iothread")]


def test_a_restarted_daemon_is_placed_again(server, placed, daemon):
    restarted = []
    for _ in range(3):
        daemon.stop()
        daemon.start()
        assert_reconciled(lambda: placed.has_daemon(daemon))
        daemon.wait_ready()
        assert_reconciled(lambda: placed.has_daemon(daemon))
        restarted.append(("process", str(daemon.pid)))
    time.sleep(0.5)
    assert_moved(server, placed, *restarted)


def test_a_new_thread_is_placed_without_a_run(server, placed, daemon):
    before = len(masks(daemon.pid))
    daemon.create_thread()
    assert_reconciled(lambda: len(masks(daemon.pid)) == before + 1 and placed.has_daemon(daemon))
    assert_moved(server, placed)


@pytest.mark.fault(26)
def test_a_stopped_and_started_guest_is_placed_again(server, placed, guest, virsh, libvirt):
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    pid = qemu_of(libvirt, guest)
    assert_reconciled(lambda: placed.has_guests(pid))
    assert pid != guest.pid
    time.sleep(0.5)
    assert_moved(server, placed, *all_targets_of(guest))


@pytest.mark.fault(26)
def test_a_reset_keeps_the_pins_and_causes_no_run(server, placed, guest, other, virsh):
    virsh("resume", guest.name)
    virsh("reset", guest.name)
    assert_later_event_is_handled(placed, other, virsh)
    assert placed.has_guests(guest.pid)
    assert_moved(server, placed, ("vcpu", other.uuid))


@pytest.mark.fault(26)
def test_a_saved_and_restored_guest_is_placed_again(server, placed, guest, virsh, libvirt, tmp_path):
    virsh("save", guest.name, str(tmp_path / "saved"))
    virsh("restore", str(tmp_path / "saved"), "--paused")
    pid = qemu_of(libvirt, guest)
    assert_reconciled(lambda: placed.has_guests(pid))
    assert pid != guest.pid


@pytest.mark.fault(12)
def test_a_new_vcpu_and_a_new_iothread_are_placed(server, placed, guest, virsh):
    virsh("resume", guest.name)
    for arguments, thread in (
        (("setvcpus", guest.name, "3", "--live"), "CPU 2/"),
        (("iothreadadd", guest.name, "2", "--live"), "IO iothread2"),
    ):
        virsh(*arguments)
        assert_reconciled(lambda: placed.has_guests(guest.pid))
        names = [path.read_text() for path in Path(f"/proc/{guest.pid}/task").glob("*/comm")]
        assert any(name.startswith(thread) for name in names)


@pytest.mark.fault(27)
def test_pins_by_another_program_through_libvirt_are_corrected(server, placed, guest, virsh):
    virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
    assert_reconciled(lambda: placed.has_guests(guest.pid))
    virsh("emulatorpin", guest.name, placed.cpu_outside("emulator"), "--live")
    assert_reconciled(lambda: placed.has_guests(guest.pid))
    time.sleep(0.5)
    assert_moved(server, placed, ("vcpu", guest.uuid), ("emulator", guest.uuid))


@pytest.mark.fault(20)
def test_a_cpuset_changed_without_libvirt_is_corrected(server, placed, guest):
    thread = guest.vcpus[0].thread.tid
    rows = [line.split(":", 2) for line in Path(f"/proc/{thread}/cgroup").read_text().splitlines()]
    path = next((path for _, names, path in rows if "cpuset" in names.split(",")), "/")
    if path == "/":
        needs.require("guest_cgroups")
        pytest.skip("guests have no cpusets of cgroup v1 here")
    (cpuset_mount(ROOT).folder / path.lstrip("/") / "cpuset.cpus").write_text(placed.cpu_outside("vcpu"))
    assert_reconciled(lambda: placed.has_guests(guest.pid))
    time.sleep(0.5)
    assert_moved(server, placed, ("vcpu", guest.uuid))


def test_an_affinity_changed_without_an_event_is_corrected_by_the_resync(libvirtd, guest, other, daemon):
    """The kernel sends no event for a new affinity.

    The test uses a daemon: libvirt restricts a guest's cpuset with each pin, so its thread cannot leave its CPUs.
    """
    with (
        fresh_policy_server(libvirtd, CONFIG.format(1)) as server,
        enforced(server, guest, other, daemon) as placed,
    ):
        os.sched_setaffinity(daemon.pid, [int(placed.cpu_outside("housekeeping"))])
        assert_reconciled(lambda: placed.has_daemon(daemon))
        time.sleep(0.5)
        assert_moved(server, placed, ("process", str(daemon.pid)))


def test_repeated_drift_is_corrected_with_backoff(server, placed, guest, virsh):
    """A move in the middle of a correction makes that correction fail: such a drift has another cause."""
    backed_off = []

    def contested():
        virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
        time.sleep(0.3)
        backed_off[:] = [one for one in server.drift()["drifts"] if one["backoff_until"] and one["cause"] == "libvirt"]
        return backed_off

    wait_until(contested, 60)
    assert backed_off[0]["target"]["kind"] == "vcpu"
    assert backed_off[0]["times"] >= 2
    until = datetime.fromisoformat(backed_off[0]["backoff_until"])
    known = {run["id"] for run in server.runs()}
    time.sleep(1)
    new = [run for run in server.runs() if run["id"] not in known]
    assert not [run for run in new if datetime.fromisoformat(run["started_at"]) < until]


def test_an_excluded_guest_is_not_moved(server, placed, guest, other, virsh):
    answer = server.http.put(f"/hosts/{server.host}/guests/{guest.name}/excluded", json={"excluded": True})
    assert answer.status_code == 200, answer.text
    virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
    assert_later_event_is_handled(placed, other, virsh)
    assert not placed.has_guests(guest.pid)
    assert_moved(server, placed, ("vcpu", other.uuid))
    server.http.put(f"/hosts/{server.host}/guests/{guest.name}/excluded", json={"excluded": False})
    assert_reconciled(lambda: placed.has_guests(guest.pid))


@pytest.mark.fault(19)
def test_drift_is_corrected_after_libvirtd_was_killed_and_restarted(server, placed, libvirtd, guest, virsh, daemon):
    with private_libvirt.killed(libvirtd):
        time.sleep(1)  # the server notices
    virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
    assert_reconciled(lambda: placed.has_guests(guest.pid))
    virsh("vcpupin", guest.name, "0", placed.cpu_outside("vcpu"), "--live")
    assert_reconciled(lambda: placed.has_guests(guest.pid))
    daemon.stop()
    daemon.start()
    assert_reconciled(lambda: placed.has_daemon(daemon))
