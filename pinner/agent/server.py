"""The server of an agent that runs as root: it answers the unprivileged API process on a Unix socket."""

import logging
import os
import socket
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from pinner.agent import calls, wire
from pinner.agent.protocol import Agent, Progress
from pinner.model.errors import PinnerError, document
from pinner.model.journal import Entry

LOG = logging.getLogger(__name__)


class AgentServer:
    """Answers each connection in its own thread; ``close`` waits until running calls end."""

    def __init__(self, agent: Agent, path: Path, user: int) -> None:
        """Listen at ``path``. Only root and the user with id ``user`` may connect."""
        self._agent = agent
        self._path = path
        self._calls: list[threading.Thread] = []
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(mask)
        if os.geteuid() == 0:
            os.chown(path, user, -1)
        self._socket.listen()
        self._accepting = threading.Thread(target=self._accept, name="agent-accept", daemon=True)

    def start(self) -> None:
        """Start to answer calls."""
        self._accepting.start()

    def close(self) -> None:
        """Remove the socket, accept no more calls, and wait until running calls end."""
        self._path.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join()
        for call in self._calls:
            call.join()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self._calls = [call for call in self._calls if call.is_alive()]
            call = threading.Thread(target=self._serve, args=(Connection(peer.detach()),), name="agent-call")
            self._calls.append(call)
            call.start()

    def _serve(self, peer: Connection) -> None:
        with peer:
            try:
                result = calls.answer(self._agent, wire.receive(peer), self._progress_to(peer))
                wire.send(peer, result=result)
            except PinnerError as error:
                self._refuse(peer, error)
            except (EOFError, BrokenPipeError):
                LOG.info("the caller has disconnected before it got its answer")
            except Exception:
                LOG.exception("a call to the agent failed")
                self._refuse(peer, PinnerError("the agent failed; its log has the reason"))

    @staticmethod
    def _refuse(peer: Connection, error: PinnerError) -> None:
        try:
            wire.send(peer, error=document(error))
        except OSError:
            LOG.info("the caller has disconnected before it got its answer: %s", error)

    @staticmethod
    def _progress_to(peer: Connection) -> Progress:
        def progress(entry: Entry, total: int) -> None:
            # A caller that disconnects does not stop a run: it continues to its end, and the journal has its result.
            try:
                wire.send(peer, progress=entry, total=total)
            except OSError:
                LOG.info("the caller of run %s has disconnected; the run continues", entry.run)

        return progress
