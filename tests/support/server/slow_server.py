"""A server that sends what a test gives it, however slowly or much."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

HEAD = b"HTTP/1.1 200 OK\r\n"
LONGEST = 60.0
"""How long the server sends: a request that has ended before did not wait for the end."""


@contextmanager
def serving(*parts, drip=b"", pause=0.1, listening=None, tls=None):
    """The URL of a server that sends the parts to each client, and then ``drip`` periodically."""
    over = threading.Event()

    def answer(connection):
        with suppress(OSError), connection if tls is None else tls.wrap_socket(connection, server_side=True) as peer:
            peer.recv(65536)
            for part in parts:
                peer.sendall(part)
            end = time.monotonic() + LONGEST
            while drip and not over.wait(pause) and time.monotonic() < end:
                peer.sendall(drip)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    listening = listening or socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    name = listening.getsockname()
    yield f"unix:{name}" if isinstance(name, str) else f"{'https' if tls else 'http'}://127.0.0.1:{name[1]}"
    over.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
