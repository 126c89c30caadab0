"""Messages to the listener that are hostile or odd."""

import bz2
import json
import struct
import zlib
from functools import cache

import amqp
from support.nova.nova_listener import TOPIC, connection, publish
from support.nova.samples import OWN


def send_raw(rabbit, body, **properties):
    """Send a message with any properties of AMQP."""
    given = {"content_type": "application/json", "content_encoding": "utf-8", **properties}
    with connection(rabbit) as channel:
        channel.basic_publish(amqp.Message(body, **given), exchange="nova", routing_key=TOPIC)


class RawMessage(amqp.Message):
    """A message whose properties are these bytes, as a program without this library can send them."""

    def __init__(self, body, properties):
        super().__init__(body)
        self._bytes = properties

    def _serialize_properties(self):
        return self._bytes


def send_bytes(rabbit, properties):
    """Send a notification whose properties are these bytes."""
    with connection(rabbit) as channel:
        channel.basic_publish(RawMessage(enveloped(GOOD), properties), exchange="nova", routing_key=TOPIC)


def headers(table):
    """Properties that have only the headers of this table."""
    return struct.pack(">HI", 1 << 13, len(table)) + table


def nested(depth):
    """A table in a table, and so on."""
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    return table


def enveloped(message, version="2.0"):
    return json.dumps({"oslo.version": version, "oslo.message": message}).encode()


def sample(**data):
    found = OWN.load("create-end")
    found["payload"]["nova_object.data"] |= data
    return found


GOOD = json.dumps(OWN.load("create-end"))


@cache
def bomb():
    return zlib.compress(bytes(256 << 20), 9)


def bomb_of_bz2():
    return bz2.compress(bytes(1 << 30))


HOSTILE = {
    "garbage of 10 MiB": lambda rabbit: send_raw(rabbit, b"x" * (10 << 20)),
    "nested JSON of 5 MiB": lambda rabbit: send_raw(rabbit, b"[" * (5 << 20)),
    "a nested message": lambda rabbit: send_raw(rabbit, enveloped("[" * (1 << 20))),
    "a message of messages": lambda rabbit: send_raw(rabbit, enveloped(enveloped(GOOD).decode())),
    "a message that is no text": lambda rabbit: send_raw(rabbit, enveloped([GOOD])),
    "a message of null": lambda rabbit: send_raw(rabbit, enveloped(None)),
    "another version": lambda rabbit: send_raw(rabbit, enveloped(GOOD, "7.x")),
    "a version that is no text": lambda rabbit: send_raw(rabbit, enveloped(GOOD, [])),
    "no envelope": lambda rabbit: send_raw(rabbit, b"{}"),
    "nothing": lambda rabbit: send_raw(rabbit, b""),
    "pickle": lambda rabbit: send_raw(rabbit, b"cos\nsystem\n", content_type="application/x-python-serialize"),
    "an unknown encoding": lambda rabbit: send_raw(rabbit, GOOD.encode(), content_encoding="bogus"),
    "a bomb": lambda rabbit: send_raw(rabbit, bomb(), application_headers={"compression": "application/x-gzip"}),
    "an unknown compression": lambda rabbit: send_raw(rabbit, bomb(), application_headers={"compression": "bogus"}),
    "a name of 10 MiB": lambda rabbit: publish(rabbit.url, sample(display_name="n" * (10 << 20))),
    "a publisher of 1 MiB": lambda rabbit: publish(rabbit.url, sample() | {"publisher_id": "x" * (1 << 20)}),
    "an encoding that expands": lambda rabbit: send_raw(
        rabbit, bomb_of_bz2(), content_type="text/plain", content_encoding="bz2"
    ),
    "100 MiB of JSON": lambda rabbit: send_raw(rabbit, enveloped("[" + "{}," * (33 << 20) + "{}]")),
    "a message id that is no UTF-8": lambda rabbit: send_bytes(rabbit, struct.pack(">HB", 1 << 7, 1) + b"\xff"),
    "a time that no calendar has": lambda rabbit: send_bytes(rabbit, headers(b"\x01tT" + struct.pack(">Q", 1 << 60))),
    "nested headers": lambda rabbit: send_bytes(rabbit, headers(nested(10_000))),
    "a priority of its own": lambda rabbit: publish(rabbit.url, sample() | {"priority": 7}),
}
