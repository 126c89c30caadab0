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


def nested(depth, value=None):
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "payload",
    ["\ud800", {"\udfff": 1}, nested(600), nested(600, "\ud800"), nested(100_000, "\ud800"), 1 << 20_000],
    ids=["text", "name", "nested", "nested text", "nested deeply", "number"],
)
def test_any_message_is_written(quarantine_file, payload, caplog):
    """What JSON can express and UTF-8 or Python's stack cannot."""
    quarantine_file.put(Message("nova-compute:h1", "instance.create.end", payload, {}, "t"), "wrong \ud800")
    quarantine_file.put(NovaEvent("h1", GuestEvent("u", "started", "e", "\ud800", NOON)), "fine")
    first, second = lines(quarantine_file)
    assert "instance.create.end" in str(first) or "too deeply" in str(first)
    assert "\\ud800" in second["message"]
    assert "wrong \\ud800" in caplog.text.encode().decode()


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
