"""The owner of the database deletes records, and forges the record of their export. By the agents' own clocks, what is
younger than a day is always missed. A host that was off while another one exported is no cut."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.store.forgery import rewrite
from support.store.trail import ANN, LATER, message
from support.values import NOON, busy_host, make_run

from pinner.codec import utc_text
from pinner.model.run.agent_audit import ChainHead, purged_text
from pinner.model.run.audit import AuditAction, audit_event
from pinner.service.local import ServiceParts

pytestmark = pytest.mark.fault(46)

DAY = timedelta(days=1)
WEB = "00000000-0000-4000-8000-000000000001"


def forge(used, end, kept=0, at=NOON, host="nosuch"):
    """Delete the records up to ``end``, but for the last ``kept`` ones, and add the record of an export."""

    def rows_left(rows):
        named = {"action": "audit.export", "result": "exported", "after": purged_text(end), "host": host}
        return [*rows[len(rows) - kept :], rows[-1] | named | {"at": utc_text(at)}]

    with used.stopped():
        rewrite(used.database, rows_left, start=end)


def apply_at_the_agent(used, name):
    plan = used.plan()
    used.agent.apply(plan, make_run(name, actor="eve", plan=plan.id), lambda *_: None)


def exclude(used):
    """With its records in both trails."""
    used.agent.set_excluded(WEB, excluded=True)
    for result in ("excluded: started", "excluded"):
        used.store.audit.append(audit_event(ANN, NOON, AuditAction.GUEST_EXCLUDE, "h1", f"web ({WEB})", result))


@pytest.mark.parametrize("later_run", [False, True])
@pytest.mark.parametrize("ahead", [0, 1, 1000])
@pytest.mark.parametrize(("host", "at"), [("h1", LATER), ("nosuch", LATER), ("nosuch", NOON - 999 * DAY)])
def test_the_whole_trail_is_deleted(used, ahead, host, at, later_run):
    """Whichever host and time the record names, and whether or not the agent saw the last record that it names."""
    head = used.store.audit.head()
    forge(used, replace(head, seq=head.seq + ahead), host=host, at=at)
    if later_run:
        used.apply()
        used.exchange()
    assert "the agent on h1 had seen no head after record" in message(used.verify(), "cut")


def test_all_but_the_last_records_are_deleted(used):
    rows = list(used.store.audit.stream(ChainHead(0, "")))
    used.apply()
    used.exchange()
    kept = used.store.audit.head().seq - len(rows)
    forge(used, ChainHead(rows[-1]["seq"], rows[-1]["hash"]), kept)
    used.exchange()
    assert "cut" in used.kinds()


def test_the_record_of_an_honest_export_is_used_again_for_younger_records(used):
    used.export()
    used.exchange()
    assert used.verify().result == "intact"
    used.apply()
    used.exchange()
    forge(used, used.store.audit.head(), at=LATER, host="h1")
    used.exchange()
    assert "cut" in used.kinds()


def test_a_head_that_was_reported_a_day_before_is_no_excuse(used):
    """Neither one with a large number, nor that of a chain that was made in advance."""
    forged = ChainHead(1000, "0" * 64)
    used.agent.audit_head(forged)
    used.clock.at += 2 * DAY
    used.apply()
    used.exchange()
    used.clock.at += timedelta(minutes=1)
    forge(used, forged)
    assert "cut" in used.kinds()


def test_a_forged_export_hides_what_is_older_than_a_day(used):
    """This is the window: nothing tells it from an honest export, but the file."""
    head = used.store.audit.head()
    used.clock.at += 2 * DAY
    forge(used, head)
    used.exchange()
    assert used.verify().result == "intact"


@pytest.mark.parametrize("exchange", [False, True])
def test_without_heads_for_a_day_the_agents_actions_of_that_day_are_missed(used, exchange):
    apply_at_the_agent(used, "run-66")
    used.agent.set_excluded(WEB, excluded=True)
    used.clock.at += 2 * DAY
    apply_at_the_agent(used, "run-67")
    used.agent.set_excluded(WEB, excluded=False)
    forge(used, replace(used.store.audit.head(), seq=1000))
    if exchange:
        used.exchange()
    found = used.verify().findings
    assert {finding.kind.value for finding in found} == {"unreported"}
    assert {finding.run for finding in found} - {"run-66"} == {"run-67", ""}
    assert {"included" in finding.message for finding in found if not finding.run} == {True}


@pytest.mark.parametrize("returns", [False, True])
def test_an_export_by_another_host_while_this_one_was_off_is_no_cut(used, tmp_path, returns):
    """Each host has a server of its own, and both share the database. This one lost its power after an exclusion of
    which its agent had seen no head yet."""
    (tmp_path / "other").mkdir()
    other = HostedAgent(tmp_path / "other", replace(busy_host(), host="h0"), used.clock)
    parts = ServiceParts({"h0": other}, used.store, used.clock, lambda: uuid.uuid4().hex[:12], 0.0)
    with closing(parts), closing(other.journal):
        parts.service.audit_anchor()
        exclude(used)
        parts.service.audit_anchor()
        assert used.export(LATER, "h0", parts.service)
        if returns:
            used.apply()
            used.exchange()
        assert used.verify().findings == ()
        assert parts.service.verify_audit().findings == ()
