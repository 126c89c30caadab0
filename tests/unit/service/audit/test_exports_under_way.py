"""Exports that are made while agents act and old records are removed. The verification of the file finds nothing, but
for what somebody has manipulated."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.store.forgery import copy, put_back
from support.store.trail import ANN, LATER
from support.values import NOON, busy_host

from pinner.model.errors import Busy, NotFound, StoreUnavailable
from pinner.model.run.agent_audit import AgentAction, AgentEvent
from pinner.model.run.audit import AuditAction, audit_event
from pinner.service.audit import audit_trail
from pinner.service.audit.audit_export import verify_file
from pinner.service.local import ServiceParts
from pinner.service.upkeep.retention import Limits, cut_chain
from pinner.store import retention

WEB = "00000000-0000-4000-8000-000000000001"

pytestmark = pytest.mark.fault(46)


@pytest.fixture
def kinds(tmp_path):
    """The kinds of what the verification finds in the lines of an export."""

    def found(lines):
        file = tmp_path / "trail.jsonl"
        file.write_text("".join(lines))
        return {finding.kind.value for finding in verify_file(file, "", None).findings}

    return found


@pytest.fixture
def limits(tmp_path):
    return Limits(*[timedelta(days=1)] * 3, tmp_path / "audit")


@pytest.fixture
def two(used, tmp_path):
    """The service of two hosts, and the agent of the first one, h0."""
    (tmp_path / "other").mkdir()
    other = HostedAgent(tmp_path / "other", replace(busy_host(), host="h0"), used.clock)
    parts = ServiceParts({"h0": other, "h1": used.agent}, used.store, used.clock, lambda: uuid.uuid4().hex[:12], 0.0)
    with closing(parts), closing(other.journal):
        yield parts.service, other


def begin(agent):
    """The agent's record of a run that the centre does not know yet."""
    run = f"run-{uuid.uuid4().hex[:12]}"
    event = AgentEvent(NOON, run, AgentAction.RUN_APPLY, "plan-9", "", "", "started", "ann", "")
    agent.journal.chain.append(event)


def exclude(installed, agent, host):
    with agent.trail.marking(WEB, excluded=True):
        pass
    for result in ("excluded: started", "excluded"):
        event = audit_event(ANN, NOON, AuditAction.GUEST_EXCLUDE, host, f"web ({WEB})", result)
        installed.store.audit.append(event)


def plan(installed):
    installed.store.audit.append(audit_event(ANN, NOON, AuditAction.PLAN_CREATE, "h1", "plan-9", "ok"))


def at_heads(monkeypatch, agent, events):
    """Call the function of ``events`` for each number of a head that the agent has got, before it signs. Returns the
    heads that it has got."""
    sign, got = agent.audit_head, []

    def sign_late(centre):
        got.append(centre)
        sign(centre)
        events.get(len(got), bool)()
        return sign(None)

    monkeypatch.setattr(agent, "audit_head", sign_late)
    return got


def test_more_records_between_two_heads_than_one_answer_has_hide_no_action(used, kinds, monkeypatch):
    monkeypatch.setattr(audit_trail, "MAX_PAGE", 1)
    got = at_heads(monkeypatch, used.agent, {1: lambda: plan(used), 2: lambda: begin(used.agent)})
    used.service.export_audit()
    assert len(got) == 4


def test_a_change_of_a_run_under_way_delays_no_export(used, monkeypatch):
    change = AgentEvent(NOON, "run-9", AgentAction.RUN_CHANGE, "process x (1)", "0", "1", "done", "ann", "")
    got = at_heads(monkeypatch, used.agent, {2: lambda: used.agent.journal.chain.append(change)})
    used.service.export_audit()
    assert len(got) == 2


def test_an_export_is_refused_where_an_action_begins_at_each_attempt(used, monkeypatch):
    monkeypatch.setattr(audit_trail, "RETRY_SECONDS", 0.0)
    events = dict.fromkeys(range(101), lambda: begin(used.agent))
    got = at_heads(monkeypatch, used.agent, events)
    with pytest.raises(Busy, match="an action began at each of 50 attempts"):
        used.service.export_audit()
    assert len(got) == 100


def test_a_host_that_one_of_the_two_anchors_lacks_is_in_the_export(two, used, monkeypatch):
    """The heads of two hosts with the same number are no pair."""
    service, other = two
    while other.audit_head(used.store.audit.head()).seq < used.agent.audit_head(None).seq:
        begin(other)

    def no_trail():
        raise NotFound("audit trail", "of an agent")

    got = at_heads(monkeypatch, other, {2: no_trail})
    assert '"host": "h0"' in next(service.export_audit())
    assert len(got) == 4


def test_an_action_of_one_host_between_the_heads_of_two_hosts_is_no_finding(two, used, kinds, monkeypatch):
    """The second host had heard of it, and the first one had signed before it."""
    service, other = two
    head = used.agent.audit_head

    def act_and_exchange():
        exclude(used, other, "h0")
        head(used.store.audit.head())

    at_heads(monkeypatch, used.agent, {2: act_and_exchange})
    assert kinds(service.export_audit()) == set()


def test_an_export_fails_where_the_centres_old_records_are_deleted_meanwhile(used, kinds):
    lines = used.service.export_audit()
    used.export()
    with pytest.raises(Busy, match="old records were deleted meanwhile"):
        kinds(lines)
    assert kinds(used.service.export_audit()) == set()


@pytest.mark.fault(57)
def test_an_export_leaves_out_what_a_killed_purge_has_not_deleted_yet(used, kinds, monkeypatch):
    monkeypatch.setattr(retention, "RECORDS_BATCH", 3)
    delete, calls = retention._delete_purged, []

    def die_after_one_batch(connection):
        calls.append(connection)
        if len(calls) == 3:  # the first call was for a purge before this one
            raise StoreUnavailable("database", "the process was killed")
        return delete(connection)

    monkeypatch.setattr(retention, "_delete_purged", die_after_one_batch)
    with pytest.raises(StoreUnavailable):
        used.export()
    assert used.verify().findings == ()
    assert kinds(used.service.export_audit()) == set()


@pytest.fixture
def cut_after_a_page(used, limits, tmp_path, monkeypatch):
    """From its call on, the agent removes its old records when it has given the first ones."""
    monkeypatch.setattr(audit_trail, "MAX_PAGE", 2)
    used.apply()
    used.exchange()

    def begin_to_cut():
        records, cut = used.agent.audit_records, []

        def give(after, limit):
            given = records(after, limit)
            if limit > 1 and not cut:
                cut.append(cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, LATER))
            return given

        monkeypatch.setattr(used.agent, "audit_records", give)

    return begin_to_cut


def test_an_export_fails_where_the_agents_old_records_are_removed_meanwhile(used, kinds, cut_after_a_page):
    lines = used.service.export_audit()
    cut_after_a_page()
    with pytest.raises(Busy, match="old records were removed meanwhile"):
        kinds(lines)
    assert kinds(used.service.export_audit()) == set()


def test_a_verification_while_the_agents_old_records_are_removed_is_incomplete(used, cut_after_a_page):
    cut_after_a_page()
    assert (used.verify().result, used.verify().result) == ("incomplete", "intact")


def test_an_export_has_the_heads_that_an_older_copy_of_the_agents_trail_lacks(used, kinds, tmp_path):
    with used.stopped():
        copy(used.journal, tmp_path / "older")
    for _ in range(4):
        exclude(used, used.agent, "h1")
    used.exchange()
    with used.stopped():
        put_back(used.journal, tmp_path / "older")
    assert "cut" in used.kinds()
    assert "cut" in kinds(used.service.export_audit())
