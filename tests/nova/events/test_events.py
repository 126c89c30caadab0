"""Every event that pinner acts on, emitted by Nova's own code through a real broker.

The listener delivers it to the real service, whose host is in memory and causes no other events.
"""

import json
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot
from support.nova.nova_listener import listening, until
from support.server.access import make_control
from support.server.unix_http import served

from pinner import conf, wiring
from pinner.api.app import create_app
from pinner.model.page import PageRequest
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.nova.broker.notification import KIND_OF_ACTION
from pinner.service.reconcile.controller import PolicyController

ANN = Caller("ann", "here", "req-1")
HOST = "compute1"
GUEST = "00000000-0000-4000-8000-000000000001"
STARTED = sorted(action for action, kind in KIND_OF_ACTION.items() if kind == "started")
FREE, PLACED = {"0-15"}, {"2-3", "4-15"}


@pytest.fixture
def emit(emit):
    return partial(emit, publisher=HOST, host=HOST, uuid=GUEST)


class Pinner:
    """The service, its host and the listener."""

    def __init__(self, service, agent, listener):
        self.service, self.agent, self.listener = service, agent, listener

    def masks(self):
        (found,) = self.agent.snapshot(0).guests
        return {str(thread.affinity) for thread in (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))}

    def wait_until_idle(self):
        """Wait until the controller has handled all events and observes the host no more."""
        observations = -1
        while observations != len(self.agent.host.samples):
            observations = len(self.agent.host.samples)
            time.sleep(1.0)

    def restart(self):
        """Restart the guest, as Nova does: its threads are new and may run on all CPUs."""
        (found,) = self.agent.host.taken.guests

        def restarted(thread):
            return replace(thread, started=thread.started + 1)

        vcpus = tuple(replace(vcpu, thread=restarted(vcpu.thread)) for vcpu in found.vcpus)
        emulator = replace(found.emulator, threads=tuple(map(restarted, found.emulator.threads)))
        self.agent.host.taken = replace(self.agent.host.taken, guests=(replace(found, vcpus=vcpus, emulator=emulator),))

    def runs(self):
        return self.service.runs(HOST, PageRequest(500)).items

    def guest_events(self):
        records = self.service.audit(HOST, None, None, PageRequest(500)).items
        return [record for record in records if record.action == "guest.event"]

    @contextmanager
    def away(self):
        """The host without its guest."""
        taken, self.agent.host.taken = self.agent.host.taken, replace(self.agent.host.taken, guests=())
        yield
        self.agent.host.taken = taken

    def wait_for_event(self, event):
        until(lambda: any(event in record.subject for record in self.guest_events()), 10, lambda: self.listener.log)

    def wait_for(self, masks):
        until(lambda: self.masks() == masks, 10, lambda: (self.masks(), self.listener.log))


@pytest.fixture
def pinner(tmp_path, rabbit):
    agent = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, cpus("0-15"))]), wiring.now)
    config = conf.load([])
    with closing(agent.journal), ExitStack() as undo:
        parts = wiring.service_parts(config, {HOST: agent}, f"sqlite:///{tmp_path}/pinner.sqlite", undo)
        service = parts.service
        service.set_policy(HOST, Policy(mode="enforce"), ANN)
        controller = PolicyController(parts.reconciler, HOST, resync_seconds=600, measure_seconds=600)
        undo.callback(agent.event_queue.close)
        undo.callback(controller.stop)
        controller.start()
        url = undo.enter_context(served(create_app(service, control=make_control(), max_body_bytes=65536))).url
        listener = undo.enter_context(listening(tmp_path / "l", rabbit.url, url))
        listener.wait_for("listening")
        pinner = Pinner(service, agent, listener)
        pinner.wait_for(PLACED)
        yield pinner
        assert service.verify_audit().ok


def test_each_event_causes_one_run_with_the_right_placement(pinner, emit):
    for action in STARTED:
        pinner.restart()
        runs, events = len(pinner.runs()), len(pinner.guest_events())
        request = "req-00000000-0000-4000-8000-000000000007"
        emit(action, "start", request=request)
        emit(action, "end", request=request)
        pinner.wait_for(PLACED)
        emit(action, "end", request=request)
        until(lambda events=events: len(pinner.guest_events()) == events + 2, 10)
        pinner.wait_until_idle()
        (run,) = pinner.runs()[: len(pinner.runs()) - runs]
        assert run.origin.startswith(f"guest-event {GUEST} instance.{action}.end, reported by nova req-00000000-")
        assert run.actor == "policy"
        newest = pinner.guest_events()[0]
        assert newest.subject == (
            f"guest {GUEST}: instance.{action}.end, reported by nova req-00000000-0000-4000-8000-000000000007, user ann"
        )
        assert json.loads(newest.after)["extra_specs"] == {"pinner:strategy": "numa-local"}
    assert pinner.listener.quarantined() == []


def test_a_live_migration_releases_the_guest_and_places_it_on_arrival(pinner, emit):
    emit("live_migration_pre", "start", publisher="compute2")
    pinner.wait_for(FREE)
    emit("live_migration_pre", "end", publisher="compute2")
    emit("live_migration_post", "start")
    time.sleep(0.5)
    assert pinner.masks() == FREE
    assert pinner.service.observe(HOST, 0.0).guests[0].leaving
    with pinner.away():
        emit("live_migration_post", "end", host="compute2")
        pinner.wait_for_event("live_migration_post.end")
    assert not pinner.service.observe(HOST, 0.0).guests[0].leaving
    emit("live_migration_post_dest", "end")
    pinner.wait_for(PLACED)


def test_a_guest_is_placed_again_after_a_failed_live_migration(pinner, emit):
    emit("live_migration_pre", "start", publisher="compute2")
    pinner.wait_for(FREE)
    emit("live_migration_rollback", "end")
    pinner.wait_for(PLACED)
    assert [run.kind for run in pinner.runs()[:2]] == ["apply", "release"]


def test_the_nova_identity_is_deleted_with_the_guest(pinner, emit):
    emit("create", "end")
    until(lambda: pinner.service.observe(HOST, 0.0).guests[0].nova, 10)
    assert pinner.service.observe(HOST, 0.0).guests[0].nova.flavor == "pinned.small"
    with pinner.away():
        emit("delete", "end")
        pinner.wait_for_event("delete.end")
    assert pinner.service.observe(HOST, 0.0).guests[0].nova is None


def test_events_of_unknown_hosts_and_guests_are_quarantined(pinner, emit):
    emit("create", "end", host="elsewhere")
    emit("create", "end", uuid=GUEST.replace("1", "9"))
    until(lambda: len(pinner.listener.quarantined()) == 2, 10)
    assert {line["why"].partition(":")[0] for line in pinner.listener.quarantined()} == {
        "host",
        f"{GUEST.replace('1', '9')} is no guest of host {HOST}",
    }


def test_events_arrive_after_the_broker_was_killed(pinner, emit, rabbit):
    rabbit.kill()
    rabbit.start()
    pinner.listener.wait_for("Reconnected", 60)
    time.sleep(1)
    pinner.restart()
    emit("reboot", "end")
    pinner.wait_for(PLACED)
