"""Old records that are exported and removed leave a trail that verifies."""

import gzip
import json
from contextlib import suppress
from datetime import timedelta

import pytest
from support.store.forgery import execute
from support.store.trail import ANN, LATER, message
from support.values import NOON

from pinner.codec import utc_text
from pinner.model.errors import HostUnreachable
from pinner.model.run.agent_audit import AgentAction, ChainHead
from pinner.model.run.audit import AuditAction, audit_event
from pinner.service.audit.audit_export import verify_file
from pinner.service.audit.audit_match import TrailMatch
from pinner.service.upkeep.retention import Limits, cut_chain


@pytest.mark.fault(57)
def test_what_is_exported_leaves_the_centre_and_the_agent_and_verifies(used, tmp_path):
    (head,) = used.service.audit_anchor().heads
    limits = Limits(*[timedelta(days=1)] * 3, tmp_path / "audit")
    first = used.export()
    assert verify_file(first, head.key, None).result == "intact"
    assert used.verify().result == "intact"
    used.apply()
    used.exchange()
    anchor = used.service.audit_anchor()
    second = used.export(LATER + timedelta(days=9))
    found = verify_file(second, head.key, anchor)
    assert (found.result, found.findings) == ("intact", ())
    with gzip.open(second, "rt") as lines:
        kept = [line for line in lines if '"audit.export"' not in line]
    second.write_bytes(gzip.compress("".join(kept).encode()))
    assert {finding.kind.value for finding in verify_file(second, head.key, None).findings} & {"cut", "changed"}
    used.exchange()
    cut = cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, LATER)
    assert cut.name.startswith("chain-1-")
    assert cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, NOON) is None
    used.apply()
    used.exchange()
    assert used.verify().result == "intact"


@pytest.mark.fault(57)
def test_the_file_has_the_records_that_the_agent_removes(used, tmp_path):
    used.apply()
    used.exchange()
    number = len(used.agent.audit_records(0, 1000))
    limits = Limits(*[timedelta(days=1)] * 3, tmp_path / "audit")
    file = cut_chain(used.agent.journal.chain, used.agent.trail, tmp_path, limits, LATER)
    with gzip.open(file, "rt") as lines:
        removed = [line["agent"]["seq"] for line in map(json.loads, lines) if "agent" in line]
    kept = [record.seq for record in used.agent.audit_records(0, 1000)]
    assert [*removed, *kept] == list(range(1, number + 2)), "the last one says that they were removed"
    assert used.verify().result == "intact"


def test_an_agent_that_goes_while_its_trail_is_read_is_no_cut(used, monkeypatch):
    """Of the heads that it saw, the verification has only the first ones."""
    assert used.export()
    read = used.agent.audit_records

    def go(after, _limit):
        if after:
            raise HostUnreachable("h1", "gone")
        return read(0, 12)

    monkeypatch.setattr(used.agent, "audit_records", go)
    assert used.kinds() == {"unreachable"}


@pytest.mark.fault(57)
def test_records_deleted_without_an_export_are_found(used):
    with used.stopped():
        execute(
            used.database,
            "UPDATE audit_chain SET purged_seq = 4, purged_hash = (SELECT hash FROM audit WHERE seq = 4)",
            "DELETE FROM audit WHERE seq <= 4",
        )
    assert "no record names the export" in message(used.verify(), "cut")


def findings(agent, centre, purged=0, export=1000):
    """The kinds and the centre's records of what a comparison finds."""
    match = TrailMatch("h1")
    for record in agent:
        match.add_agent(record)
    match.end_of_first_part()
    for record in centre:
        match.add_centre(record)
    return [(finding.kind.value, finding.record) for finding in match.findings((), purged, export, utc_text(LATER))]


@pytest.mark.fault(57)
def test_records_may_be_removed_in_the_middle_of_a_run(used):
    """The agent's trail begins with the centre's head that it got after its last record of a run, but before the
    centre's. The centre's trail begins with any record."""
    used.refused()
    used.rollback(used.apply())
    agent = used.agent.audit_records(0, 1000)
    centre = list(used.store.audit.stream(ChainHead(0, "")))
    heads = [number for number, record in enumerate(agent) if record.action == AgentAction.CENTRE_HEAD]
    assert {start: findings(agent[start:], centre) for start in heads} == {start: [] for start in heads}
    purges = range(len(centre))
    assert {purged: findings(agent, centre[purged:], purged) for purged in purges} == {purged: [] for purged in purges}


GUEST = "00000000-0000-4000-8000-000000000001"


def record_at_centre(pinner, result):
    """A record of an exclusion."""
    event = audit_event(ANN, NOON, AuditAction.GUEST_EXCLUDE, "h1", f"web ({GUEST})", result)
    pinner.store.audit.append(event)


@pytest.fixture
def crossed(pinner):
    """Both trails, where the agent hears of the centre's head in the middle of each action, and between the centre's
    request and the action's begin at the agent."""
    agent, apply = pinner.agent, pinner.agent.apply

    def hear_of_a_later_head():
        pinner.store.audit.append(audit_event(ANN, NOON, AuditAction.PLAN_CREATE, "h1", "plan-9", "ok"))
        pinner.exchange()

    def apply_late(plan, run, progress):
        hear_of_a_later_head()

        def exchange_first(change, number_of_changes):
            hear_of_a_later_head()
            progress(change, number_of_changes)
            hear_of_a_later_head()

        return apply(plan, run, exchange_first)

    def exclude(fails):
        record_at_centre(pinner, "excluded: started")
        hear_of_a_later_head()
        with suppress(HostUnreachable), agent.trail.marking(GUEST, excluded=True):
            hear_of_a_later_head()
            if fails:
                raise HostUnreachable("h1", "gone")
        pinner.exchange()
        record_at_centre(pinner, "excluded: failed, apply_failed" if fails else "excluded")
        pinner.exchange()

    agent.apply = apply_late
    for fails in (True, False):
        pinner.rollback(pinner.apply())
        exclude(fails)
        pinner.exchange()
    return agent.audit_records(0, 1000), list(pinner.store.audit.stream(ChainHead(0, "")))


@pytest.mark.fault(57)
def test_both_trails_may_begin_in_the_middle_of_a_run(crossed):
    agent, centre = crossed
    heads = [number for number, record in enumerate(agent) if record.action == AgentAction.CENTRE_HEAD]
    cuts = [(start, purged) for start in (0, *heads) for purged in range(len(centre))]
    wrong = {cut: findings(agent[cut[0] :], centre[cut[1] :], cut[1]) for cut in cuts}
    assert {cut: kinds for cut, kinds in wrong.items() if kinds} == {}


@pytest.mark.fault(57)
def test_the_agents_trail_may_begin_with_a_head_that_is_older_than_the_actions_before_it(pinner):
    """A head is read at the centre before the agent hears of it, and actions may come between. Their records are older
    than the next head, too: what the centre has after that was forged."""
    pinner.apply()
    head = pinner.store.audit.head()
    pinner.rollback(pinner.apply())
    record_at_centre(pinner, "excluded: started")
    with pinner.agent.trail.marking(GUEST, excluded=True):
        pass
    record_at_centre(pinner, "excluded")
    pinner.agent.audit_head(head)
    pinner.exchange()
    pinner.apply()
    agent, centre = pinner.agent.audit_records(0, 1000), list(pinner.store.audit.stream(ChainHead(0, "")))
    (*_, start) = (number for number, record in enumerate(agent) if record.target == str(head.seq))
    assert findings(agent[start:], centre) == []
    end = next(record for record in reversed(centre) if record["action"] == AgentAction.RUN_END)
    forged = end | {"seq": len(centre) + 1, "subject": "run-9"}
    assert findings(agent[start:], [*centre, forged]) == [("forged", forged["seq"])]


@pytest.mark.fault(57)
def test_a_forged_run_without_a_begin_is_found_in_a_trail_whose_old_records_were_removed(crossed):
    agent, centre = crossed
    begins = [record["seq"] for record in centre if record["action"] == AgentAction.RUN_APPLY]
    end = next(record for record in reversed(centre) if record["action"] == AgentAction.RUN_END)
    forged = end | {"seq": len(centre) + 1, "subject": "run-9"}
    for purged in range(begins[1]):
        assert findings(agent, [*centre[purged:], forged], purged, forged["seq"]) == [("forged", forged["seq"])]


@pytest.mark.fault(57)
def test_a_forged_end_of_a_run_whose_begin_was_removed_is_found(used):
    """Of a run that had ended at the first head that the agent kept; and of one that had not, if the agent kept its
    end."""
    agent = used.agent.audit_records(0, 1000)
    centre = list(used.store.audit.stream(ChainHead(0, "")))
    start = [number for number, record in enumerate(agent) if record.action == AgentAction.RUN_END][1] + 1
    assert agent[start].action == AgentAction.CENTRE_HEAD
    ended, still_open = [record for record in centre if record["action"] == AgentAction.RUN_END][:2]
    later = ended | {"seq": len(centre) + 1, "result": "undone"}
    assert findings(agent[start:], [*centre, later]) == [("forged", later["seq"])]
    kept = [agent[start], agent[start - 1], *agent[start + 1 :]]
    assert findings(kept, centre) == []
    forged = [record | {"result": "undone"} if record is still_open else record for record in centre]
    assert findings(kept, forged) == [("forged", still_open["seq"]), ("unreported", 0)]
