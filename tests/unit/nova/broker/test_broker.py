"""The listener's side of the broker without one; tests/functional/nova/test_listener_broker.py has a real RabbitMQ."""

import bz2
import json
import logging
import lzma
import struct
import tracemalloc
import zlib

import amqp
import pytest
from amqp import serialization
from kombu import compression
from kombu.exceptions import DecodeError
from kombu.serialization import registry as serialization_of_kombu
from kombu.transport.pyamqp import Message
from support.nova.samples import SETS

from pinner import codec
from pinner.nova.broker import bounds
from pinner.nova.broker.broker_log import ConnectionLogFilter, MessageLogFilter


def record(level: int, text: str, error: Exception | None = None) -> logging.LogRecord:
    return logging.LogRecord("x", level, "x", 1, text, (), (type(error), error, None) if error else None)


def test_a_message_that_cannot_be_decoded_is_no_loss_of_the_connection(caplog):
    """oslo.messaging logs it as an error with a traceback, by the same logger."""
    lost = []
    connection = ConnectionLogFilter(lost.append)
    for _ in range(1000):
        unreadable = record(logging.ERROR, "Failed to process message ... skipping it.", ValueError("no JSON\x1b[2J"))
        assert not connection.filter(unreadable)
    assert lost == []
    assert caplog.messages == ["a message that cannot be decoded was dropped: no JSON\\x1b[2J"]
    assert connection.filter(record(logging.ERROR, "AMQP server on h is unreachable"))
    assert lost == ["AMQP server on h is unreachable"]


@pytest.mark.parametrize(
    ("name", "compress"), [("gzip", zlib.compress), ("bzip2", bz2.compress), ("lzma", lzma.compress)]
)
def test_a_compressed_message_is_bounded(name, compress):
    bounds.bound_compression()
    whole = bytes(bounds.MAX_BYTES)
    for body in (b"", b"{}", whole):
        assert compression.decompress(compress(body), name) == body
    for body in (compress(whole + b"x"), compress(b"{}" * 99)[:-9]):
        with pytest.raises(ValueError, match="more than 16777216 bytes, or is not complete"):
            compression.decompress(body, name)


def test_an_unknown_compression_is_refused():
    compression.register(bytes, bytes, "application/x-unheard-of", ["unheard-of"])
    bounds.bound_compression()
    with pytest.raises(ValueError, match="does not accept this compression"):
        compression.decompress(b"", "unheard-of")


@pytest.fixture
def bounded_properties(monkeypatch):
    monkeypatch.setattr(serialization, "PROPERTY_CLASSES", dict(serialization.PROPERTY_CLASSES))
    bounds.bound_properties()


def received(encoded: bytes, body: bytes) -> Message:
    """A message of the broker: its properties as they are sent, and its body."""
    message = amqp.Message()
    message.inbound_header(struct.pack(">HHQ", 60, 0, len(body)) + encoded)
    message.inbound_body(body)
    message.delivery_info = {"delivery_tag": 1}
    return Message(message)


def sent(**given: object) -> bytes:
    return amqp.Message(**given)._serialize_properties()


def headers(table: bytes) -> bytes:
    return struct.pack(">HI", 1 << 13, len(table)) + table


def nested(depth: int) -> bytes:
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    return table


@pytest.mark.usefixtures("bounded_properties")
def test_a_notification_is_decoded_as_before():
    message = received(sent(content_type="application/json", content_encoding="utf-8"), b'{"name": "\xc3\xa4"}')
    assert message.payload == {"name": "\u00e4"}


@pytest.mark.usefixtures("bounded_properties")
@pytest.mark.parametrize(
    "encoded",
    [
        struct.pack(">HB", 1 << 7, 1) + b"\xff",
        headers(b"\x01tT" + struct.pack(">Q", 1 << 60)),
        headers(b"\x01tZ"),
        headers(nested(10_000)),
        headers(b"")[:-1],
        sent(content_type="text/plain", content_encoding="bz2"),
        sent(content_type="application/text", content_encoding="zlib"),
        sent(content_type="application/x-yaml"),
        sent(),
    ],
    ids=["no UTF-8", "no time", "no kind", "nested", "cut", "text", "trusted text", "YAML", "none"],
)
def test_a_message_with_other_properties_is_dropped_and_not_expanded(encoded):
    with pytest.raises(DecodeError, match="its type is not application/json"):
        _ = received(encoded, bz2.compress(bytes(1 << 20))).payload


@pytest.mark.usefixtures("bounded_properties")
def test_a_message_that_is_not_compressed_is_bounded_too():
    encoded = sent(content_type="application/json")
    most = b"1" + b" " * (bounds.MAX_BYTES - 1)
    assert received(encoded, most).payload == 1
    with pytest.raises(DecodeError, match="more than 16777216 bytes"):
        _ = received(encoded, most + b" ").payload


@pytest.fixture
def refused(monkeypatch, bounded_properties):
    """What was refused because of its values."""
    monkeypatch.setattr(serialization_of_kombu, "_decoders", dict(serialization_of_kombu._decoders))
    bounds.bound_compression()
    refused = []
    bounds.bound_values(lambda *message: refused.append(message))
    return refused


def envelope(text: str) -> bytes:
    return json.dumps({"oslo.version": "2.0", "oslo.message": text}).encode()


def decoded(body: bytes) -> object:
    """What oslo.messaging makes of the body, which is sent compressed."""
    encoded = sent(content_type="application/json", application_headers={"compression": "application/x-gzip"})
    return json.loads(received(encoded, zlib.compress(body)).payload["oslo.message"])


@pytest.mark.parametrize(
    "body",
    [
        envelope("[" + "[]," * 5_000_000 + "[]]"),
        envelope("[" + "{}," * 5_000_000 + "{}]"),
        envelope("[" + "1e1," * 4_000_000 + "1]"),
        b"[" + b"[]," * 5_000_000 + b"[]]",
        b"{" + b",".join(b'"%x":1' % number for number in range(1_000_000)) + b"}",
        b'{"oslo.version":"2.0","oslo.message":"[' + rb"\u005b\u005d\u002c" * 900_000 + b'1]"}',
    ],
    ids=["lists", "objects", "numbers", "lists outside", "names", "escaped"],
)
def test_a_message_with_millions_of_values_takes_little_memory_and_is_quarantined_once(refused, body):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="values, more than 100000"):
            decoded(body)
        assert tracemalloc.get_traced_memory()[1] < 5 * bounds.MAX_BYTES
    finally:
        tracemalloc.stop()
    ((begin, why),) = refused
    assert 0 < len(begin) <= 4096
    assert "more than 100000" in why


@pytest.mark.parametrize("samples", SETS, ids=str)
def test_novas_notifications_have_a_hundredth_of_the_values(refused, samples):
    for name in samples.names:
        body = envelope(json.dumps(samples.load(name)))
        assert decoded(body) == samples.load(name)
        assert 100 * codec.most_values(body) < bounds.MAX_VALUES
    assert refused == []


def test_errors_about_single_messages_are_logged_once_a_minute():
    clock = [100.0]
    messages = MessageLogFilter(lambda: clock[0])
    levels = [logging.ERROR, logging.WARNING, logging.INFO]
    assert [messages.filter(record(level, "x")) for level in levels] == [True, False, True]
    clock[0] += 59
    assert not messages.filter(record(logging.ERROR, "x"))
    clock[0] += 1
    assert messages.filter(record(logging.ERROR, "x"))
