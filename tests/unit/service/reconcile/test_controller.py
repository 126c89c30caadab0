"""PolicyController: reconciles after host events, once for a burst, and without keeping a CPU busy.

The Reconciler behind it is a list of calls, which can fail at chosen moments; the event queue is the real one. The
last test uses the real Reconciler.
"""

import threading
import time
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.kept_policies import running_controller
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import NOON, make_change

from pinner.model.change import Target
from pinner.model.errors import HostUnreachable
from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import Request
from pinner.model.policy import Drift, DriftReport, Policy
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts
from pinner.service.reconcile import controller as controller_module
from pinner.service.reconcile.controller import PolicyController
from pinner.store.repositories import open_store

CHANGE = make_change(100)
IN_BACKOFF = Drift(CHANGE.target, CHANGE.after, CHANGE.before, "unknown", backoff_until=NOON + timedelta(seconds=3600))


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(controller_module, "FIRST_RETRY", 0.02)


def test_reconciles_at_the_start_and_after_an_event(policies):
    with running_controller(policies):
        policies.wait(1)
        policies.event_queue.publish("guest-started", "uuid-1", "booted")
        assert policies.wait(2) == ["started", "guest-started uuid-1 booted"]


def test_the_host_is_reconciled_soon_again_until_a_migration_has_ended(policies, monkeypatch):
    """libvirt reports no end of a migration that was cancelled."""
    monkeypatch.setattr(controller_module, "MIGRATING_SECONDS", 0.02)
    policies.migrating = ("web",)
    with running_controller(policies):
        assert policies.wait(3) == ["started", "resync", "resync"]
        policies.migrating = ()
        time.sleep(0.1)
        count = len(policies.reconciles)
        time.sleep(0.2)
        assert len(policies.reconciles) == count


def test_a_burst_of_events_leads_to_one_reconcile(policies):
    with running_controller(policies):
        policies.wait(1)
        for number in range(20):
            policies.event_queue.publish("process-started", str(number), "daemon")
        causes = policies.wait(2)
        time.sleep(0.1)
    assert len(policies.reconciles) == 2
    assert causes[1] == "process-started 0 daemon; process-started 1 daemon; process-started 2 daemon; and 17 more"


@pytest.mark.parametrize("kind", ["guest-stopped", "guest-paused"])
def test_a_stopped_guest_leads_to_no_reconcile(policies, kind):
    with running_controller(policies):
        policies.wait(1)
        policies.event_queue.publish(kind, "1")
        time.sleep(0.15)
        assert len(policies.reconciles) == 1
        policies.event_queue.publish("lost", "")
        assert policies.wait(2)[-1] == "lost"


def test_a_stopped_guest_leads_to_a_reconcile_where_a_guest_is_unplaced(policies):
    policies.unplaced = (LeftOut(Target("guest", "1", None, "g1"), "no room"),)
    with running_controller(policies):
        policies.wait(1)
        policies.event_queue.publish("guest-stopped", "1")
        assert policies.wait(2)[-1] == "guest-stopped 1"


def test_resyncs_without_any_event(policies):
    with running_controller(policies, resync=0.05):
        assert set(policies.wait(5)[1:]) == {"resync"}


def test_reconciles_again_when_a_backoff_ends(policies):
    policies.drifts = (replace(IN_BACKOFF, backoff_until=NOON + timedelta(seconds=0.05)),)
    with running_controller(policies):
        assert policies.wait(4) == ["started", "resync", "resync", "resync"]


def test_a_long_backoff_waits_at_most_for_the_next_resync(policies):
    policies.drifts = (IN_BACKOFF,)
    with running_controller(policies, resync=0.05):
        policies.wait(4)


def test_a_policy_that_cannot_be_kept_is_tried_again_after_doubling_waits(policies, caplog):
    """No event tells that the obstacle has ended: a claim on CPUs, for instance."""
    policies.error = "housekeeping: no CPU is left"
    with running_controller(policies):
        assert set(policies.wait(5)[1:]) == {"resync"}
        policies.error = ""
        count = len(policies.reconciles)
        policies.wait(count + 1)
        time.sleep(0.3)
        assert len(policies.reconciles) <= count + 2, "a policy that is kept waits for the next resync"
    assert caplog.text.count("housekeeping: no CPU is left") == 1, "an obstacle that goes on is logged once"


def test_measures_cpu_use_periodically(policies):
    with running_controller(policies, measure=0.05):
        policies.wait(5)
    assert ("measured resync", True) in policies.reconciles


def test_a_measured_resync_counts_like_any_other(policies, monkeypatch):
    """The backoff that it begins ends in time, and the metrics have it."""
    noted = []

    class Metrics:
        def reconciled(self, report: DriftReport, seconds: float | None) -> None:
            noted.append((len(report.drifts), seconds))

        def reconcile_failed(self, host: str) -> None:
            pass

        def policy_deleted(self, host: str) -> None:
            pass

    controller = PolicyController(policies, "h1", resync_seconds=60.0, measure_seconds=0.3, metrics=Metrics())
    controller.start()
    try:
        policies.wait(1)
        policies.drifts = (replace(IN_BACKOFF, backoff_until=NOON + timedelta(seconds=0.02)),)
        assert policies.wait(3)[1:] == ["measured resync", "resync"]
    finally:
        controller.stop()
    assert [drifts for drifts, _ in noted][:2] == [0, 1]
    assert [seconds is None for _, seconds in noted][:3] == [False, True, False], "its sample is no latency"


def test_a_policy_that_was_deleted_and_set_again_is_followed_at_once(policies):
    with running_controller(policies):
        policies.wait(1)
        wanted, policies.wanted = policies.wanted, None
        time.sleep(0.2)
        policies.wanted = wanted
        assert policies.wait(2)[-1] == "policy set"


def test_a_host_without_a_policy_is_not_reconciled(policies):
    policies.wanted = None
    with running_controller(policies, resync=0.01, measure=0.01):
        policies.event_queue.publish("guest-started", "uuid-1")
        time.sleep(0.2)
        assert policies.reconciles == []
        policies.wanted = Policy()
        policies.wait(1)


def test_a_policy_that_is_set_later_is_followed(policies):
    with running_controller(policies):
        policies.wait(1)
        policies.wanted = Policy(Request("numa-local"), "enforce")
        assert policies.wait(2)[-1] == "policy set"


@pytest.mark.parametrize("first", [None, Policy()])
def test_a_new_policy_is_followed_at_once_where_the_agent_publishes_it(policies, monkeypatch, first):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 60.0)
    policies.wanted = first
    with running_controller(policies):
        reconciles = 0 if first is None else 1
        policies.wait(reconciles)
        policies.wanted = Policy(Request("numa-local"), "enforce")
        policies.event_queue.publish("policy-set", "")
        policies.wait(reconciles + 1, 1.0)
        policies.event_queue.publish("policy-set", "")
        time.sleep(0.15)
        assert len(policies.reconciles) == reconciles + 1, "the same policy, set again"
        policies.event_queue.close()


@pytest.mark.parametrize("error", [HostUnreachable("h1", "no answer"), ZeroDivisionError("a fault of ours")])
def test_a_failure_is_retried_after_doubling_waits(policies, error, caplog):
    policies.failures = [error] * 4
    with running_controller(policies):
        policies.wait(5)
        policies.event_queue.publish("guest-started", "uuid-1")
        policies.wait(6)
    assert str(error) in caplog.text
    waits = [record.args[1] for record in caplog.records if "next attempt in" in record.msg]
    assert waits == [0.02, 0.04, 0.08, 0.16]


def test_an_event_whose_reconcile_failed_is_not_lost(policies):
    with running_controller(policies):
        policies.wait(1)
        policies.failures = [HostUnreachable("h1", "no answer")]
        policies.event_queue.publish("guest-started", "uuid-1")
        assert policies.wait(4) == ["started", "guest-started uuid-1", "resync", "guest-started uuid-1"]


def test_waiting_for_events_does_not_poll(policies, monkeypatch):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 5.0)
    with running_controller(policies):
        policies.wait(1)
        polls = policies.polls
        time.sleep(0.5)
        assert policies.polls - polls <= 1


def test_a_restarted_daemon_and_a_moved_guest_are_reconciled_without_a_poll(tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 600.0)
    everywhere = cpus("0-15")
    host = snapshot(plain(16), [guest(1, 2, everywhere)], [process(500, 50.0, "0-15", name="daemon")])
    at = [NOON]

    def now():
        at[0] += timedelta(milliseconds=1)
        return at[0]

    agent = HostedAgent(tmp_path / "agent", host, now)
    agent.host.needs_sample = True
    with (
        open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store,
        closing(agent.journal),
        closing(ServiceParts({"compute1": agent}, store, now, lambda: uuid.uuid4().hex[:12], 5.0)) as parts,
    ):
        parts.service.set_policy("compute1", Policy(mode="enforce"), Caller("ann", "cli", "req-1"))
        controller = PolicyController(parts.reconciler, "compute1", resync_seconds=600, measure_seconds=600)
        controller.start()
        until(lambda: agent.host.kernel().get(500) == "0-1")
        until(lambda: agent.event_queue.watched == {"daemon"})

        again = replace(process(900, 50.0, "0-15", name="daemon"), started=77)
        agent.host.taken = replace(agent.host.taken, processes=(again,))
        agent.event_queue.publish("process-started", "900", "daemon")
        until(lambda: agent.host.kernel().get(900) == "0-1")

        agent.host.move(11_010, "3")
        agent.event_queue.publish("guest-changed", "uuid", "vcpupin")
        until(lambda: agent.host.mask(11_010) == "4-15")
        controller.stop()
        agent.event_queue.close()
        until(lambda: not any(each.name == "controller-events" for each in threading.enumerate()))


def until(so) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end
        time.sleep(0.005)
