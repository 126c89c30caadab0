"""The listener's side of the broker without one; tests/functional/test_listener_broker.py has a real RabbitMQ."""

import bz2
import logging
import lzma
import zlib

import pytest
from kombu import compression

from pinner.nova import decompression
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


def test_errors_about_single_messages_are_logged_once_a_minute():
    clock = [100.0]
    messages = MessageLogFilter(lambda: clock[0])
    levels = [logging.ERROR, logging.WARNING, logging.INFO]
    assert [messages.filter(record(level, "x")) for level in levels] == [True, False, True]
    clock[0] += 59
    assert not messages.filter(record(logging.ERROR, "x"))
    clock[0] += 1
    assert messages.filter(record(logging.ERROR, "x"))
