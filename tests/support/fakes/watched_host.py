"""A host whose measures a test sets, under a policy that undoes what is worse."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.ring import Ring
from support.hosts import cpus, guest

from pinner.model.errors import HostUnreachable, RunConflict
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions

ANN = Caller("ann", "10.0.0.1", "req-1")

HOST = "compute1"

UNDOING = Policy(Request(), "enforce", undo_if_worse=True)

GUEST = guest(1, 2, cpus("0-15"))


class Load:
    """The history of a host. What the policy does adds ``worse_by`` to the delay of the guest."""

    def __init__(self, clock):
        self.worse_by = 0.0
        self.since = clock.at
        self.is_known = True
        self.known_since = clock.at - timedelta(days=1)
        self.others = {}
        """Other guests that become worse, too: UUID to the time since which they are."""

    def __call__(self, subject, series, at):
        noise = at.timestamp() // 5 * 7 % 5
        if not self.is_known or at <= self.known_since:
            return None
        if subject == GUEST.uuid and series == "delay_vcpu":
            return 20.0 + noise + (self.worse_by if at > self.since else 0.0)
        if subject in self.others and series == "delay_vcpu":
            return 20.0 + noise + (200.0 if at > self.others[subject] else 0.0)
        return noise


def enforced(parts, policy=UNDOING):
    """The run by which the policy places the host."""
    parts.service.set_policy(HOST, policy, ANN)
    parts.reconciler.reconcile(HOST, "started")
    return runs(parts)[0]


def runs(parts):
    return parts.service.runs(HOST, PageRequest()).items


def kinds(parts):
    return [run.kind for run in reversed(runs(parts))]


def passes(parts, clock, seconds):
    """The server works for a while: it reconciles, too."""
    for _ in range(0, seconds, 5):
        clock.at += timedelta(seconds=5)
        parts.outcomes.make_pass()
        wait_for_runs(parts)
        parts.reconciler.reconcile(HOST, "resync", measured=True)


def wait_for_runs(parts):
    for run in runs(parts):
        if run.state == "running":
            list(parts.service.follow(run.id))


def is_placed(agent):
    return str(agent.snapshot(0).guests[0].vcpus[0].thread.affinity) != "0-15"


def records(parts, *actions):
    found = parts.service.audit(None, None, None, PageRequest(200, direction="asc")).items
    return [each for each in found if each.action in actions]


def applied_again(parts, clock, agent, seconds=5):
    """The run by which the policy corrects what another program has moved."""
    passes(parts, clock, seconds)
    agent.host.move(GUEST.vcpus[0].thread.tid, "0-15")
    parts.reconciler.reconcile(HOST, "moved")
    wait_for_runs(parts)
    return runs(parts)[0]


def refuse_earlier_runs(parts, agent, monkeypatch):
    """Refuse the rollback of a run whose target a later run has changed again. A real agent does that where the later
    run has given the target other CPUs."""
    rollback = agent.rollback

    def targets(run):
        return {entry.change.target.key for entry in agent.entries(run)}

    def refusing(run, progress):
        since = parts.service.run(run.undoes).started_at
        for later in runs(parts):
            is_in_place = later.kind == "apply" and later.state == "applied" and later.started_at > since
            if is_in_place and targets(run.undoes) & targets(later.id):
                raise RunConflict(run.undoes, "applied", f"run {later.id} has changed a target again since")
        return rollback(run, progress)

    monkeypatch.setattr(agent, "rollback", refusing)


class Killed(BaseException):
    """The process ends here."""


def die(*_, **__):
    raise Killed


def killed_at(parts, clock, monkeypatch, owner, method):
    """The server dies when it calls a method for the first time."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, method, die)
        passes(parts, clock, 60)
    wait_for_runs(parts)


def unreachable(*_):
    raise HostUnreachable(HOST, "its agent does not answer")


def two_worse(parts, clock, load, agent):
    """Two runs of the policy. Both are found worse."""
    other = guest(7, 1, cpus("0-15"))
    agent.histories = Ring({GUEST.uuid: GUEST.name, other.uuid: other.name}, load)
    load.worse_by = 200.0
    first = enforced(parts)
    load.others[other.uuid] = clock.at + timedelta(seconds=10)
    passes(parts, clock, 10)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, other))
    parts.reconciler.reconcile(HOST, "guest-started")
    return first, runs(parts)[0]


def applied_by_a_person(parts):
    plan = parts.service.plan(HOST, Request(), None, 0.0, ANN)
    run = parts.service.apply(plan.id, ApplyOptions(watch_seconds=30, undo_if_worse=True), ANN)
    wait_for_runs(parts)
    return run
