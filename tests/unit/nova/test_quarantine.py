"""What is put away stays readable, bounded and private."""

import json
import stat

import pytest
from support.values import NOON

from pinner.model.event import GuestEvent
from pinner.nova import quarantine
from pinner.nova.notification import Message, Notified
from pinner.nova.quarantine import Quarantine


@pytest.fixture
def made(tmp_path):
    found = Quarantine(tmp_path / "state" / "quarantine.jsonl")
    yield found
    found.close()


def lines(made):
    return [json.loads(line) for line in made._file.read_text().splitlines()]


def test_each_is_a_line_and_counted(made, caplog):
    made.put(Message("p", "e", {"a": [1, float("nan"), object()]}, None, "t"), "it has no uuid")
    made.put(Notified("h1", GuestEvent("u", "started", "e\n", "nova", NOON)), "no such host")
    made.put(b"\xff\n", "bytes")
    first, second, third = lines(made)
    assert (first["why"], first["what"]["event_type"]) == ("it has no uuid", "e")
    assert second["what"]["event"]["event"] == "e\n"
    assert third["why"] == "bytes"
    assert made.count == 3
    assert "quarantined, 3 since the start" in caplog.text


def test_nobody_else_reads_it(made):
    assert stat.S_IMODE(made._file.stat().st_mode) == 0o600


def test_it_is_bounded(made, monkeypatch, tmp_path):
    monkeypatch.setattr(made._lines, "maxBytes", 300_000)
    for _ in range(20):
        made.put("x" * 1_000_000, "huge")
    files = list((tmp_path / "state").iterdir())
    assert len(files) == 2
    assert all(file.stat().st_size < 400_000 for file in files)
    assert all(len(line["what"]) <= quarantine.MAX_LINE for line in lines(made))
