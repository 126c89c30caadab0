"""A policy in mode ``enforce`` on a real host: what leaves its place is back at once, and nobody else moves.

How soon is measured by tests/benchmarks/replace.py.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import private_libvirt
import pytest
from support.kernel import masks
from support.policy_host import all_on, fresh_policy_server, guest_on, qemu_of, running, wait_until
from support.real_guests import ONLINE

from pinner.host.kernel import cpuset_mount

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(len(ONLINE) != 2, reason="needs two CPUs: one for housekeeping, the other for guests"),
]

SOON = 3.0
"""Seconds after its event within which a thread is back: one is promised, and a machine that runs tests is busy."""
RESYNC = 2.0
"""Seconds between two sweeps here: they find what no event tells."""
ROOT = Path("/")


@pytest.fixture(scope="module")
def kept(libvirtd):
    with fresh_policy_server(libvirtd, f"[policy]\nresync_seconds = {RESYNC}\n[host]\nsample_seconds = 0.1\n") as kept:
        yield kept


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
class Place:
    """Where the policy puts what, and how many runs it took to get there."""

    roles: dict[str, str]
    runs: int

    def holds(self, *pids):
        """Whether these QEMUs are where they belong."""
        return all(guest_on(pid, self.roles["emulator"], self.roles["vcpu"]) for pid in pids)

    def holds_daemon(self, daemon):
        return all_on(daemon.pid, self.roles["housekeeping"])

    def elsewhere(self, role):
        """A CPU that is not of the role."""
        return str(next(cpu for cpu in ONLINE if str(cpu) != self.roles[role]))


@pytest.fixture(autouse=True)
def place(kept, guest, other, daemon):
    """Two guests and a daemon in their places, and kept there. At the end the policy lets them go."""
    kept.policy("enforce", [guest.name, other.name], [daemon.name])

    def placed():
        there = Place(kept.roles(), 0)
        return there.holds(guest.pid, other.pid) and there.holds_daemon(daemon)

    roles = kept.settle(placed)
    yield Place(roles, len(kept.runs()))
    kept.policy("observe", [])


@pytest.fixture
def virsh(libvirtd):
    return lambda *arguments: private_libvirt.virsh(libvirtd, *arguments)


def assert_back(condition, seconds=SOON):
    took = wait_until(condition, 20)
    assert took < seconds, f"back after {took:.3f} s"


def assert_moved(kept, place, *targets):
    """That the runs since then moved these targets alone (kind, owner)."""
    runs = [run for run in kept.runs() if run["state"] != "running"]
    new = runs[: len(runs) - place.runs]
    assert {run["actor"] for run in new} <= {"policy"}
    moved = {(target["kind"], target["owner"]) for run in new for target in kept.changes(run["id"])}
    assert moved == set(targets)


def everything_of(guest):
    return [(kind, guest.uuid) for kind in ("emulator", "vcpu", "iothread")]


def test_a_daemon_that_restarts(kept, place, daemon):
    restarted = []
    for _ in range(3):
        daemon.stop()
        daemon.start()
        assert_back(lambda: place.holds_daemon(daemon))
        daemon.wait_ready()
        assert_back(lambda: place.holds_daemon(daemon))
        restarted.append(("process", str(daemon.pid)))
    time.sleep(0.5)
    assert_moved(kept, place, *restarted)


def test_a_thread_that_is_born(kept, place, daemon):
    before = len(masks(daemon.pid))
    daemon.bear()
    assert_back(lambda: len(masks(daemon.pid)) == before + 1 and place.holds_daemon(daemon))
    assert_moved(kept, place)


@pytest.mark.fault(26)
def test_a_guest_that_is_stopped_and_started(kept, place, guest, virsh, libvirt):
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    pid = qemu_of(libvirt, guest)
    assert_back(lambda: place.holds(pid))
    assert pid != guest.pid
    time.sleep(0.5)
    assert_moved(kept, place, *everything_of(guest))


@pytest.mark.fault(26)
def test_a_guest_that_is_reset_keeps_its_place_and_nothing_is_done(kept, place, guest, virsh):
    virsh("resume", guest.name)
    virsh("reset", guest.name)
    time.sleep(SOON)
    assert place.holds(guest.pid)
    assert_moved(kept, place)


@pytest.mark.fault(26)
def test_a_guest_that_is_saved_and_restored(kept, place, guest, virsh, libvirt, tmp_path):
    virsh("save", guest.name, str(tmp_path / "saved"))
    virsh("restore", str(tmp_path / "saved"), "--paused")
    pid = qemu_of(libvirt, guest)
    assert_back(lambda: place.holds(pid))
    assert pid != guest.pid


@pytest.mark.fault(12)
def test_a_vcpu_and_an_iothread_that_are_plugged_in(kept, place, guest, virsh):
    virsh("resume", guest.name)
    for arguments, thread in (
        (("setvcpus", guest.name, "3", "--live"), "CPU 2/"),
        (("iothreadadd", guest.name, "2", "--live"), "IO iothread2"),
    ):
        virsh(*arguments)
        assert_back(lambda: place.holds(guest.pid))
        names = [path.read_text() for path in Path(f"/proc/{guest.pid}/task").glob("*/comm")]
        assert any(name.startswith(thread) for name in names)


@pytest.mark.fault(27)
def test_another_writer_through_libvirt(kept, place, guest, virsh):
    virsh("vcpupin", guest.name, "0", place.elsewhere("vcpu"), "--live")
    assert_back(lambda: place.holds(guest.pid))
    virsh("emulatorpin", guest.name, place.elsewhere("emulator"), "--live")
    assert_back(lambda: place.holds(guest.pid))
    time.sleep(0.5)
    assert_moved(kept, place, ("vcpu", guest.uuid), ("emulator", guest.uuid))


@pytest.mark.fault(20)
def test_a_cpuset_written_behind_libvirts_back(kept, place, guest):
    thread = guest.vcpus[0].thread.tid
    rows = [line.split(":", 2) for line in Path(f"/proc/{thread}/cgroup").read_text().splitlines()]
    path = next((path for _, names, path in rows if "cpuset" in names.split(",")), "/")
    if path == "/":
        pytest.skip("guests have no cpusets of cgroup v1 here")
    (cpuset_mount(ROOT).folder / path.lstrip("/") / "cpuset.cpus").write_text(place.elsewhere("vcpu"))
    assert_back(lambda: place.holds(guest.pid))
    time.sleep(0.5)
    assert_moved(kept, place, ("vcpu", guest.uuid))


def test_an_affinity_set_behind_everybodys_back_is_found_by_the_sweep(kept, place, daemon):
    """The kernel tells nobody. (Out of its cpuset, which libvirt narrows with each pin, a guest's thread cannot be
    moved in this way.)"""
    os.sched_setaffinity(daemon.pid, [int(place.elsewhere("housekeeping"))])
    assert_back(lambda: place.holds_daemon(daemon), RESYNC + 2 * SOON)
    time.sleep(0.5)
    assert_moved(kept, place, ("process", str(daemon.pid)))


def test_a_fight_is_noticed_and_not_fought_at_full_speed(kept, place, guest, virsh):
    deadline = time.monotonic() + 15
    held = []
    while time.monotonic() < deadline and not held:
        virsh("vcpupin", guest.name, "0", place.elsewhere("vcpu"), "--live")
        time.sleep(0.3)
        held = [drift for drift in kept.drift()["drifts"] if drift["backoff_until"]]
    assert held, kept.drift()
    assert held[0]["target"]["kind"] == "vcpu"
    assert held[0]["times"] >= 2
    assert held[0]["cause"] == "libvirt"
    runs = len(kept.runs())
    time.sleep(1)
    assert len(kept.runs()) == runs


def test_a_guest_whose_cpus_are_to_be_left_alone(kept, place, guest, virsh):
    answer = kept.http.put(f"/hosts/{kept.host}/guests/{guest.name}/excluded", json={"excluded": True})
    assert answer.status_code == 200, answer.text
    virsh("vcpupin", guest.name, "0", place.elsewhere("vcpu"), "--live")
    time.sleep(RESYNC + SOON)
    assert not place.holds(guest.pid)
    assert_moved(kept, place)
    kept.http.put(f"/hosts/{kept.host}/guests/{guest.name}/excluded", json={"excluded": False})
    assert_back(lambda: place.holds(guest.pid))


@pytest.mark.fault(19)
def test_a_libvirtd_that_is_killed_and_comes_back(kept, place, libvirtd, guest, virsh, daemon):
    with private_libvirt.killed(libvirtd):
        time.sleep(SOON)
    virsh("vcpupin", guest.name, "0", place.elsewhere("vcpu"), "--live")
    assert_back(lambda: place.holds(guest.pid), 10)
    time.sleep(RESYNC)
    virsh("vcpupin", guest.name, "0", place.elsewhere("vcpu"), "--live")
    assert_back(lambda: place.holds(guest.pid))
    daemon.stop()
    daemon.start()
    assert_back(lambda: place.holds_daemon(daemon))
