"""The quarantine file is readable JSON, limited in size, and private."""

import json
import stat

import pytest
from support.values import NOON

from pinner.model.event import GuestEvent
from pinner.nova import quarantine
from pinner.nova.notification import Message, NovaEvent
from pinner.nova.quarantine import Quarantine


@pytest.fixture
def quarantine_file(tmp_path):
    opened = Quarantine(tmp_path / "state" / "quarantine.jsonl")
    yield opened
    opened.close()


def lines(quarantine_file):
    return [json.loads(line) for line in quarantine_file._file.read_text().splitlines()]


def test_each_message_is_one_line_and_is_counted(quarantine_file, caplog):
    quarantine_file.put(Message("p", "e", {"a": [1, float("nan"), object()]}, None, "t"), "it has no uuid")
    quarantine_file.put(NovaEvent("h1", GuestEvent("u", "started", "e\n", "nova", NOON)), "no such host")
    quarantine_file.put(b"\xff\n", "bytes")
    first, second, third = lines(quarantine_file)
    assert (first["why"], first["message"]["event_type"]) == ("it has no uuid", "e")
    assert second["message"]["guest_event"]["event"] == "e\n"
    assert third["why"] == "bytes"
    assert quarantine_file.count == 3
    assert "quarantined, 3 since the start" in caplog.text


def test_only_the_owner_can_read_the_file(quarantine_file):
    assert stat.S_IMODE(quarantine_file._file.stat().st_mode) == 0o600


def test_the_files_are_limited_in_size(quarantine_file, monkeypatch, tmp_path):
    monkeypatch.setattr(quarantine_file._lines, "maxBytes", 300_000)
    for _ in range(20):
        quarantine_file.put("x" * 1_000_000, "huge")
    files = list((tmp_path / "state").iterdir())
    assert len(files) == 2
    assert all(file.stat().st_size < 400_000 for file in files)
    assert all(len(line["message"]) <= quarantine.MAX_LINE for line in lines(quarantine_file))
