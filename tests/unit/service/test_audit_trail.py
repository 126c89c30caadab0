"""The verification of the whole trail: manipulations by the user who owns the central database, and by callers of the
agent's socket. The databases, the journal, the chain and the signatures are real."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clock import Clock
from support.forgery import copy, execute, put_back, rewrite
from support.in_memory_agent import InMemoryAgent
from support.values import NOON, make_change, make_plan, make_run, make_snapshot

from pinner.agent.signing import pem
from pinner.model.agent_audit import ChainHead
from pinner.model.audit import AuditAction, Caller, audit_event
from pinner.model.errors import HostBusy, HostUnreachable, Invalid, NotFound
from pinner.service import audit_trail
from pinner.service.audit_export import verify_file
from pinner.service.chain_retention import cut_chain
from pinner.service.compose import compose
from pinner.service.retention import Limits, export_audit
from pinner.store import schema
from pinner.store.chain import link
from pinner.store.engine import connect
from pinner.store.repositories import open_store

ANN = Caller("ann", "10.0.0.1", "req-1")
EVE = Caller("eve", "10.0.0.6", "req-6")


class Installation:
    """A service with its central database and its agent, which can be stopped and started again."""

    def __init__(self, folder: Path, empty: Path) -> None:
        """``empty`` is an empty database of the newest schema; to copy it is faster than to migrate."""
        (folder / "agent").mkdir(parents=True)
        self.database = folder / "pinner.sqlite"
        self.agent_folder = folder / "agent"
        self.journal = self.agent_folder / "journal.sqlite"
        self.clock = Clock(timedelta(seconds=1))
        self._undo = ExitStack()
        self.plans = 0
        for file in (self.database, self.journal):
            shutil.copyfile(empty, file)
        self.start()

    def start(self) -> None:
        self.store = self._undo.enter_context(open_store(f"sqlite:///{self.database}"))
        self.agent = InMemoryAgent(self.agent_folder, make_snapshot(), self.clock)
        self._undo.callback(self.agent.journal.close)
        parts = compose({"h1": self.agent}, self.store, self.clock, lambda: uuid.uuid4().hex[:12], 0.0)
        self.service = self._undo.enter_context(closing(parts)).service
        self.heads = parts.audit_heads

    def stop(self) -> None:
        self._undo.close()

    @contextmanager
    def stopped(self):
        self.stop()
        yield
        self.start()

    def plan(self):
        self.plans += 1
        basis = self.store.snapshots.add(make_snapshot())
        changes = tuple(make_change(90 + 10 * n, after=str(n), threads=2) for n in (1, 2))
        plan = make_plan(f"plan-{self.plans}", basis, changes)
        self.store.plans.add(plan, NOON)
        return plan

    def apply(self, caller=ANN):
        run = self.service.apply(self.plan().id, False, caller)
        list(self.service.follow(run.id))
        return self.service.run(run.id)

    def rollback(self, run):
        undo = self.service.rollback(run.id, ANN)
        list(self.service.follow(undo.id))
        return undo

    def refused(self):
        self.agent.refusal = HostBusy("h1", "run-0")
        with pytest.raises(HostBusy):
            self.service.apply(self.plan().id, False, ANN)
        self.agent.refusal = None

    def exchange(self):
        self.heads._exchange_and_store("h1")

    def verify(self, anchor=None):
        return self.service.verify_audit(anchor)

    def kinds(self, anchor=None):
        return {finding.kind.value for finding in self.verify(anchor).findings}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    with open_store(f"sqlite:///{folder}/empty.sqlite"):
        pass
    copy(folder / "empty.sqlite", folder / "copy.sqlite")
    return folder / "copy.sqlite"


@pytest.fixture
def pinner(tmp_path, monkeypatch, empty):
    monkeypatch.setattr(audit_trail, "RECHECK_SECONDS", 0.0)
    made = Installation(tmp_path / "one", empty)
    yield made
    made.stop()


@pytest.fixture
def used(pinner):
    """Two applies and a rollback; the agent has seen the centre's head."""
    pinner.rollback(pinner.apply())
    pinner.apply()
    pinner.exchange()
    return pinner


def message(found, kind):
    return next(finding.message for finding in found.findings if finding.kind.value == kind)


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


def changed_actor(rows):
    return [row | {"actor": "mallory"} if row["action"] == "run.end" else row for row in rows]


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
def test_the_rewritten_tail_of_a_chain_is_told_although_the_agent_has_not_seen_its_head(pinner):
    """The agent has seen no head since the run; only its own records of the run contradict."""
    pinner.apply()
    run = pinner.apply()
    with pinner.stopped():
        rewrite(pinner.database, lambda rows: [*rows[:-1], rows[-1] | {"result": "failed: nothing was changed"}])
    found = pinner.verify()
    assert [(f.kind.value, f.run) for f in found.findings] == [("unreported", run.id)]
    assert f"run.end {run.id}: applied" in found.findings[0].message


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
def test_a_forged_change_of_a_real_run(used):
    run = used.apply()
    event = audit_event(EVE, NOON, AuditAction.RUN_CHANGE, "h1", f"{run.id}: process sshd (1)", "done")
    used.store.audit.append(event)
    assert used.kinds() == {"forged"}


@pytest.mark.fault(46)
def test_a_change_by_a_caller_of_the_agent_alone(used):
    used.agent.apply(used.plan(), make_run("run-66", actor="eve"), lambda *_: None)
    found = used.verify()
    assert {finding.kind.value for finding in found.findings} == {"unreported"}
    assert {finding.run for finding in found.findings} == {"run-66"}
    assert any("run.change run-66: process busy (100): done" in finding.message for finding in found.findings)


@pytest.mark.fault(46)
def test_a_guest_excluded_by_a_caller_of_the_agent_alone(used):
    used.agent.set_excluded("00000000-0000-4000-8000-000000000001", excluded=True)
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


def test_refused_runs_and_failed_runs_are_no_finding(used):
    used.refused()
    used.agent.break_after = 2
    run = used.service.apply(used.plan().id, False, ANN)
    list(used.service.follow(run.id))
    assert used.service.run(run.id).state == "failed"
    used.agent.break_after = None
    assert used.verify().result == "intact"


def test_a_run_under_way_is_no_finding(used):
    used.agent.gate = type(used.agent.gate)(1)
    run = used.service.apply(used.plan().id, False, ANN)
    assert used.verify().result == "intact"
    assert used.service.run(run.id).state == "running"
    used.agent.gate.release(1000)
    list(used.service.follow(run.id))
    assert used.verify().result == "intact"


def test_a_captured_machine_has_no_trail(store):
    class Captured:
        def audit_head(self, _):
            raise NotFound("audit trail", "captured machine")

    parts = compose({"h1": Captured()}, store, lambda: NOON, lambda: "1", 0.0)
    with closing(parts):
        store.audit.append(audit_event(ANN, NOON, AuditAction.PLAN_CREATE, "h1", "plan-1", "ok"))
        found = parts.service.verify_audit()
        assert (found.result, found.records, found.agents) == ("intact", 1, ())
        with pytest.raises(NotFound):
            parts.service.audit_anchor()


def test_runs_from_before_the_agent_kept_a_trail(tmp_path, empty):
    """Both databases have the schema of the version before, and a run. Its records are not called forged."""
    old = Installation(tmp_path / "one", empty)
    run = old.apply()
    old.stop()
    # The version before did not write the agent's head into a record.
    rewrite(old.database, lambda rows: [row | {"after": ""} if row["action"] == "run.end" else row for row in rows])
    for file in (old.database, old.journal):
        engine = connect(f"sqlite:///{file}")
        schema.downgrade(engine, "0008")
        engine.dispose()
    with old.stopped():
        pass
    assert old.service.run(run.id).state == "applied"
    assert old.verify().result == "intact"
    old.rollback(run)
    old.apply()
    old.exchange()
    assert old.verify().result == "intact"
    with old.stopped():
        rewrite(old.database, changed_actor)
    assert old.verify().result == "broken"
    old.stop()


def test_the_old_part_of_the_agents_trail_is_removed(used):
    removed = used.agent.audit_records(0, 1000)
    cut = used.agent.journal.chain.cut(10_000, NOON)
    used.apply()
    used.exchange()
    left = used.agent.audit_records(0, 1000)
    assert (left[0].seq, left[0].previous) == (cut.seq + 1, removed[cut.seq - 1].hash)
    assert used.verify().result == "intact"
    with used.stopped():
        execute(used.journal, f"DELETE FROM agent_chain WHERE seq <= {cut.seq + 2}")
    assert "cut" in used.kinds()


def test_an_export_is_verified_without_a_server(used, tmp_path):
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(used.service.export_audit()))
    (head,) = used.service.audit_anchor().heads
    anchor = used.service.audit_anchor()
    found = verify_file(file, head.key, anchor)
    assert (found.result, found.findings, found.records) == ("intact", (), 12)
    lines = [json.loads(line) for line in file.read_text().splitlines()]

    def verified(changed, key=head.key):
        file.write_text("".join(json.dumps(line) + "\n" for line in changed))
        return {finding.kind.value for finding in verify_file(file, key, None).findings}

    assert verified(lines) == set()
    assert verified(lines, key="A" * 43 + "=") == {"key_replaced"}
    assert verified(lines[:-3]) >= {"cut"}
    assert "cut" in verified([line for line in lines if "agent" not in line])
    assert verified([line for line in lines if "head" not in line]) == {"head_missing"}
    agent_end = next(n for n, line in enumerate(lines) if "centre" in line)
    assert "cut" in verified([*lines[: agent_end - 1], *lines[agent_end:]])
    assert "changed" in verified(
        [line | {"centre": line["centre"] | {"actor": "x"}} if "centre" in line else line for line in lines]
    )
    for wrong in ([], lines[1:], [{"export": 2}], [lines[0], {"x": 1}], [lines[0], [1]], [lines[0], {"centre": 1}]):
        with pytest.raises(Invalid):
            verified(wrong)


@pytest.fixture
def export(used, tmp_path):
    """The lines of an export, and a function that verifies changed lines, and returns the findings' kinds."""
    lines = [json.loads(line) for line in used.service.export_audit()]
    key = lines[0]["heads"][0]["key"]

    def verified(changed, anchor=None):
        file = tmp_path / "changed.jsonl"
        file.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in changed))
        return {finding.kind.value for finding in verify_file(file, key, anchor).findings}

    return lines, verified


def appended(records, *events):
    """Records with correct hashes that follow ``records``."""
    last = records[-1]
    head = ChainHead(last["seq"], last["hash"])
    return link(
        head, [{name: last[name] for name in last if name not in ("seq", "previous", "hash")} | e for e in events]
    )


@pytest.mark.fault(46)
def test_records_are_added_to_an_export_after_its_signed_head(export):
    lines, verified = export
    agent = [line["agent"] for line in lines if "agent" in line]
    centre = [line["centre"] for line in lines if "centre" in line]
    policy = {"action": "policy.set", "subject": "h1", "actor": "eve", "after": "enforce: {}", "result": "done"}
    assert verified([*lines, *({"centre": row} for row in appended(centre, policy))]) == {"forged"}
    at_agent = appended(
        agent,
        {"run": "run-66", "action": "run.apply", "target": "plan-9", "after": "", "result": "started", "actor": "eve"},
        {"run": "run-66", "action": "run.end", "target": "", "after": "", "result": "applied", "actor": "eve"},
    )
    at_centre = appended(
        centre,
        {"action": "run.apply", "subject": "run-66 of plan-9", "after": "", "result": "started", "actor": "eve"},
        {"action": "run.end", "subject": "run-66", "after": "", "result": "applied", "actor": "eve"},
    )
    start = next(n for n, line in enumerate(lines) if "centre" in line)
    with_run = [
        *lines[:start],
        *({"host": "h1", "agent": row} for row in at_agent),
        *lines[start:],
        *({"centre": row} for row in at_centre),
    ]
    assert verified(with_run) == {"forged"}


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("centre", "seq", [1]),
        ("centre", "host", {}),
        ("agent", "target", "x"),
        ("agent", "target", "9" * 5000),
        ("agent", "target", "\u00b2"),
    ],
)
def test_an_export_with_wrong_values_is_told_and_not_a_failure(export, kind, name, value):
    lines, verified = export
    action = "centre.head" if kind == "agent" else "run.end"
    changed = next(line for line in lines if kind in line and line[kind]["action"] == action)
    changed[kind][name] = value
    if kind == "agent":
        assert "changed" in verified(lines)
    else:
        with pytest.raises(Invalid, match="line"):
            verified(lines)


def test_a_file_that_is_no_export(export):
    lines, verified = export
    hidden = [line | {"centre": lines[-1]["centre"]} if "head" in line else line for line in lines]
    for wrong in ([lines[0], '{"centre":' + "[" * 100_000], hidden, [{**lines[0], "more": 1}, *lines[1:]]):
        with pytest.raises(Invalid):
            verified(wrong)


@pytest.mark.parametrize("kind", ["centre", "agent"])
def test_an_export_that_claims_a_huge_number_takes_no_longer(export, kind):
    """A wrong record is tried with every number up to the signed one."""
    lines, verified = export
    lines[0]["heads"][0]["centre_seq" if kind == "centre" else "seq"] = 10**12
    next(line[kind] for line in lines if kind in line)["actor"] = "eve"
    assert verified(lines) >= {"changed", "bad_signature"}


def test_an_export_without_a_host_of_the_anchor(used, export):
    lines, verified = export
    anchor = used.service.audit_anchor()
    other = replace(anchor, heads=(*anchor.heads, replace(anchor.heads[0], host="h2")))
    assert verified(lines, other) == {"cut"}


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


def test_runs_under_way_are_no_finding_of_a_verification_or_of_an_export(pinner, tmp_path):
    file = tmp_path / "trail.jsonl"
    with repeated(lambda: pinner.rollback(pinner.apply()), pinner.exchange):
        for _ in range(12):
            assert pinner.verify().findings == ()
            file.write_text("".join(pinner.service.export_audit()))
            key = json.loads(file.read_text().partition("\n")[0])["heads"][0]["key"]
            assert verify_file(file, key, None).findings == ()


def test_a_head_that_comes_during_an_export_is_not_in_it(used, tmp_path, monkeypatch):
    anchor = used.service.audit_anchor()
    used.apply()
    used.exchange()
    monkeypatch.setattr(audit_trail.AuditTrail, "_quiet_anchor", lambda _: anchor)
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(used.service.export_audit()))
    assert verify_file(file, anchor.heads[0].key, None).findings == ()


def test_the_verifier_of_the_documents_agrees(export, tmp_path):
    lines, verified = export
    page = Path(__file__).parents[3] / "docs" / "audit-export.md"
    script, file, key = tmp_path / "verify.py", tmp_path / "changed.jsonl", tmp_path / "agent.pem"
    script.write_text(page.read_text().partition("```python\n")[2].partition("```")[0])
    key.write_text(pem(lines[0]["heads"][0]["key"]))

    def says(changed):
        try:
            found = verified(changed)
        except Invalid:
            found = {"no export"}
        done = subprocess.run([sys.executable, "-I", script, file, key], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (found == set()), (found, done)
        return done.stdout

    centre = [line["centre"] for line in lines if "centre" in line]
    agent = [n for n, line in enumerate(lines) if "agent" in line]
    assert says(lines).startswith("intact: 12 records of the centre")
    says(lines[:-1])
    says([line for line in lines if "head" not in line])
    says([line | {"centre": line["centre"] | {"actor": "eve"}} if "centre" in line else line for line in lines])
    says([*lines, {"centre": appended(centre, {"actor": "eve", "action": "policy.set", "after": ""})[0]}])
    says([*lines[: agent[1]], lines[agent[2]], lines[agent[1]], *lines[agent[2] + 1 :]])
    says([{**lines[0], "heads": [lines[0]["heads"][0] | {"at": "2030-01-01T00:00:00+00:00"}]}, *lines[1:]])


LATER = NOON + timedelta(days=3650)


@pytest.mark.fault(57)
def test_what_is_exported_leaves_the_centre_and_the_agent_and_verifies(used, tmp_path):
    (head,) = used.service.audit_anchor().heads
    limits = Limits(*[timedelta(days=1)] * 3, tmp_path / "audit")
    store = used.store.retention
    first = export_audit(store, limits, LATER, "h1", used.service.export_audit)
    assert verify_file(first, head.key, None).result == "intact"
    assert used.verify().result == "intact"
    used.apply()
    used.exchange()
    anchor = used.service.audit_anchor()
    second = export_audit(store, limits, LATER + timedelta(days=9), "h1", used.service.export_audit)
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
def test_records_deleted_without_an_export_are_found(used):
    with used.stopped():
        execute(
            used.database,
            "UPDATE audit_chain SET purged_seq = 4, purged_hash = (SELECT hash FROM audit WHERE seq = 4)",
            "DELETE FROM audit WHERE seq <= 4",
        )
    assert "no record names the export" in message(used.verify(), "cut")


ACTIONS = st.lists(st.sampled_from(["apply", "rollback", "refuse", "exchange", "restart", "exclude"]), max_size=6)
TAMPERS = st.sampled_from([None, "tail", "row", "rewrite", "empty", "forge", "direct", "older", "heads", "middle"])


def tamper(pinner, how, number, older):
    """One manipulation; False where it changes nothing."""
    length = pinner.store.audit.head().seq
    seq = number % length + 1
    if how == "forge":
        event = audit_event(EVE, NOON, AuditAction.RUN_CHANGE, "h1", f"run-{number}: process sshd (1)", "done")
        pinner.store.audit.append(event)
    elif how == "direct":
        pinner.agent.apply(pinner.plan(), make_run(f"run-{number}", actor="eve"), lambda *_: None)
    else:
        with pinner.stopped():
            if how == "tail":
                execute(pinner.database, f"DELETE FROM audit WHERE seq >= {seq}")
            elif how == "row":
                execute(pinner.database, f"UPDATE audit SET result = 'x' || result WHERE seq = {seq}")
            elif how == "rewrite":
                rewrite(
                    pinner.database, lambda rows: [row | {"actor": "eve"} if row["seq"] == seq else row for row in rows]
                )
            elif how == "middle":
                rewrite(pinner.database, lambda rows: [row for row in rows if row["seq"] != seq])
            elif how == "empty":
                execute(pinner.database, "DELETE FROM audit")
            elif how == "older":
                put_back(pinner.database, older)
            elif how == "heads":
                execute(pinner.database, "DELETE FROM agent_heads")


@pytest.mark.fault(46)
@settings(deadline=None, max_examples=15)
@given(before=ACTIONS, after=ACTIONS, how=TAMPERS, number=st.integers(0, 1000))
def test_a_trail_is_intact_if_and_only_if_nothing_was_manipulated(tmp_path_factory, empty, before, after, how, number):
    folder = tmp_path_factory.mktemp("trail")
    pinner = Installation(folder / "one", empty)
    try:
        copy(pinner.database, folder / "older")
        applied = [pinner.apply()]
        for action in [*before, *after]:
            act(pinner, action, applied)
        pinner.exchange()
        assert pinner.verify().result == "intact", pinner.verify()
        if how is not None:
            tamper(pinner, how, number, folder / "older")
            assert pinner.verify().result == "broken"
            for action in after:
                act(pinner, action, applied)
            assert pinner.verify().result == "broken"
    finally:
        pinner.stop()


def act(pinner, action, applied):
    match action:
        case "apply":
            applied.append(pinner.apply())
        case "rollback" if applied:
            with suppress(NotFound):  # the run was lost with the database
                pinner.rollback(applied.pop())
        case "refuse":
            pinner.refused()
        case "exchange":
            pinner.exchange()
        case "restart":
            with pinner.stopped():
                pass
        case "exclude":
            guest = "00000000-0000-4000-8000-000000000001"
            pinner.agent.set_excluded(guest, excluded=True)
            event = audit_event(ANN, NOON, AuditAction.GUEST_EXCLUDE, "h1", f"web ({guest})", "excluded")
            pinner.store.audit.append(event)
