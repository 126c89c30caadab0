"""The privileged half of pinner: serves an agent on a Unix socket to an unprivileged API process."""

import logging
import os
import socket
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from pinner import codec
from pinner.agent import wire
from pinner.agent.protocol import Agent
from pinner.model.drift import Drift
from pinner.model.errors import Invalid, PinnerError, document
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan

LOG = logging.getLogger(__name__)


class AgentServer:
    """Answers each connection in a thread of its own; ``close`` waits for calls under way."""

    def __init__(self, agent: Agent, path: Path, user: int) -> None:
        """Listen at ``path``, open to the user with id ``user`` (and root) alone."""
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
        """Begin to answer."""
        self._accepting.start()

    def close(self) -> None:
        """Take no more calls, let those under way end, remove the socket."""
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
                answer = self._answer(peer, wire.receive(peer))
                wire.send(peer, result=answer)
            except PinnerError as error:
                self._refuse(peer, error)
            except (EOFError, BrokenPipeError):
                LOG.info("the caller went away before its answer")
            except Exception:
                LOG.exception("a call to the agent failed")
                self._refuse(peer, PinnerError("the agent failed; its log says why"))

    @staticmethod
    def _refuse(peer: Connection, error: PinnerError) -> None:
        try:
            wire.send(peer, error=document(error))
        except OSError:
            LOG.info("the caller went away before its answer: %s", error)

    def _answer(self, peer: Connection, call: dict[str, object]) -> object:
        def progress(entry: Entry, total: int) -> None:
            # A caller that has gone does not stop a run: it ends as planned, and the journal tells how.
            try:
                wire.send(peer, progress=entry, total=total)
            except OSError:
                LOG.info("run %s goes on without its caller", entry.run)

        match call.get("call"):
            case "snapshot":
                return self._agent.snapshot(float(str(call["sample_seconds"])))
            case "apply":
                return self._agent.apply(codec.read(Plan, call["plan"]), codec.read(Run, call["run"]), progress)
            case "rollback":
                return self._agent.rollback(codec.read(Run, call["run"]), progress)
            case "run":
                return self._agent.run(str(call["run"]))
            case "entries":
                return [codec.plain(entry) for entry in self._agent.entries(str(call["run"]))]
            case _:
                return self._tell(call)

    def _tell(self, call: dict[str, object]) -> object:
        match call.get("call"):
            case "news":
                after, timeout = int(str(call["after"])), float(str(call["timeout"]))
                names = codec.read(tuple[str, ...], call["names"])
                return [codec.plain(host_events) for host_events in self._agent.host_events(after, timeout, names)]
            case "knows":
                return self._agent.knows(str(call["guest"]))
            case "tell":
                self._agent.publish_guest_event(str(call["guest"]), str(call["words"]))
                return None
            case "policy_set":
                self._agent.policy_set()
                return None
            case "explain":
                drifts = codec.read(tuple[Drift, ...], call["drifts"])
                return [codec.plain(drift) for drift in self._agent.explain(drifts)]
            case "set_exempt":
                self._agent.set_excluded(str(call["guest"]), excluded=codec.read(bool, call["excluded"]))
                return None
            case other:
                raise Invalid("call", other, "one that Agent has")
