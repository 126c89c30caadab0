"""Watches the encrypted bytes that wait for a client of TLS.

asyncio's TLS transport passes all that is written on to the TCP transport, and then counts it as sent.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Observed(asyncio.BufferedProtocol):
    """Stands between a TCP transport and ``tls``, asyncio's own TLS protocol.

    ``pause`` is called when encrypted bytes begin to wait for the client, and ``resume`` when it has received them.
    """

    def __init__(self, tls: asyncio.BufferedProtocol, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._tls = tls
        self._pause = pause
        self._resume = resume

    def get_buffer(self, sizehint: int) -> "ReadableBuffer":
        """See BufferedProtocol."""
        return self._tls.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """See BufferedProtocol."""
        self._tls.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """See BufferedProtocol."""
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """See BaseProtocol."""
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        """See BaseProtocol."""
        self._tls.pause_writing()
        self._pause()

    def resume_writing(self) -> None:
        """See BaseProtocol. TLS may write more at once, and so wait again."""
        self._tls.resume_writing()
        self._resume()
