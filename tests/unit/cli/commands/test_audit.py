"""pinner audit: what the verbs print, and the files that they read and write."""

import json

import pytest
from support.fakes.in_memory_service import KEY, SIGNED_HEAD

from pinner.agent.trail.signing import pem
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.verification import AgentTrail, FindingKind, TrailFinding, verification


def test_verify_prints_both_trails(pinner, cli):
    result = cli("audit", "verify")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"intact: 0 records of the centre, head {'0' * 64}\nagent on h1: 1 records, head ")
    assert json.loads(cli("audit", "verify", "--json").out)["result"] == "intact"


def test_verify_counts_what_no_trail_of_an_agent_proves(pinner, cli, monkeypatch):
    monkeypatch.setattr(pinner, "verify_audit", lambda: verification(9, "", (), (), 3))
    assert cli("audit", "verify").out.endswith("\n3 records of hosts without a trail: nothing proves them\n")
    assert json.loads(cli("audit", "verify", "--json").out)["without_trail"] == 3


@pytest.mark.parametrize(("kind", "word"), [(FindingKind.UNREACHABLE, "incomplete"), (FindingKind.CUT, "broken")])
def test_verify_prints_each_finding(pinner, cli, monkeypatch, kind, word):
    finding = TrailFinding(kind, "agent", "h1", 3, "", "a sentence\x1b[31m")
    found = verification(9, "", [AgentTrail("h1", 0, None)], [finding])
    monkeypatch.setattr(pinner, "verify_audit", lambda: found)
    result = cli("audit", "verify")
    assert result.status == 1
    assert result.out.startswith(f"{kind.value}: a sentence\\x1b[31m\n{word}: 9 records of the centre, head -\n")


def test_anchor_and_verify_with_it(pinner, cli, tmp_path, monkeypatch):
    (tmp_path / "anchor.json").write_text(cli("audit", "anchor").out)
    asked = []
    monkeypatch.setattr(pinner, "verify_audit", lambda anchor: asked.append(anchor) or verification(0, "", [], []))
    assert cli("audit", "verify", "--anchor", tmp_path / "anchor.json").status == 0
    assert asked == [Anchor(1, (SIGNED_HEAD,))]


def test_export_and_verify_the_file(pinner, cli, tmp_path):
    file, key = tmp_path / "trail.jsonl", tmp_path / "key.pem"
    assert cli("audit", "export", file).err == f"wrote 2 lines to {file}\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trail.jsonl"]
    key.write_text(cli("audit", "key").out)
    assert key.read_text() == pem(KEY)
    result = cli("audit", "verify", "--file", file, "--public-key", key)
    assert result.status == 1
    assert "bad_signature: " in result.out
    again = cli("audit", "export", file)
    assert (again.status, "a file that does not exist yet" in again.err) == (2, True)


def test_the_key_as_json(pinner, cli):
    assert json.loads(cli("audit", "key", "--json").out) == {"host": "h1", "key": KEY}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("verify", "--file", "x"), "--public-key"),
        (("verify", "--public-key", "x"), "--file"),
        (("verify", "--anchor", "none.json"), "none.json"),
        (
            ("verify", "--anchor", "/dev/null"),
            "--anchor: '/dev/null' is not valid: a file that `pinner audit anchor` wrote",
        ),
        (("verify", "--file", "none", "--public-key", "/dev/null"), "--public-key"),
        (("key", "--host", "h2"), "one of h1"),
        (("export", "none/trail"), "none/trail"),
    ],
)
def test_bad_input(pinner, cli, tmp_path, monkeypatch, arguments, named):
    monkeypatch.chdir(tmp_path)
    result = cli("audit", *arguments)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert named in result.err
