"""Manipulations by the user who owns the central database, and by callers of the agent's socket."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.store.forgery import copy, execute, put_back, rewrite
from support.store.trail import EVE, LATER, changed_actor, message
from support.values import NOON, make_run

from pinner.model.run.audit import AuditAction, audit_event
from pinner.service.audit.audit_export import verify_file


def fewer(rows):
    return [row for row in rows if row["action"] != "run.change"]


def forged_policy(rows):
    return [rows[0] | {"action": "policy.set", "subject": "h1", "actor": "eve"}, *rows]


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("statements", "kind", "sentence"),
    [
        (["DROP TABLE audit"], "changed", "the table of the trail was dropped"),
        (["DELETE FROM audit_chain"], "changed", "the end of the trail was deleted"),
        (["DELETE FROM audit", "DELETE FROM audit_chain"], "changed", "the end of the trail was deleted"),
        (["DELETE FROM audit"], "cut", "the trail of the centre is empty, but record"),
        (["DELETE FROM audit WHERE seq > 9"], "cut", "the trail of the centre ends at record 9, but record"),
        (["DELETE FROM audit", "DELETE FROM agent_heads"], "cut", "the trail of the centre is empty, but record"),
        (
            [
                "CREATE TABLE other AS SELECT * FROM audit WHERE 0",
                "DROP TABLE audit",
                "ALTER TABLE other RENAME TO audit",
            ],
            "cut",
            "the trail of the centre is empty",
        ),
        (["DELETE FROM agent_heads"], "head_missing", "names the signed head"),
        (["DROP TABLE agent_heads"], "head_missing", "names the signed head"),
        (["UPDATE agent_heads SET hash = hash || '' , centre_seq = 1"], "bad_signature", "does not fit its signature"),
        (["UPDATE audit SET actor = 'eve' WHERE seq = 3"], "changed", "record 3 was changed"),
        (["UPDATE audit SET before = x'00ff' WHERE seq = 3"], "changed", "record 3 was changed"),
    ],
)
def test_the_owner_of_the_database_changes_it(used, statements, kind, sentence):
    with used.stopped():
        execute(used.database, *statements)
    found = used.verify()
    assert found.result == "broken"
    assert sentence in message(found, kind), found.findings


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    "change", [changed_actor, fewer, forged_policy, lambda rows: rows[1:], lambda rows: rows[::-1]]
)
def test_the_whole_chain_is_rewritten_with_correct_hashes(used, change):
    with used.stopped():
        rewrite(used.database, change)
    assert used.store.audit.verify().ok, "the centre's chain alone shows nothing"
    found = used.verify()
    assert found.result == "broken"
    assert used.kinds() & {"rewritten", "cut"}


@pytest.mark.fault(46)
def test_the_rewritten_tail_of_a_chain_is_told_although_the_agent_has_not_seen_its_head(pinner, monkeypatch):
    """The agent sees no head since the run; only its own records of the run contradict."""
    pinner.apply()
    monkeypatch.setattr(pinner.heads, "exchange", lambda host: None)
    run = pinner.apply()
    with pinner.stopped():
        rewrite(pinner.database, lambda rows: [*rows[:-1], rows[-1] | {"result": "failed: nothing was changed"}])
    found = pinner.verify()
    assert [(f.kind.value, f.run) for f in found.findings] == [("forged", run.id), ("unreported", run.id)]
    assert f"run.end {run.id}: applied" in found.findings[1].message


@pytest.mark.fault(46)
@pytest.mark.parametrize("append", [0, 3])
def test_an_older_copy_of_the_database_is_put_back(used, tmp_path, append):
    copy(used.database, tmp_path / "older")
    used.apply()
    used.exchange()
    with used.stopped():
        put_back(used.database, tmp_path / "older")
    for _ in range(append):
        used.apply()
    assert used.kinds() & {"cut", "rewritten"}
    assert "unreported" in used.kinds()


@pytest.mark.fault(46)
def test_the_database_is_replaced_by_a_new_one(used):
    with used.stopped():
        for file in used.database.parent.glob("pinner.sqlite*"):
            file.unlink()
    found = used.verify()
    assert "is empty, but" in message(found, "cut")
    used.apply()
    assert used.verify().result == "broken"


FORGED = {
    "run.change": ("run-66: process sshd (1)", "0-3 (1 thread)", "0", "done"),
    "run.end": ("run-66", "", "", "applied"),
    "run.apply": ("run-66 of plan-1", "", "", "started"),
    "run.recover": ("run-66", "", "", "interrupted; finished: 1 done"),
    "guest.exclude": ("web (00000000-0000-4000-8000-000000000001)", "", "", "excluded"),
}


@pytest.mark.fault(46)
@pytest.mark.parametrize("action", FORGED)
def test_a_forged_record_with_a_correct_hash(used, action):
    subject, before, after, result = FORGED[action]
    event = audit_event(EVE, NOON, AuditAction(action), "h1", subject, result, before=before, after=after)
    used.store.audit.append(event)
    found = used.verify()
    assert [finding.kind.value for finding in found.findings] == ["forged"]
    if action != "guest.exclude":
        assert found.findings[0].record == used.store.audit.head().seq
        assert f"({action} {subject}: {result})" in found.findings[0].message


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("action", "subject", "result"),
    [
        ("run.apply ", "run-66 of plan-1", "started"),
        ("run.\u0435nd", "run-66", "applied"),
        ("run.apply", "run-66 of plan-1", "started "),
        ("run.apply", "run-66 of plan-1", "applied"),
        ("run.rollback", "run-66 of run-1", "refused"),
        ("run.release", "run-66 of plan-1", "refused: no\napplied"),
        ("guest.exclude", "web (00000000-0000-4000-8000-000000000001)", "excluded: done"),
        ("guest.exclude", "web (00000000-0000-4000-8000-000000000001)", "included: failed"),
        ("guest.exclude", "web (00000000-0000-4000-8000-000000000001)", "excluded: failed, banana"),
        ("run.apply", "run-66 of plan-1", "refused: banana"),
        ("run.apply", "run-66 of plan-1", "allowed: plan_worse"),
        ("run.apply", "plan-1", "allowed: plan_blocked"),
        ("run.rollback", "run-1", "allowed: plan_worse"),
    ],
)
def test_a_record_that_pinner_never_writes(used, tmp_path, action, subject, result):
    """A list of the trail shows it like one of the agent's."""
    forged = {"actor": "eve", "action": action, "subject": subject, "after": "", "result": result}
    with used.stopped():
        rewrite(used.database, lambda rows: [*rows, rows[-1] | forged])
    number = used.store.audit.head().seq
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(used.service.export_audit()))
    for found in (used.verify(), verify_file(file, used.service.audit_anchor().heads[0].key, None)):
        assert [(finding.kind.value, finding.record) for finding in found.findings] == [("forged", number)]
        assert found.findings[0].message.isascii(), "a letter of another alphabet is not shown as its look-alike"


@pytest.mark.fault(46)
def test_records_of_a_host_without_an_agent_are_counted(used, tmp_path):
    """Nothing tells them from those of a host that was removed."""
    for host in ("nosuch", "h1 ", ""):
        used.store.audit.append(audit_event(EVE, NOON, AuditAction.RUN_END, host, "run-66", "applied"))
    used.store.audit.append(audit_event(EVE, NOON, AuditAction.TOKEN_CREATE, "", "token x", "admin"))
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(used.service.export_audit()))
    for found in (used.verify(), verify_file(file, used.service.audit_anchor().heads[0].key, None)):
        assert (found.result, found.without_trail) == ("intact", 3)


@pytest.mark.fault(46)
@pytest.mark.parametrize("action", FORGED)
def test_a_forged_record_is_the_first_of_its_host_after_an_export(used, action):
    """Its request may not have been removed: it is younger than the export."""
    assert used.export(NOON + timedelta(days=9))
    used.exchange()
    chain = used.agent.journal.chain
    chain.cut(chain.old(LATER, LATER), NOON)
    assert used.verify().result == "intact"
    subject, before, after, result = FORGED[action]
    event = audit_event(EVE, NOON, AuditAction(action), "h1", subject, result, before=before, after=after)
    used.store.audit.append(event)
    assert used.kinds() == {"forged"}
    used.exchange()
    assert used.kinds() == {"forged"}


@pytest.mark.fault(46)
def test_a_forged_change_of_a_real_run(used):
    run = used.apply()
    event = audit_event(EVE, NOON, AuditAction.RUN_CHANGE, "h1", f"{run.id}: process sshd (1)", "done")
    used.store.audit.append(event)
    assert used.kinds() == {"forged"}


@pytest.mark.fault(46)
def test_a_change_by_a_caller_of_the_agent_alone(used):
    plan = used.plan()
    used.agent.apply(plan, make_run("run-66", actor="eve", plan=plan.id), lambda *_: None)
    found = used.verify()
    assert {finding.kind.value for finding in found.findings} == {"unreported"}
    assert {finding.run for finding in found.findings} == {"run-66"}
    assert any("run.change run-66: process busy (100): done" in finding.message for finding in found.findings)


@pytest.mark.fault(46)
def test_a_guest_excluded_by_a_caller_of_the_agent_alone(used):
    used.agent.set_excluded("00000000-0000-4000-8000-000000000001", excluded=True)
    assert used.kinds() == {"unreported"}


@pytest.mark.fault(46)
def test_a_guest_excluded_by_a_caller_of_the_agent_alone_is_told_after_an_export(used):
    guest = "00000000-0000-4000-8000-000000000001"
    used.agent.set_excluded(guest, excluded=True)
    assert used.export(NOON + timedelta(days=9))
    used.exchange()
    assert used.verify().result == "intact"
    used.agent.set_excluded(guest, excluded=True)
    assert used.kinds() == {"unreported"}


@pytest.mark.fault(46)
def test_a_head_that_the_centre_never_had(used):
    head = replace(used.store.audit.head(), hash="0" * 64)
    used.agent.audit_head(head)
    assert used.kinds() == {"rewritten"}


@pytest.mark.fault(46)
def test_the_anchor_shows_what_was_cut(used, tmp_path):
    anchor = used.service.audit_anchor()
    assert used.verify(anchor).result == "intact"
    used.apply()
    assert used.verify(anchor).result == "intact"
    copy(used.database, tmp_path / "new")
    with used.stopped():
        execute(used.database, "DELETE FROM audit WHERE seq > 5", "DELETE FROM agent_heads")
        # Root can also change the agent's part. Only the anchor is out of reach.
        for file in used.agent_folder.glob("journal.sqlite*"):
            file.unlink()
    cut = {finding.trail: finding.message for finding in used.verify(anchor).findings if finding.kind.value == "cut"}
    assert cut.keys() == {"centre", "agent"}
    assert all("the anchor shows" in text for text in cut.values())


def test_an_anchor_that_somebody_edited(used):
    anchor = used.service.audit_anchor()
    (head,) = anchor.heads
    edited = replace(anchor, heads=(replace(head, centre_seq=1),))
    assert "bad_signature" in used.kinds(edited)
    other = used.verify(replace(anchor, heads=(replace(head, host="h2"),)))
    assert "this service has no such host" in message(other, "cut")
