"""A proxy whose connections freeze: the client gets no more bytes and no end, as after the loss of a network."""

import contextlib
import socket
import threading


class FrozenProxy:
    """Listens on ``port`` and forwards to a server on another port of this machine."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._servers: list[socket.socket] = []
        self._made: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Freeze the connections that exist. The server sees their end."""
        for server in self._servers:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
        self._servers.clear()

    def close(self) -> None:
        self._socket.close()
        for each in self._made:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._socket.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._server))
                self._made += (client, server)
                self._servers.append(server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
