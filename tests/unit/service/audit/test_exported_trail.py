"""The verification of exports, by pinner and by the verifier of the documents."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pinner.agent.trail.signing import pem
from pinner.model.errors import Invalid
from pinner.model.run.agent_audit import ChainHead
from pinner.service.audit import audit_trail
from pinner.service.audit.audit_export import verify_file
from pinner.store.audit.chain import link


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
        with pytest.raises(Invalid, match=r"changed\.jsonl, line \d+: centre: "):
            verified(lines)


def test_a_file_that_is_no_export(export):
    lines, verified = export
    hidden = [line | {"centre": lines[-1]["centre"]} if "head" in line else line for line in lines]
    for wrong in ([lines[0], '{"centre":' + "[" * 100_000], hidden, [{**lines[0], "more": 1}, *lines[1:]]):
        with pytest.raises(Invalid, match=r"changed\.jsonl, line \d+"):
            verified(wrong)


def test_a_wrong_number_of_an_export_is_named_by_file_line_and_field(export):
    lines, verified = export
    lines[0]["heads"][0]["seq"] = 2**64
    with pytest.raises(Invalid, match=rf"changed\.jsonl, line 1: heads\.0\.seq: {2**64} is not valid"):
        verified(lines)


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


def test_a_head_that_comes_during_an_export_is_not_in_it(used, tmp_path, monkeypatch):
    settled = audit_trail.AuditTrail._settled_extent

    def head_comes(trail):
        extent = settled(trail)
        used.apply()
        used.exchange()
        return extent

    monkeypatch.setattr(audit_trail.AuditTrail, "_settled_extent", head_comes)
    file = tmp_path / "trail.jsonl"
    file.write_text("".join(used.service.export_audit()))
    (head,) = json.loads(file.read_text().partition("\n")[0])["heads"]
    assert len(used.store.agent_heads.of("h1")) > file.read_text().count('"head"')
    assert verify_file(file, head["key"], None).findings == ()


def test_the_verifier_of_the_documents_agrees(export, tmp_path):
    lines, verified = export
    page = Path(__file__).parents[4] / "docs" / "audit-export.md"
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
