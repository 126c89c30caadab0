"""What Nova does to a guest, done by a real libvirtd as Nova has it done, and told by Nova's own code over a real
broker."""

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path

import private_libvirt
import pytest
from support.keeping import guest_on, keeping_afresh, wait_until
from support.listening import listening
from support.live import ONLINE

from pinner.host.libvirt import Libvirt

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.skipif(len(ONLINE) != 2, reason="needs two CPUs: one for housekeeping, the other for guests"),
]

NAME = f"nova-{os.getpid()}"
SOON = 3.0


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory):
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "d") as uri:
        private_libvirt.define_guest(uri, private_libvirt.guest_xml(NAME, vcpus=2), paused=True)
        yield uri


@pytest.fixture(scope="module")
def virsh(libvirtd):
    return partial(private_libvirt.virsh, libvirtd)


@pytest.fixture
def seen(libvirtd):
    """The guest as it is."""
    return lambda: Libvirt(libvirtd).guests(Path("/"))[0]


@pytest.fixture(scope="module")
def kept(libvirtd, rabbit, tmp_path_factory):
    """A server, told by a listener; there is no sweep."""
    config = "[policy]\nsweep_seconds = 600\nmeasure_seconds = 600\n[host]\nsample_seconds = 0.1\n"
    with keeping_afresh(libvirtd, config) as kept:
        server = str(kept.http.base_url).partition("/v1")[0]
        with listening(tmp_path_factory.mktemp("listener"), rabbit.url, server) as listener:
            listener.wait_for("listening")
            kept.policy("enforce", [NAME])
            yield kept
            assert listener.quarantined() == []


@pytest.fixture
def placed(kept, seen):
    """Whether the guest is where the policy wants it; it is, now."""

    def placed():
        roles = kept.roles()
        return bool(roles) and guest_on(seen().pid, roles["emulator"], roles["vcpu"])

    def settled():
        time.sleep(0.5)
        return placed() and not kept.drift()["drifts"]

    assert wait_until(settled, 60) < 60, (kept.drift(), kept.log.read_text())
    return placed


def restart(virsh, guest):
    virsh("destroy", NAME)
    virsh("start", NAME, "--paused")


def define_anew(virsh, guest):
    virsh("destroy", NAME)
    virsh("undefine", NAME)
    size = len(guest.vcpus) % 3 + 1
    xml = private_libvirt.guest_xml(NAME, vcpus=size, extra=f"<uuid>{guest.uuid}</uuid>")
    virsh("define", "/dev/stdin", stdin=xml)
    virsh("start", NAME, "--paused")


def save_and_start(virsh, guest):
    virsh("managedsave", NAME)
    virsh("start", NAME, "--paused")


def reset(virsh, guest):
    virsh("resume", NAME)
    virsh("reset", NAME)


def pause_and_resume(virsh, guest):
    virsh("resume", NAME)
    virsh("suspend", NAME)
    virsh("resume", NAME)


@pytest.mark.parametrize(
    ("action", "done"),
    [
        pytest.param("create", define_anew, id="create"),
        pytest.param("reboot", restart, id="hard-reboot"),
        pytest.param("reboot", reset, id="soft-reboot"),
        pytest.param("power_on", restart, id="power-off-and-on"),
        pytest.param("resize_finish", define_anew, id="resize"),
        pytest.param("resize_revert", define_anew, id="resize-revert"),
        pytest.param("rebuild", define_anew, id="rebuild"),
        pytest.param("rescue", define_anew, id="rescue"),
        pytest.param("unshelve", define_anew, id="unshelve"),
        pytest.param("resume", save_and_start, id="suspend-and-resume"),
        pytest.param("unpause", pause_and_resume, id="pause-and-unpause"),
    ],
)
def test_it_is_back_in_place_and_moved_once(kept, placed, seen, virsh, emit, action, done):
    guest, before = seen(), len(kept.runs())
    tell = partial(emit, action, publisher=kept.host, host=kept.host, uuid=guest.uuid)
    tell("start")
    done(virsh, guest)
    tell("end")
    tell("end")
    took = wait_until(placed, 20)
    assert took < SOON, f"back after {took:.3f} s"
    event = (
        f"guest {guest.uuid}: instance.{action}.end, told by nova req-00000000-0000-4000-8000-000000000007, user ann"
    )
    assert wait_until(lambda: told(kept)[:2] == [event, event], 10) < 10, told(kept)
    time.sleep(1)
    assert placed()
    runs = kept.runs()
    new = runs[: len(runs) - before]
    assert {(run["actor"], run["state"]) for run in new} <= {("policy", "applied")}
    assert all(guest.uuid in run["origin"] for run in new)
    moved = Counter((it["kind"], it["owner"], it["part"]) for run in new for it in kept.changes(run["id"]))
    assert set(moved.values()) <= {1}
    assert {owner for _, owner, _ in moved} <= {guest.uuid}
    again = seen().pid != guest.pid
    assert again is (done not in (reset, pause_and_resume))
    assert bool(new) is again or done is save_and_start


def told(kept):
    """The guest events in the audit trail, newest first."""
    found = kept.http.get("/audit", params={"limit": 500}).json()["items"]
    return [record["subject"] for record in found if record["action"] == "guest.event"]
