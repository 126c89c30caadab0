import logging
import os
import pwd
import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from oslo_config import cfg

from pinner import codec, wiring
from pinner.model.errors import NotPermitted, PinnerError, document, revive
from pinner.owners import require_own
from pinner.server import agent_process, api_process, installation, privileges, sockets
from pinner.service.protocol import Service
from pinner.service.remote.remote import RemoteService
from pinner.service.remote.rest_client import UNIX

LOG = logging.getLogger(__name__)
Inform = Callable[[str], None]
"""Shows a sentence to the person at the terminal."""


@contextmanager
def open_service(config: cfg.ConfigOpts, actor: str, inform: Inform) -> Iterator[Service]:
    """Of the server that runs here, else of this process alone. ``actor``: for whom root calls. Raises NotPermitted."""
    with ExitStack() as undo:
        if path := _server(config, inform):
            remote = RemoteService(f"{UNIX}{path}", actor=actor)
            undo.callback(remote.close)
            yield remote
            return
        url = wiring.database_url(config)
        if owner := privileges.other_owner(url):
            yield _private_service(config, url, owner, actor, undo)
            return
        agent = wiring.local_agent(config, {os.getpid()}, undo)
        yield wiring.service_parts(config, {wiring.host_name(config): agent}, url, undo).service


def _server(config: cfg.ConfigOpts, inform: Inform) -> Path | None:
    """None also where this user works alone."""
    path = wiring.api_socket(config)
    require_own(path.parent, "[api] socket" if config.api.socket else "[agent] state_dir")
    if sockets.answers(path):
        return path
    system = wiring.SOCKETS_OF_ROOT / path.name
    if path == system or not wiring.has_own_state(config):
        return None
    try:
        return system if sockets.answers(system) else None
    except NotPermitted as error:
        # A user without the right to call the system's server has always worked with a state folder of their own.
        inform(f"this command works alone, with the state in {wiring.state_dir(config)}; {error}")
        return None


def _private_service(
    config: cfg.ConfigOpts, url: str, owner: pwd.struct_passwd, actor: str, undo: ExitStack
) -> RemoteService:
    """The agent in this process, the API in a child without root. Only ``owner`` may connect to the agent, only root to
    the API. Raises the API's error."""
    folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="pinner-", dir="/run")))
    folder.chmod(0o711)
    path = folder / "agent.sock"
    listener = sockets.listen_unix(folder / "api.sock", "[api] socket")
    # The child ends when this process has ended, and so the pipe; it writes whether it has started into the other pipe.
    ends, keeps = os.pipe()
    reports, report = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for unused in (keeps, reports):
                os.close(unused)
            status = _api_process(config, url, owner, path, listener, ends, report)
        finally:
            os._exit(status)  # Ctrl-C, too, must not unwind the command's own stack here
    for unused in (ends, report):
        os.close(unused)
    listener.close()
    undo.callback(os.waitpid, child, 0)
    undo.callback(os.close, keeps)
    agent = wiring.local_agent(config, {os.getpid(), child}, undo)
    agent_process.answer(agent, path, owner.pw_uid, undo)
    with suppress(BrokenPipeError):  # the API has ended already; its report says why
        os.write(keeps, b".")
    _wait_started(reports)
    remote = RemoteService(f"{UNIX}{folder}/api.sock", actor=actor, where="")
    undo.callback(remote.close)
    return remote


def _wait_started(reports: int) -> None:
    with os.fdopen(reports, "rb") as stream:
        report = stream.read()
    if not report:
        raise PinnerError("the API of this command ended before it had started")
    if error := codec.load(dict[str, object], report):
        raise revive(str(error["code"]), str(error["message"]), error["details"])  # type: ignore[arg-type]


def _api_process(
    config: cfg.ConfigOpts,
    url: str,
    owner: pwd.struct_passwd,
    path: Path,
    listener: socket.socket,
    ends: int,
    report: int,
) -> int:
    try:
        # Ctrl-C reaches the command alone, which lets a run end first. The child loses root's terminal.
        os.setsid()
        installation.keep_readable(owner)
        privileges.drop(owner)
        if not os.read(ends, 1):
            return 1
        with ExitStack() as undo:
            agent = wiring.agent_client(config, path)
            api_process.start(config, agent, url, [listener], undo)
            os.write(report, b"{}")
            os.close(report)
            select.select([ends], [], [])
    except PinnerError as error:
        os.write(report, codec.dump(document(error)))
        return 1
    except Exception:
        LOG.exception("the API of this command ended")
        return 1
    return 0
