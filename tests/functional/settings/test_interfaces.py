"""Guests that start, return and leave, reported through each interface: libvirt, the events API and Nova.

The resync is rare here: every reconcile is the result of an event, which the audit trail names.
"""

import os
import pwd
import tempfile
import time
from pathlib import Path

import private_libvirt
import private_rabbit
import pytest
from support.guests.real_guests import ONLINE
from support.nova import samples
from support.nova.nova_listener import listening, publish
from support.server.policy_host import (
    RARE_RESYNC,
    all_on,
    fresh_policy_server,
    guest_on,
    policy_server,
    qemu_of,
    running,
    wait_until,
)
from support.system.kernel import masks

from pinner.service.reconcile.controller import POLL_SECONDS

pytestmark = pytest.mark.needs("root", "exactly_two_cpus")

QUIET = 1.5
"""Seconds in which a run would come that must not come."""
PATIENCE = 60.0
"""A machine that runs tests is busy."""


@pytest.fixture(scope="module")
def server(libvirtd):
    # Nova's notifications make the guest one of Nova's, and this machine has no configuration of Nova.
    with fresh_policy_server(libvirtd, f"{RARE_RESYNC}\n[nova]\nignore_nova_conf = true\n") as server:
        yield server


@pytest.fixture
def guest(start_guest):
    return start_guest(persistent=True, vcpus=3, plugged=2)


@pytest.fixture
def free_before(guest):
    return free(guest.pid)


@pytest.fixture
def daemon(tmp_path):
    with running(tmp_path, "interfaces") as daemon:
        yield daemon


@pytest.fixture
def placed(server, guest, free_before, daemon):
    """A function that says whether a QEMU is placed as the policy wants; the guest is placed when the test begins."""
    server.policy("enforce", [guest.name], [daemon.name])
    assert free_before

    def is_placed(pid=guest.pid):
        roles = server.roles()
        return bool(roles) and guest_on(pid, roles["emulator"], roles["vcpu"])

    server.wait_reconciled(is_placed)
    yield is_placed
    server.policy("observe", [])


def free(pid):
    """Whether every thread of a QEMU may run everywhere."""
    return {len(mask.split(",")) > 1 or "-" in mask for mask in masks(pid).values()} == {True}


def misplace(daemon):
    """Move the daemon in a way that causes no event; returns a function that says whether it is placed again."""
    time.sleep(1)  # the last reconcile causes events itself, which are handled by then
    (home,) = set(masks(daemon.pid).values())
    os.sched_setaffinity(daemon.pid, [next(cpu for cpu in ONLINE if str(cpu) != home)])
    return lambda: all_on(daemon.pid, home)


def assert_reconciled(condition):
    assert wait_until(condition, PATIENCE) < PATIENCE


def assert_origin(server, text, before=0):
    """Assert that the policy started a run whose origin contains this text, after the first runs ``before``. A thread
    that QEMU starts a moment later may cause another run."""

    def found():
        runs = server.runs()
        return [run for run in runs[: len(runs) - before] if text in run["origin"] and run["state"] == "applied"]

    assert wait_until(found, 60) < 60, [run["origin"] for run in server.runs()[:3]]
    assert {run["actor"] for run in found()} == {"policy"}
    told = [record["origin"] for record in server.audit() if record["action"] == "run.apply"]
    assert any(text in origin for origin in told)


def post_event(server, happened, guest, event, **parts):
    body = {"guest": guest.uuid, "event": event, "source": "nova req-7", **parts}
    answer = server.http.post(f"/events/guest-{happened}", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_a_guest_is_placed_after_power_off_and_on(server, guest, placed, virsh, libvirt):
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    assert_reconciled(lambda: placed(qemu_of(libvirt, guest)))
    assert_origin(server, f"guest-started {guest.uuid} started: booted")


def test_a_guest_is_placed_after_suspend_and_resume(server, guest, placed, virsh, libvirt):
    """Nova's suspend saves the guest; libvirt does the same when the host shuts down."""
    virsh("managedsave", guest.name)
    virsh("start", guest.name, "--paused")
    pid = qemu_of(libvirt, guest)
    assert pid != guest.pid
    # The saved guest has its pins; pinner changes only the rest, because of the event.
    runs = len(server.runs())
    assert_reconciled(lambda: placed(pid))
    if len(server.runs()) > runs:
        assert_origin(server, f"guest-started {guest.uuid} started: restored")


def test_pause_and_reset_cause_no_run(server, guest, placed, virsh):
    runs = len(server.runs())
    for command in ("resume", "suspend", "resume", "reset"):
        virsh(command, guest.name)
    time.sleep(QUIET)
    assert placed()
    assert len(server.runs()) == runs


def test_a_rebuilt_guest_is_placed(server, guest, placed, virsh, libvirt, libvirtd):
    """For a resize, rebuild or hard reboot Nova destroys the guest and starts it from new XML with the same UUID."""
    virsh("destroy", guest.name)
    virsh("undefine", guest.name)
    same = f"<uuid>{guest.uuid}</uuid>"
    xml = private_libvirt.guest_xml(guest.name, vcpus=1, iothreads=2, extra=same)
    private_libvirt.define_guest(libvirtd, xml, paused=True)
    assert_reconciled(lambda: placed(qemu_of(libvirt, guest)))
    assert_origin(server, f"guest-started {guest.uuid} started: booted")


def test_no_start_is_missed_after_a_restart_of_libvirtd(server, guest, placed, virsh, libvirt, libvirtd, daemon):
    time.sleep(POLL_SECONDS + 1)  # until then the new policy may be the cause of a reconcile
    with private_libvirt.killed(libvirtd):
        is_restored = misplace(daemon)
    assert_reconciled(is_restored)
    assert_origin(server, "libvirt answers again")
    virsh("destroy", guest.name)
    virsh("start", guest.name, "--paused")
    assert_reconciled(lambda: placed(qemu_of(libvirt, guest)))
    assert_origin(server, f"guest-started {guest.uuid} started: booted")


def test_a_guest_that_started_before_pinner_is_placed(libvirtd, libvirt, start_guest):
    """The host boots, and libvirt or Nova resumes the guests free_before pinner starts."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as folder:
        first, second = start_guest(persistent=True), start_guest(persistent=True)
        with policy_server(Path(folder), libvirtd, config=RARE_RESYNC) as server:
            server.policy("enforce", [first.name, second.name])
            server.wait_reconciled()
            runs = len(server.runs())
        private_libvirt.virsh(libvirtd, "destroy", second.name)
        private_libvirt.virsh(libvirtd, "start", second.name, "--paused")
        with policy_server(Path(folder), libvirtd, config=RARE_RESYNC) as server:
            roles, pid = server.roles(), qemu_of(libvirt, second)
            assert_reconciled(lambda: guest_on(pid, roles["emulator"], roles["vcpu"]))
            assert_origin(server, "started", runs)
            server.policy("observe", [])
        # The next tests' pinner has not placed these guests, so it respects their pins as an operator's.
        for guest in (first, second):
            private_libvirt.virsh(libvirtd, "destroy", guest.name)


def test_an_event_through_the_api_causes_a_reconcile(server, guest, placed, daemon):
    is_restored = misplace(daemon)
    assert post_event(server, "started", guest, "instance.reboot.end")["known"] is True
    assert_reconciled(is_restored)
    assert_origin(server, f"guest-event {guest.uuid} instance.reboot.end, reported by nova req-7")
    record = next(record for record in server.audit() if record["action"] == "guest.event")
    assert record["subject"] == f"guest {guest.uuid}: instance.reboot.end, reported by nova req-7"
    assert (record["actor"], record["result"]) == (pwd.getpwuid(os.geteuid()).pw_name, "known")


def test_an_event_causes_no_run_in_mode_observe(server, guest, placed, daemon):
    server.policy("observe", [guest.name], [daemon.name])
    is_restored = misplace(daemon)
    runs = len(server.runs())
    post_event(server, "started", guest, "instance.reboot.end")
    time.sleep(1)
    assert not is_restored()
    assert len(server.runs()) == runs


def test_a_guest_whose_migration_is_cancelled_is_placed_again(server, guest, placed):
    answer = post_event(server, "leaving", guest, "instance.live_migration_pre.start")
    assert free(guest.pid)
    assert server.http.get(f"/runs/{answer['run']}").json()["run"]["kind"] == "release"
    post_event(server, "leaving", guest, "instance.live_migration_pre.start")
    time.sleep(1)
    assert free(guest.pid)
    assert server.drift()["drifts"] == []
    post_event(server, "started", guest, "instance.live_migration_rollback.end")
    assert_reconciled(placed)
    assert_origin(server, "instance.live_migration_rollback.end")


def test_a_leaving_guest_gets_only_cpus_of_the_destination(server, guest, placed, virsh):
    """The pins in the guest's XML name only CPUs of the destination."""
    post_event(server, "leaving", guest, "instance.live_migration_pre.start", cpus=str(ONLINE[0]))
    assert guest_on(guest.pid, ONLINE[0], ONLINE[0])
    pins = virsh("dumpxml", guest.name).partition("<cputune>")[2].partition("</cputune>")[0]
    assert pins.count("cpuset='") == pins.count(f"cpuset='{ONLINE[0]}'") > 0


@pytest.mark.skipif(bool(private_rabbit.missing()), reason=private_rabbit.missing())
@pytest.mark.slow("a broker that is away")
def test_notifications_of_nova_cause_reconciles(server, guest, placed, daemon, tmp_path):
    def notify(name):
        sample = samples.OWN.load(name)
        sample["payload"]["nova_object.data"] |= {"uuid": guest.uuid, "host": server.host}
        sample["timestamp"] = samples.now()
        publish(rabbit.url, sample)

    with (
        private_rabbit.private_rabbit(tmp_path / "r") as rabbit,
        listening(tmp_path / "l", rabbit.url, server.url) as listener,
    ):
        listener.wait_for("listening")
        is_restored = misplace(daemon)
        notify("create-end")
        assert_reconciled(is_restored)
        assert_origin(server, f"guest-event {guest.uuid} instance.create.end, reported by nova req-")
        guests = server.http.get(f"/hosts/{server.host}/guests").json()["items"]
        (nova,) = [each["nova"] for each in guests if each["uuid"] == guest.uuid]
        assert (nova["flavor"], nova["extra_specs"]) == (samples.OWN.nova.flavor, samples.OWN.nova.extra_specs)
        notify("live_migration_pre-start")
        assert_reconciled(lambda: free(guest.pid))
        notify("live_migration_rollback-end")
        assert_reconciled(placed)
        rabbit.kill()
        is_restored = misplace(daemon)
        rabbit.start()
        listener.wait_for("Reconnected", 60)
        time.sleep(1)
        notify("reboot-end")
        assert_reconciled(is_restored)
    assert listener.quarantined() == []
