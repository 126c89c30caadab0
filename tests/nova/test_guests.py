"""What Nova does to a guest, done by a real libvirtd as Nova has it done, and told by Nova's own code over a real
broker."""

import os
import time
from collections import Counter
from functools import partial

import private_libvirt
import pytest
from support.nova_listener import listening
from support.policy_host import RARE_RESYNC, fresh_policy_server, guest_on, wait_until
from support.real_guests import ONLINE

from pinner.host.libvirt import Libvirt
from pinner.host.live import ROOT

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


@pytest.fixture
def seen(libvirtd):
    """The guest as it is."""
    return lambda: Libvirt(libvirtd).guests(ROOT)[0]


@pytest.fixture(scope="module")
def kept(libvirtd, rabbit, tmp_path_factory):
    """A server, told by a listener; there is no sweep."""
    with (
        fresh_policy_server(libvirtd, RARE_RESYNC) as kept,
        listening(tmp_path_factory.mktemp("listener"), rabbit.url, kept.url) as listener,
    ):
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

    kept.wait_settled(placed)
    return placed


@pytest.fixture
def do(libvirtd):
    """Do what libvirt is told at an action: virsh's commands, and ``define``, which starts the guest from new XML with
    another number of vCPUs."""

    def do(steps, guest):
        for step in steps:
            if step == "define":
                size = len(guest.vcpus) % 3 + 1
                xml = private_libvirt.guest_xml(NAME, vcpus=size, extra=f"<uuid>{guest.uuid}</uuid>")
                private_libvirt.define_guest(libvirtd, xml, paused=True)
            else:
                private_libvirt.virsh(libvirtd, step, NAME, *(["--paused"] if step == "start" else []))

    return do


ANEW = "destroy undefine define"
RESTART = "destroy start"


@pytest.mark.parametrize(
    ("action", "steps"),
    [
        pytest.param("create", ANEW, id="create"),
        pytest.param("reboot", RESTART, id="hard-reboot"),
        pytest.param("reboot", "resume reset", id="soft-reboot"),
        pytest.param("power_on", RESTART, id="power-off-and-on"),
        pytest.param("resize_finish", ANEW, id="resize"),
        pytest.param("resize_revert", ANEW, id="resize-revert"),
        pytest.param("rebuild", ANEW, id="rebuild"),
        pytest.param("rescue", ANEW, id="rescue"),
        pytest.param("unshelve", ANEW, id="unshelve"),
        pytest.param("resume", "managedsave start", id="suspend-and-resume"),
        pytest.param("unpause", "resume suspend resume", id="pause-and-unpause"),
    ],
)
def test_it_is_back_in_place_and_moved_once(kept, placed, seen, emit, do, action, steps):
    guest, before = seen(), len(kept.runs())
    tell = partial(emit, action, publisher=kept.host, host=kept.host, uuid=guest.uuid)
    tell("start")
    do(steps.split(), guest)
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
    assert again is ("start" in steps or "define" in steps)
    assert bool(new) is again or "managedsave" in steps


def told(kept):
    """The guest events in the audit trail, newest first."""
    return [record["subject"] for record in kept.audit() if record["action"] == "guest.event"]
