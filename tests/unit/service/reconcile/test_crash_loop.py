"""A placed daemon that is started again and again, under an enforced policy."""

from dataclasses import replace
from datetime import timedelta

import pytest
from benchmarks.live.reconcile_latency import RESTARTS
from support.fakes.reconciled_host import ALL, ANN, HOST
from support.hosts import guest, process

from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import FREE_RESTARTS, Policy

DAEMON = replace(process(500, 50.0, "0-15", name="looping"), unit="looping.service")

pytestmark = pytest.mark.fault(57)


def start(agent, number):
    """Another process of the daemon's service, on all CPUs. The former one has ended."""
    threads = tuple(replace(each, tid=1000 + number, started=100 + number, load=0.0) for each in DAEMON.threads)
    again = replace(DAEMON, pid=1000 + number, started=100 + number, load=0.0, threads=threads)
    agent.host.taken = replace(agent.host.taken, processes=(again,))


def enforced(service, reconciler, agent, monkeypatch):
    """The number of runs after the first reconcile of a policy; ten restarts of a process have no delay."""
    agent.host.taken = replace(agent.host.taken, processes=(DAEMON,))
    monkeypatch.setattr("pinner.model.policy.FREE_RESTARTS", 10)
    service.set_policy(HOST, Policy(Request(), "enforce"), ANN)
    reconciler.reconcile(HOST, "started", measured=True)
    return count(service)


def count(service):
    return len(service.runs(HOST, PageRequest(500)).items)


def test_its_runs_are_bounded_and_a_guest_is_placed_meanwhile(service, reconciler, agent, clock, monkeypatch):
    """One start each second: a run for each of them would write more than a gigabyte a day."""
    before = enforced(service, reconciler, agent, monkeypatch)
    for number in range(200):
        clock.at += timedelta(seconds=1)
        start(agent, number)
        report = reconciler.reconcile(HOST, "process-started")
    assert 10 <= count(service) - before <= 10 + 7, "after 5, 10, 20, 40 s, then each minute"
    (drift,) = report.drifts
    assert (drift.cause, drift.target.owner, drift.backoff_until is not None) == ("restarted", "1199", True)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(2, 1, ALL)))
    assert reconciler.reconcile(HOST, "guest-started").drifts == (drift,)
    assert {agent.host.mask(vcpu.thread.tid) for vcpu in agent.host.taken.guests[1].vcpus} == {"4-15"}
    clock.at += timedelta(minutes=1)
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.host.mask(1199) == "0-1"
    assert FREE_RESTARTS > RESTARTS, "the reconcile latency is measured without delays"


def test_its_runs_are_bounded_too_where_none_of_its_processes_can_be_placed(
    service, reconciler, agent, clock, monkeypatch
):
    """Each process sets its own affinity again, and then crashes."""
    before = enforced(service, reconciler, agent, monkeypatch)
    for number in range(200):
        clock.at += timedelta(seconds=1)
        start(agent, number)
        agent.host.failing = {str(1000 + number): "it sets its own affinity"}
        reconciler.reconcile(HOST, "process-started")
    assert 10 <= count(service) - before <= 10 + 7, "after 5, 10, 20, 40 s, then each minute"
