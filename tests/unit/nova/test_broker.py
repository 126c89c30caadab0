"""The listener's side of the broker without one; tests/functional/test_listener_broker.py has a real RabbitMQ."""

import bz2
import logging
import lzma
import struct
import zlib

import amqp
import pytest
from amqp import serialization
from kombu import compression
from kombu.exceptions import DecodeError
from kombu.transport.pyamqp import Message

from pinner.nova import decompression, properties
from pinner.nova.broker_log import ConnectionLogFilter, MessageLogFilter


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
    decompression.bound()
    whole = bytes(decompression.MAX_BYTES)
    for body in (b"", b"{}", whole):
        assert compression.decompress(compress(body), name) == body
    for body in (compress(whole + b"x"), compress(b"{}" * 99)[:-9]):
        with pytest.raises(ValueError, match="more than 16777216 bytes, or is not complete"):
            compression.decompress(body, name)


def test_an_unknown_compression_is_refused():
    compression.register(bytes, bytes, "application/x-unheard-of", ["unheard-of"])
    decompression.bound()
    with pytest.raises(ValueError, match="does not accept this compression"):
        compression.decompress(b"", "unheard-of")


@pytest.fixture
def bounded_properties(monkeypatch):
    monkeypatch.setattr(serialization, "PROPERTY_CLASSES", dict(serialization.PROPERTY_CLASSES))
    properties.bound()


def received(encoded: bytes, body: bytes) -> Message:
    """A message of the broker: its properties as they are sent, and its body."""
    message = amqp.Message()
    message.inbound_header(struct.pack(">HHQ", 60, 0, len(body)) + encoded)
    message.inbound_body(body)
    message.delivery_info = {"delivery_tag": 1}
    return Message(message)


def sent(**given: str) -> bytes:
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
    most = b"1" + b" " * (decompression.MAX_BYTES - 1)
    assert received(encoded, most).payload == 1
    with pytest.raises(DecodeError, match="more than 16777216 bytes"):
        _ = received(encoded, most + b" ").payload


def test_errors_about_single_messages_are_logged_once_a_minute():
    clock = [100.0]
    messages = MessageLogFilter(lambda: clock[0])
    levels = [logging.ERROR, logging.WARNING, logging.INFO]
    assert [messages.filter(record(level, "x")) for level in levels] == [True, False, True]
    clock[0] += 59
    assert not messages.filter(record(logging.ERROR, "x"))
    clock[0] += 1
    assert messages.filter(record(logging.ERROR, "x"))
