"""Manipulations of the agent's own trail, and an agent that does not answer."""

import pytest
from support.store.forgery import copy, execute, put_back, rewrite
from support.store.trail import LATER, message
from support.values import NOON

from pinner.model.errors import HostUnreachable


@pytest.mark.fault(46)
def test_the_key_was_replaced(used):
    with used.stopped():
        (used.agent_folder / "signing.key").unlink()
    found = used.verify()
    assert {finding.kind.value for finding in found.findings} == {"key_replaced"}
    assert "but its key is" in found.findings[0].message


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda rows: rows[:-4], "cut"),
        (lambda rows: [row | {"result": "undone"} if row["action"] == "run.end" else row for row in rows], "rewritten"),
        (lambda rows: [rows[0]], "cut"),
    ],
)
def test_the_agents_own_trail_is_rewritten(used, change, kind):
    with used.stopped():
        rewrite(used.journal, change, "agent_chain")
    found = used.verify()
    assert any(finding.trail == "agent" and finding.kind.value == kind for finding in found.findings), found.findings


def test_the_agents_own_record_is_edited(used):
    with used.stopped():
        execute(used.journal, "UPDATE agent_chain SET actor = 'eve' WHERE seq = 3")
    found = used.verify()
    assert (
        message(found, "changed") == "the trail of the agent: record 3 was changed: its content does not match its hash"
    )


def test_an_older_copy_of_the_agents_journal(used, tmp_path):
    copy(used.journal, tmp_path / "older")
    used.apply()
    with used.stopped():
        put_back(used.journal, tmp_path / "older")
    found = used.verify()
    assert any(finding.trail == "agent" and finding.kind.value == "cut" for finding in found.findings)


def test_an_agent_that_does_not_answer(used, monkeypatch):
    def unreachable(*_):
        raise HostUnreachable("h1", "its agent does not answer")

    monkeypatch.setattr(used.agent, "audit_head", unreachable)
    found = used.verify()
    assert (found.result, found.ok, found.records) == ("incomplete", False, 12)
    assert [finding.kind.value for finding in found.findings] == ["unreachable"]
    with pytest.raises(HostUnreachable):
        used.service.audit_anchor()
    used.apply()
    with used.stopped():
        execute(used.database, "UPDATE audit SET actor = 'eve' WHERE seq = 3")
    monkeypatch.setattr(used.agent, "audit_head", unreachable)
    assert used.kinds() == {"changed", "unreachable"}


def test_an_agent_that_stops_answering_in_between(used, monkeypatch):
    records = iter([used.agent.audit_records(0, 1000), ()])

    def stops(*_):
        for page in records:
            return page
        raise HostUnreachable("h1", "its agent ended")

    monkeypatch.setattr(used.agent, "audit_records", stops)
    assert used.verify().result == "incomplete"


def test_the_old_part_of_the_agents_trail_is_removed(used):
    removed = used.agent.audit_records(0, 1000)
    chain = used.agent.journal.chain
    cut = chain.old(LATER, LATER)
    chain.cut(cut, NOON)
    used.apply()
    used.exchange()
    left = used.agent.audit_records(0, 1000)
    assert (left[0].seq, left[0].previous) == (cut.seq + 1, removed[cut.seq - 1].hash)
    assert used.verify().result == "intact"
    with used.stopped():
        execute(used.journal, f"DELETE FROM agent_chain WHERE seq <= {cut.seq + 2}")
    assert "cut" in used.kinds()
