"""Nova's actions on a guest: a real libvirtd does what Nova requests, and Nova's own code emits the notifications
through a real broker."""

import os
import time
from collections import Counter
from functools import partial

import private_libvirt
import pytest
from support.nova.nova_listener import listening
from support.server.policy_host import RARE_RESYNC, fresh_policy_server, guest_on, wait_until

from pinner.host.live import ROOT
from pinner.host.virt.libvirt import Libvirt

pytestmark = [
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
    pytest.mark.needs("exactly_two_cpus"),
]

NAME = f"nova-{os.getpid()}"
LATENCY_LIMIT = 3.0
CONFIG = RARE_RESYNC + "[nova]\nignore_nova_conf = true\n"
"""The machine has guests of Nova and no configuration of Nova."""


@pytest.fixture(scope="module")
def libvirtd(tmp_path_factory):
    with private_libvirt.private_libvirtd(tmp_path_factory.mktemp("libvirt") / "d") as uri:
        private_libvirt.define_guest(uri, private_libvirt.guest_xml(NAME, vcpus=2), paused=True)
        yield uri


@pytest.fixture
def observe(libvirtd):
    """Reads the guest's current state."""
    return lambda: Libvirt(libvirtd).guests(ROOT)[0]


@pytest.fixture(scope="module")
def server(libvirtd, rabbit, tmp_path_factory):
    """A policy server that gets its events through a listener; its resync is rare."""
    with (
        fresh_policy_server(libvirtd, CONFIG) as server,
        listening(tmp_path_factory.mktemp("listener"), rabbit.url, server.url) as listener,
    ):
        listener.wait_for("listening")
        server.policy("enforce", [NAME])
        yield server
        assert listener.quarantined() == []


@pytest.fixture
def placed(server, observe):
    """A function that says whether the guest is placed as the policy wants; it is placed when the test begins."""

    def placed():
        roles = server.roles()
        return bool(roles) and guest_on(observe().pid, roles["emulator"], roles["vcpu"])

    server.wait_reconciled(placed)
    return placed


@pytest.fixture
def do(libvirtd):
    """Runs the steps that Nova requests of libvirt for an action: commands of virsh, and ``define``.

    ``define`` starts the guest from new XML with another number of vCPUs.
    """

    def do(steps, guest):
        for step in steps:
            if step == "define":
                size = len(guest.vcpus) % 3 + 1
                xml = private_libvirt.guest_xml(NAME, vcpus=size, extra=f"<uuid>{guest.uuid}</uuid>")
                private_libvirt.define_guest(libvirtd, xml, paused=True)
            else:
                private_libvirt.virsh(libvirtd, step, NAME, *(["--paused"] if step == "start" else []))

    return do


REDEFINE = "destroy undefine define"
RESTART = "destroy start"


@pytest.mark.parametrize(
    ("action", "steps"),
    [
        pytest.param("create", REDEFINE, id="create"),
        pytest.param("reboot", RESTART, id="hard-reboot"),
        pytest.param("reboot", "resume reset", id="soft-reboot"),
        pytest.param("power_on", RESTART, id="power-off-and-on"),
        pytest.param("resize_finish", REDEFINE, id="resize"),
        pytest.param("resize_revert", REDEFINE, id="resize-revert"),
        pytest.param("rebuild", REDEFINE, id="rebuild"),
        pytest.param("rescue", REDEFINE, id="rescue"),
        pytest.param("unshelve", REDEFINE, id="unshelve"),
        pytest.param("resume", "managedsave start", id="suspend-and-resume"),
        pytest.param("unpause", "resume suspend resume", id="pause-and-unpause"),
    ],
)
def test_the_guest_is_placed_again_and_moved_once(server, placed, observe, emit, do, action, steps):
    guest, before = observe(), len(server.runs())
    request = "req-00000000-0000-4000-8000-000000000007"
    notify = partial(emit, action, publisher=server.host, host=server.host, uuid=guest.uuid, request=request)
    notify("start")
    do(steps.split(), guest)
    notify("end")
    notify("end")
    took = wait_until(placed, 20)
    assert took < LATENCY_LIMIT, f"reconciled after {took:.3f} s"
    source = f"nova {request}, user ann"
    event = f"guest {guest.uuid}: instance.{action}.end, reported by {source}"
    assert wait_until(lambda: guest_events(server)[:2] == [event, event], 10) < 10, guest_events(server)
    time.sleep(1)
    assert placed()
    runs = server.runs()
    new = runs[: len(runs) - before]
    assert {(run["actor"], run["state"]) for run in new} <= {("policy", "applied")}
    assert all(guest.uuid in run["origin"] for run in new)
    moved = Counter((it["kind"], it["owner"], it["part"]) for run in new for it in server.changes(run["id"]))
    assert set(moved.values()) <= {1}
    assert {owner for _, owner, _ in moved} <= {guest.uuid}
    restarted = observe().pid != guest.pid
    assert restarted is ("start" in steps or "define" in steps)
    assert bool(new) is restarted or "managedsave" in steps


def guest_events(server):
    """The guest events in the audit trail, newest first."""
    return [record["subject"] for record in server.audit() if record["action"] == "guest.event"]
