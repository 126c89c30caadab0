"""Trails that nobody has manipulated, also of old versions and of runs under way: the verification finds nothing."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from support.store.trail import ANN
from support.values import NOON

from pinner.agent.trail import trail
from pinner.model.errors import NotFound
from pinner.model.run.audit import AuditAction, audit_event
from pinner.model.run.journal import ApplyOptions
from pinner.service.audit.audit_export import verify_file
from pinner.service.local import ServiceParts


def test_a_trail_that_nobody_touched_is_intact(used):
    found = used.verify()
    assert (found.result, found.ok, found.findings) == ("intact", True, ())
    assert (found.records, found.head) == (12, used.store.audit.head().hash)
    (agent,) = found.agents
    assert (agent.host, agent.records) == ("h1", agent.head.seq)
    assert agent.head.centre == used.store.audit.head()


def test_the_agents_trail_has_every_action_of_a_run(used):
    records = used.agent.audit_records(0, 1000)
    run = next(record.run for record in records if record.run)
    assert [(r.action, r.target, r.before, r.after, r.result, r.actor) for r in records if r.run == run] == [
        ("run.apply", "plan-1", "", "", "started", "ann"),
        ("run.change", "process busy (100)", "0-3 (2 threads)", "1", "done", "ann"),
        ("run.change", "process busy (110)", "0-3 (2 threads)", "2", "done", "ann"),
        ("run.end", "", "", "", "applied", "ann"),
    ]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert [record.previous for record in records[1:]] == [record.hash for record in records[:-1]]


def test_an_empty_trail_is_intact(pinner):
    assert pinner.verify().result == "intact"


def test_refused_runs_and_failed_runs_are_no_finding(used):
    used.refused()
    used.agent.host.break_at = len(used.agent.host.writes) + 3
    run = used.service.apply(used.plan().id, ApplyOptions(), ANN)
    list(used.service.follow(run.id))
    assert used.service.run(run.id).state == "undone"
    assert used.verify().result == "intact"


def test_a_run_under_way_is_no_finding(used):
    used.agent.host.gate = type(used.agent.host.gate)(1)
    run = used.service.apply(used.plan().id, ApplyOptions(), ANN)
    assert used.verify().result == "intact"
    assert used.service.run(run.id).state == "running"
    used.agent.host.gate.release(1000)
    list(used.service.follow(run.id))
    assert used.verify().result == "intact"


def test_a_captured_machine_has_no_trail(store):
    class Captured:
        def audit_head(self, _):
            raise NotFound("audit trail", "captured machine")

    parts = ServiceParts({"h1": Captured()}, store, lambda: NOON, lambda: "1", 0.0)
    with closing(parts):
        store.audit.append(audit_event(ANN, NOON, AuditAction.PLAN_CREATE, "h1", "plan-1", "ok"))
        found = parts.service.verify_audit()
        assert (found.result, found.records, found.agents) == ("intact", 1, ())
        with pytest.raises(NotFound):
            parts.service.audit_anchor()


@contextmanager
def repeated(*actions):
    """Repeat each action in a thread of its own."""
    ended = threading.Event()

    def repeat(action):
        while not ended.is_set():
            action()

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(repeat, action) for action in actions]
        try:
            yield
        finally:
            ended.set()
        for each in running:
            each.result()


@pytest.fixture
def unbounded_heads(monkeypatch):
    """The exchange goes on without a pause, many times as often as that of a server."""
    monkeypatch.setattr(trail, "MAX_HEADS", 1_000_000)


def test_runs_under_way_are_no_finding_of_a_verification_or_of_an_export(unbounded_heads, pinner, tmp_path):
    file = tmp_path / "trail.jsonl"
    with repeated(lambda: pinner.rollback(pinner.apply()), pinner.exchange):
        for _ in range(12):
            assert pinner.verify().findings == ()
            file.write_text("".join(pinner.service.export_audit()))
            key = json.loads(file.read_text().partition("\n")[0])["heads"][0]["key"]
            assert verify_file(file, key, None).findings == ()


class Door:
    """In place of the host's gate: a test sees that a run has come to it."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def acquire(self, timeout):
        self.reached.set()
        return self.opened.wait(timeout)


def test_a_run_that_begins_between_the_heads_of_an_export_is_no_finding(pinner, tmp_path, monkeypatch):
    """The agent's one new record was the run's begin, and the export took it for the centre's head."""
    pinner.apply()
    pinner.service.audit_anchor()
    pinner.agent.host.gate = door = Door()
    sign, signed, runs = pinner.agent.audit_head, [], []

    def sign_late(centre):
        if len(signed) == 1:
            runs.append(pinner.service.apply(pinner.plan().id, ApplyOptions(), ANN))
            assert door.reached.wait(60)
        signed.append(sign(centre))
        return signed[-1]

    monkeypatch.setattr(pinner.agent, "audit_head", sign_late)
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(pinner.service.export_audit()))
    door.opened.set()
    list(pinner.service.follow(runs[0].id))
    assert verify_file(file, signed[0].key, None).findings == ()


def test_records_that_an_agent_hears_of_between_the_heads_of_an_export_are_no_finding(pinner, tmp_path, monkeypatch):
    """The agent's one new record named a record of the centre that was younger than the export's last one."""
    pinner.apply()
    pinner.service.audit_anchor()
    sign, signed = pinner.agent.audit_head, []

    def sign_late(centre):
        if len(signed) == 1:
            pinner.store.audit.append(audit_event(ANN, NOON, AuditAction.PLAN_CREATE, "h1", "plan-9", "ok"))
            sign(pinner.store.audit.head())
        signed.append(sign(centre))
        return signed[-1]

    monkeypatch.setattr(pinner.agent, "audit_head", sign_late)
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(pinner.service.export_audit()))
    assert verify_file(file, signed[0].key, None).findings == ()
