"""The quarantine file is readable JSON, limited in size, and private."""

import json
import os
import stat
import uuid

import pytest
from support.values import NOON

from pinner.model.errors import Invalid
from pinner.model.event import GuestEvent
from pinner.nova.broker import quarantine
from pinner.nova.broker.notification import Message, NovaEvent, parse
from pinner.nova.broker.quarantine import Quarantine


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


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_only_the_owner_can_read_the_files(usual_umask, tmp_path, monkeypatch):
    """Also the file that begins where the earlier one is full."""
    opened = Quarantine(tmp_path / "quarantine.jsonl")
    monkeypatch.setattr(opened._lines, "maxBytes", 1000)
    for _ in range(4):
        opened.put("x" * 600, "huge")
    opened.close()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"quarantine.jsonl": 0o600, "quarantine.jsonl.1": 0o600}


@pytest.mark.parametrize("name", ["event_type", "timestamp", "flavor"])
def test_a_reason_that_quotes_a_long_value_is_cut(quarantine_file, caplog, name):
    """Any program with access to the broker could write 16 MiB into one line of the log."""
    long = ["x" * 1_000_000]
    flavor = {"nova_object.version": "1.0", "nova_object.data": {"name": "f"}}
    usual = {"event_type": "instance.create.end", "timestamp": "2026-11-21 10:00:00", "flavor": flavor}
    given = usual | {name: long}
    data = {"uuid": str(uuid.uuid4()), "host": "h1", "tenant_id": "p", "user_id": "u", "flavor": given["flavor"]}
    payload = {"nova_object.version": "1.0", "nova_object.data": data}
    message = Message("nova-compute:h1", given["event_type"], payload, {}, given["timestamp"])
    with pytest.raises(Invalid) as refused:
        parse(message)
    quarantine_file.put(message, str(refused.value))
    assert len(caplog.text) < 2 * quarantine.MAX_REASON
    assert quarantine_file._file.stat().st_size < 2 * quarantine.MAX_LINE


def test_the_files_are_limited_in_size(quarantine_file, monkeypatch, tmp_path):
    monkeypatch.setattr(quarantine_file._lines, "maxBytes", 300_000)
    for _ in range(20):
        quarantine_file.put("x" * 1_000_000, "huge")
    files = list((tmp_path / "state").iterdir())
    assert len(files) == 2
    assert all(file.stat().st_size < 400_000 for file in files)
    assert all(len(line["message"]) <= quarantine.MAX_LINE for line in lines(quarantine_file))
