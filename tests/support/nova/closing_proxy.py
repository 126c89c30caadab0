"""A proxy before a real broker, which closes the channel after each message that the broker delivers (AMQP 0-9-1).

Both peers confirm this close, and neither of them expects the other's confirmation. A client that closes a channel
itself gets the broker's confirmation, unless the proxy is silent.
"""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

_METHOD, _BODY = 1, 3
_CLOSE, _CLOSE_OK, _DELIVER = (20, 40), (20, 41), (60, 60)
_END = b"\xce"


def _close(channel: int) -> bytes:
    text = b"PRECONDITION_FAILED - closed by the test"
    payload = struct.pack(">HHHB", *_CLOSE, 406, len(text)) + text + struct.pack(">HH", *_DELIVER)
    return struct.pack(">BHI", _METHOD, channel, len(payload)) + payload + _END


def _frames(source: socket.socket) -> Iterator[tuple[int, int, tuple[int, ...], bytes]]:
    """Type, channel, class and method, and the bytes of each frame."""
    stream = source.makefile("rb")
    while len(head := stream.read(7)) == 7:
        kind, channel, size = struct.unpack(">BHI", head)
        body = stream.read(size + 1)
        yield kind, channel, struct.unpack(">HH", body[:4]) if kind == _METHOD else (), head + body


class ClosingProxy:
    """Listens on ``port`` and forwards to a broker on another one."""

    def __init__(self, broker: int, *, silent: bool = False) -> None:
        """``silent``: no close of a channel by the client is confirmed."""
        self._broker = broker
        self._silent = silent
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.closed = 0
        """How many channels were closed."""
        self.withheld = 0
        """How many answers the client waits for in vain."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                broker = socket.create_connection(("127.0.0.1", self._broker))
                broker.sendall(client.recv(8, socket.MSG_WAITALL))
                by_client: Counter[int] = Counter()
                by_broker: Counter[int] = Counter()
                peers = (client, broker, by_client, by_broker)
                threading.Thread(target=self._to_broker, args=peers[:3], daemon=True).start()
                threading.Thread(target=self._to_client, args=peers, daemon=True).start()

    def _to_broker(self, client: socket.socket, broker: socket.socket, unconfirmed: Counter[int]) -> None:
        with contextlib.suppress(OSError), broker:
            for _, channel, method, frame in _frames(client):
                if method == _CLOSE_OK and unconfirmed[channel]:
                    unconfirmed[channel] -= 1
                else:
                    broker.sendall(frame)

    def _to_client(
        self, client: socket.socket, broker: socket.socket, by_client: Counter[int], by_broker: Counter[int]
    ) -> None:
        delivering = set()
        with contextlib.suppress(OSError), client:
            for kind, channel, method, frame in _frames(broker):
                if method == _CLOSE_OK and by_broker[channel]:
                    # Only now may the client open the channel again.
                    by_broker[channel] -= 1
                    by_client[channel] += 1
                    client.sendall(_close(channel))
                elif method == _CLOSE_OK and self._silent:
                    self.withheld += 1
                else:
                    client.sendall(frame)
                if method == _DELIVER:
                    delivering.add(channel)
                if kind == _BODY and channel in delivering:
                    delivering.discard(channel)
                    self.closed += 1
                    by_broker[channel] += 1
                    broker.sendall(_close(channel))
