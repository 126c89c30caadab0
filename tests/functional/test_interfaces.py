"""Guests that start, return and leave, by each door: what libvirt tells, what others tell pinner, what Nova notifies.

There is hardly a sweep here: what is put right, an event led to, and the audit trail names it.
"""

import copy
import os
import tempfile
import time
from pathlib import Path

import private_libvirt
import private_rabbit
import pytest
from support import samples
from support.kernel import masks
from support.nova_listener import listening, publish
from support.policy_host import (
    RARE_RESYNC,
    all_on,
    fresh_policy_server,
    guest_on,
    policy_server,
    qemu_of,
    running,
    wait_until,
)
from support.real_guests import ONLINE

from pinner.service.controller import POLL_SECONDS

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(len(ONLINE) != 2, reason="needs two CPUs: one for housekeeping, the other for guests"),
]

SOON = 3.0


@pytest.fixture(scope="module")
def kept(libvirtd):
    with fresh_policy_server(libvirtd, RARE_RESYNC) as kept:
        yield kept


@pytest.fixture
def guest(start_guest):
    return start_guest(persistent=True, vcpus=3, plugged=2)


@pytest.fixture
def virsh(libvirtd):
    return lambda *arguments: private_libvirt.virsh(libvirtd, *arguments)


@pytest.fixture
def before(guest):
    return free(guest.pid)


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path, "doors") as daemon:
        yield daemon


@pytest.fixture
def placed(kept, guest, before, daemon):
    """Whether a QEMU is where the policy wants it; the guest is, now."""
    kept.policy("enforce", [guest.name], [daemon.name])
    assert before

    def so(pid=guest.pid):
        roles = kept.roles()
        return bool(roles) and guest_on(pid, roles["emulator"], roles["vcpu"])

    kept.settle(so)
    yield so
    kept.policy("observe", [])


def free(pid):
    """Whether every thread of a QEMU may run everywhere."""
    return {len(mask.split(",")) > 1 or "-" in mask for mask in masks(pid).values()} == {True}


def disturb(daemon):
    """Move what is placed in a way that nobody is told of; whether it is back."""
    time.sleep(1)  # what was put right is news itself, and is looked at by then
    (home,) = set(masks(daemon.pid).values())
    os.sched_setaffinity(daemon.pid, [next(cpu for cpu in ONLINE if str(cpu) != home)])
    return lambda: all_on(daemon.pid, home)


def assert_back(condition, seconds=SOON):
    took = wait_until(condition, 20)
    assert took < seconds, f"back after {took:.3f} s"


def assert_led_to(kept, words):
    """That the latest run is the policy's, and what it says that it was for."""
    assert wait_until(lambda: words in kept.runs()[0]["origin"] and kept.runs()[0]["state"] == "applied", 5) < 5, [
        run["origin"] for run in kept.runs()[:3]
    ]
    assert kept.runs()[0]["actor"] == "policy"
    asked = [record for record in kept.audit() if record["action"] == "run.apply"]
    assert words in asked[0]["origin"]


def tell(kept, happened, guest, event, **parts):
    body = {"guest": guest.uuid, "event": event, "source": "nova req-7", **parts}
    answer = kept.http.post(f"/events/guest-{happened}", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_power_off_and_on(kept, guest, placed, virsh, libvirt):
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    assert_back(lambda: placed(qemu_of(libvirt, guest)))
    assert_led_to(kept, f"guest-started {guest.uuid} started: booted")


def test_suspend_and_resume(kept, guest, placed, virsh, libvirt):
    """Nova's, by which the guest is saved; libvirt does the same at the host's shutdown."""
    virsh("managedsave", guest.name)
    virsh("start", guest.name, "--paused")
    pid = qemu_of(libvirt, guest)
    assert pid != guest.pid
    # What was pinned is saved with it; what pinner does beyond that, the event led to.
    runs = len(kept.runs())
    assert_back(lambda: placed(pid))
    if len(kept.runs()) > runs:
        assert_led_to(kept, f"guest-started {guest.uuid} started: restored")


def test_pause_and_unpause_and_a_reset_move_nothing(kept, guest, placed, virsh):
    runs = len(kept.runs())
    for command in ("resume", "suspend", "resume", "reset"):
        virsh(command, guest.name)
    time.sleep(SOON)
    assert placed()
    assert len(kept.runs()) == runs


def test_a_rebuild_that_defines_it_anew(kept, guest, placed, virsh, libvirt, libvirtd):
    """Resize, rebuild and hard reboot: Nova destroys it and starts it from new XML with the same UUID."""
    virsh("destroy", guest.name)
    virsh("undefine", guest.name)
    same = f"<uuid>{guest.uuid}</uuid>"
    xml = private_libvirt.guest_xml(guest.name, vcpus=1, iothreads=2, extra=same)
    private_libvirt.define_guest(libvirtd, xml, paused=True)
    assert_back(lambda: placed(qemu_of(libvirt, guest)))
    assert_led_to(kept, f"guest-started {guest.uuid} started: booted")


def test_a_libvirtd_that_restarts_loses_no_start(kept, guest, placed, virsh, libvirt, libvirtd, daemon):
    time.sleep(POLL_SECONDS + 1)  # until then a look may be because of the new policy
    with private_libvirt.killed(libvirtd):
        back = disturb(daemon)
    assert_back(back, 10)
    assert_led_to(kept, "libvirt answers again")
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    assert_back(lambda: placed(qemu_of(libvirt, guest)))
    assert_led_to(kept, f"guest-started {guest.uuid} started: booted")


def test_a_guest_that_runs_already_when_pinner_starts(libvirtd, libvirt, start_guest):
    """Host boot, where libvirt or Nova resumes the guests before pinner is there."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as folder:
        first, second = start_guest(persistent=True), start_guest(persistent=True)
        with policy_server(Path(folder), libvirtd, config=RARE_RESYNC) as kept:
            kept.policy("enforce", [first.name, second.name])
            kept.settle()
        private_libvirt.virsh(libvirtd, "destroy", second.name)
        private_libvirt.virsh(libvirtd, "start", second.name, "--paused")
        with policy_server(Path(folder), libvirtd, config=RARE_RESYNC) as kept:
            roles, pid = kept.roles(), qemu_of(libvirt, second)
            assert_back(lambda: guest_on(pid, roles["emulator"], roles["vcpu"]), 20)
            assert_led_to(kept, "started")
            kept.policy("observe", [])


def test_an_event_that_is_told(kept, guest, placed, daemon):
    back = disturb(daemon)
    assert tell(kept, "started", guest, "instance.reboot.end")["known"] is True
    assert_back(back)
    assert_led_to(kept, f"guest-event {guest.uuid} instance.reboot.end, told by nova req-7")
    told = next(record for record in kept.audit() if record["action"] == "guest.event")
    assert told["subject"] == f"guest {guest.uuid}: instance.reboot.end, told by nova req-7"
    assert (told["actor"], told["result"]) == ("local", "known")


def test_an_event_changes_nothing_where_the_policy_only_observes(kept, guest, placed, daemon):
    kept.policy("observe", [guest.name], [daemon.name])
    back = disturb(daemon)
    runs = len(kept.runs())
    tell(kept, "started", guest, "instance.reboot.end")
    time.sleep(1)
    assert not back()
    assert len(kept.runs()) == runs


def test_a_guest_that_leaves_and_stays_after_all(kept, guest, placed):
    answer = tell(kept, "leaving", guest, "instance.live_migration_pre.start")
    assert free(guest.pid)
    assert kept.http.get(f"/runs/{answer['run']}").json()["run"]["kind"] == "release"
    tell(kept, "leaving", guest, "instance.live_migration_pre.start")
    time.sleep(1)
    assert free(guest.pid)
    assert kept.drift()["drifts"] == []
    tell(kept, "started", guest, "instance.live_migration_rollback.end")
    assert_back(placed)
    assert_led_to(kept, "instance.live_migration_rollback.end")


def test_a_guest_that_leaves_for_a_host_with_fewer_cpus(kept, guest, placed, virsh):
    """What it carries in its XML is within what that host has."""
    tell(kept, "leaving", guest, "instance.live_migration_pre.start", cpus=str(ONLINE[0]))
    assert guest_on(guest.pid, ONLINE[0], ONLINE[0])
    pins = virsh("dumpxml", guest.name).partition("<cputune>")[2].partition("</cputune>")[0]
    assert pins.count("cpuset='") == pins.count(f"cpuset='{ONLINE[0]}'") > 0


@samples.needed
@pytest.mark.skipif(bool(private_rabbit.missing()), reason=private_rabbit.missing())
def test_what_nova_notifies(kept, guest, placed, daemon, tmp_path):
    def notify(name):
        sample = copy.deepcopy(samples.load(name))
        sample["payload"]["nova_object.data"] |= {"uuid": guest.uuid, "host": kept.host}
        sample["timestamp"] = samples.now()
        publish(rabbit.url, sample)

    with (
        private_rabbit.private_rabbit(tmp_path / "r") as rabbit,
        listening(tmp_path / "l", rabbit.url, kept.url) as listener,
    ):
        listener.wait_for("listening")
        back = disturb(daemon)
        notify("instance-create-end")
        assert_back(back)
        assert_led_to(kept, f"guest-event {guest.uuid} instance.create.end, told by nova req-")
        seen = kept.http.get(f"/hosts/{kept.host}/guests").json()["items"]
        (nova,) = [each["nova"] for each in seen if each["uuid"] == guest.uuid]
        assert (nova["flavor"], nova["extra_specs"]) == ("test_flavor", {"hw:watchdog_action": "disabled"})
        notify("instance-live_migration_pre-start")
        assert_back(lambda: free(guest.pid))
        notify("instance-live_migration_rollback-end")
        assert_back(placed)
        rabbit.kill()
        back = disturb(daemon)
        rabbit.start()
        listener.wait_for("Reconnected", 60)
        time.sleep(1)
        notify("instance-reboot-end")
        assert_back(back)
    assert listener.quarantined() == []
