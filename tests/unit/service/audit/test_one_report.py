"""Each event of a run is one report, and one record in both trails: verify then says intact, whatever happens."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from support.fakes.snapshot_host import Killed
from support.hosts import guest
from support.store.trail import ANN, Installation
from support.values import NOON, busy_plan, busy_process, cpus, make_snapshot

from pinner.model.errors import NotPermitted, PinnerError
from pinner.model.page import PageRequest
from pinner.model.run.audit import AuditAction
from pinner.model.run.journal import ApplyOptions
from pinner.planning.request.processes import process_target
from pinner.service.audit import audit_trail

pytestmark = pytest.mark.fault(67)

PROCESSES = tuple(busy_process(pid, f"daemon{pid}") for pid in (900, 910, 920))
DAEMONS = tuple(map(process_target, PROCESSES))


@pytest.fixture
def installed(tmp_path, monkeypatch, empty):
    monkeypatch.setattr(audit_trail, "RECHECK_SECONDS", 0.0)
    installation = Installation(tmp_path / "one", empty)
    start(installation)
    apply(installation, "0")  # the agent vouches for the centre's records after the first head that it has seen
    installation.exchange()
    yield installation
    installation.stop()


def start(installed, guests=()):
    """Start each daemon that does not run, and these guests."""
    host = installed.agent.host
    running = {process_target(each): each for each in host.taken.processes if host.threads.get(process_target(each))}
    daemons = tuple(running.get(target, each) for target, each in zip(DAEMONS, PROCESSES, strict=True))
    host.taken = replace(host.taken, processes=daemons, guests=guests)


def apply(installed, after="1", targets=DAEMONS, options=ApplyOptions()):  # noqa: B008
    """The state of a run that moves each target, by default each daemon, to its CPU."""
    host = installed.agent.host
    for target in targets:
        host.threads.setdefault(target, [])
    installed.plans += 1
    basis = installed.store.snapshots.add(make_snapshot())
    plan = busy_plan(f"plan-{installed.plans}", basis, (host.change(target, after) for target in targets))
    installed.store.plans.add(plan, NOON)
    return ended(installed, installed.service.apply(plan.id, options, ANN))


def ended(installed, run):
    list(installed.service.follow(run.id))
    return installed.service.run(run.id)


def end(installed, daemon):
    """The process ends; the agent's inventory knows it."""
    host = installed.agent.host
    host.taken = replace(host.taken, processes=tuple(p for p in host.taken.processes if process_target(p) != daemon))
    host.threads[daemon] = []


def reports(installed):
    """How many records each trail has of each change of a run in one state."""
    part = PageRequest(500, None)
    centre = installed.store.audit.list(None, None, None, part).items
    agent = installed.agent.audit_records(0, 1000)
    yield Counter((each.subject, each.result) for each in centre if each.action == AuditAction.RUN_CHANGE)
    yield Counter((f"{each.run}: {each.target}", each.result) for each in agent if each.action == "run.change")


@pytest.mark.parametrize("gone", DAEMONS, ids=("first", "second", "third"))
def test_a_process_that_ended_between_plan_and_apply_is_one_record_in_both_trails(installed, gone):
    end(installed, gone)
    assert apply(installed).state == "applied"
    assert installed.verify().findings == ()
    centre, agent = reports(installed)
    assert centre == agent
    assert set(agent.values()) == {1}
    assert sum("gone" in result for _, result in agent) == 1


def test_a_run_of_ended_processes_alone_is_intact(installed):
    for daemon in DAEMONS:
        end(installed, daemon)
    apply(installed)
    assert installed.verify().findings == ()
    centre, agent = reports(installed)
    assert centre == agent
    assert set(agent.values()) == {1}


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_each_part_of_a_guest_that_cannot_be_read_is_one_record_in_both_trails(installed, all_or_nothing):
    every = cpus("0-3")
    guests = (guest(1, 1, every), guest(2, 3, every, unread="no answer"))
    start(installed, guests)
    parts = [target for each in guests for target in each.threads_by_target if target.kind == "vcpu"]
    end(installed, DAEMONS[2])
    run = apply(installed, targets=(*parts, *DAEMONS), options=ApplyOptions(all_or_nothing=all_or_nothing))
    assert run.state == ("undone" if all_or_nothing else "applied_partly")
    assert installed.verify().findings == ()
    centre, agent = reports(installed)
    assert centre == agent
    assert set(agent.values()) == {1}
    of_run = {subject: result for subject, result in agent if subject.startswith(run.id)}
    assert sum(result.startswith("failed") for result in of_run.values()) == len(parts) - 1
    assert sum(result.startswith("gone") for result in of_run.values()) == 1
    assert len(of_run) == len(parts) + len(DAEMONS)


class Story:
    """Random events of a host and its runs, the same for the same seed."""

    def __init__(self, installed, seed):
        self.installed = installed
        self.chance = random.Random(seed)
        self.failing = 0.0
        self.dead = False
        self.host.before_write = self.write

    @property
    def host(self):
        return self.installed.agent.host

    def write(self, _write):
        """A write fails, or the agent's process dies at it, and writes nothing more."""
        if self.dead or self.chance.random() < self.failing:
            self.dead = self.dead or self.chance.random() < 0.3
            raise Killed if self.dead else NotPermitted("affinity", "EPERM")

    def tell(self):
        event = self.chance.choice(
            [
                partial(end, self.installed, self.chance.choice(DAEMONS)),
                self.end_unseen,
                self.start_again,
                *[self.apply] * 4,
                *[self.roll_back] * 3,
                self.roll_all_back,
                self.installed.exchange,
            ]
        )
        self.failing = self.chance.choice((0.0, 0.0, 0.2, 0.6))
        with suppress(PinnerError):  # refused: the run cannot be rolled back any more, or the agent has died
            event()
        self.failing, self.dead = 0.0, False
        self.installed.agent._recovery = self.chance.choice(("back", "forward"))
        self.installed.agent.recover()
        for run in self.runs():
            self.installed.service.run(run.id)  # a reader copies what the journal has

    def runs(self):
        return self.installed.service.runs(None, PageRequest(500, None)).items

    def end_unseen(self):
        """The process ends after the agent has taken its inventory."""
        self.host.threads[self.chance.choice(DAEMONS)] = []

    def start_again(self):
        start(self.installed)

    def apply(self):
        if any(self.host.threads.get(daemon) for daemon in DAEMONS):
            apply(self.installed, str(self.chance.randrange(4)))

    def roll_back(self):
        if runs := self.runs():
            ended(self.installed, self.installed.service.rollback(self.chance.choice(runs).id, ANN))

    def roll_all_back(self):
        ended(self.installed, self.installed.service.rollback_all("h1", ANN))


@pytest.mark.parametrize("seed", range(6))
def test_a_random_story_ends_with_an_intact_trail(installed, seed):
    story = Story(installed, seed)
    for _ in range(12):
        story.tell()
    assert installed.verify().findings == ()
    centre, agent = reports(installed)
    assert set(agent.values()) == {1}
    assert set(centre.values()) == {1}
    assert centre.keys() <= agent.keys()
