"""`pinner serve`: the API, the agent and the database of one host in one command.

Started as root, pinner becomes two processes. The agent stays root and listens on a Unix socket. The API gives up root
before its first request, and reaches the host only through that socket. Started by another user, pinner is one process
with that user's rights.
"""

import ctypes
import fcntl
import logging
import os
import pwd
import select
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner import wiring
from pinner.agent.client import AgentClient
from pinner.agent.protocol import Agent
from pinner.agent.server import AgentServer
from pinner.model.errors import Invalid, PinnerError
from pinner.planning.strategy import installed
from pinner.render import visible
from pinner.server import privileges
from pinner.server.signals import asked_to_end
from pinner.service.reconciler import ACTOR
from pinner.store.engine import load_driver
from pinner.store.repositories import open_store

LOG = logging.getLogger(__name__)
_M_ARENA_MAX = -8
PACKAGES = ("pinner.api", "pinner.agent", "pinner.store", "apiflask", "flask", "werkzeug", "cheroot", "pydantic",
            "sqlalchemy", "rfc8785", "oslo_log")  # fmt: skip
"""The packages that the API needs. They are imported before root is given up."""


def serve(config_files: list[Path] | None, bind: str | None, port: int | None) -> None:
    """Serve until SIGINT or SIGTERM. Raises PinnerError where serving cannot begin."""
    _use_one_heap()
    config = wiring.configuration(config_files)
    log.setup(config, "pinner")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    address = _ApiAddress(
        config.api.bind if bind is None else bind,
        config.api.port if port is None else port,
        read_tokens(config.api.token_file),
    )
    if os.geteuid() == 0:
        _serve_apart(config, address)
        return
    with ExitStack() as undo:
        agent = wiring.local_agent(config, {os.getpid()}, undo, watch=True)
        _serve_api(config, agent, wiring.database_url(config), address)


def read_tokens(file: str | None) -> dict[str, str] | None:
    """The accepted tokens with their names, from lines ``name:token``; None without a file.

    Raises Invalid, which names the line's number but never shows the line.
    """
    if not file:
        return None
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid("[api] token_file", file, f"a file that can be read ({error})") from None
    tokens = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, token = (part.strip() for part in line.partition(":"))
        if not (name and colon and token) or token in tokens:
            raise Invalid("[api] token_file", f"{file}, line {number}", "name:token, each token once")
        if name == ACTOR:
            raise Invalid("[api] token_file", f"{file}, line {number}", f"another name: {ACTOR} is pinner's own")
        tokens[token] = name
    if not tokens:
        raise Invalid("[api] token_file", file, "a file with at least one line name:token")
    return tokens


def _use_one_heap() -> None:
    """Use one malloc heap. glibc gives new threads heaps of their own (mallopt(3)), which only grow; Python runs one
    thread at a time, so more heaps bring no speed."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


@dataclass(frozen=True, slots=True)
class _ApiAddress:
    """The address that the API listens on, and the tokens that it accepts."""

    bind: str
    port: int
    tokens: dict[str, str] | None


def _serve_api(config: cfg.ConfigOpts, agent: Agent, database: str, address: _ApiAddress, *ends: int) -> None:
    """Serve the API until a signal arrives, or until one of the file descriptors ``ends`` can be read."""
    # Imported here: the agent's process does not need these modules in its memory.
    from pinner.api.app import create_app
    from pinner.api.server import serve as listen

    asked = asked_to_end()
    host = wiring.host_name(config)
    with ExitStack() as undo:
        parts = wiring.service_parts(config, {host: agent}, database, undo)
        app = create_app(parts.service, tokens=address.tokens, max_body_bytes=config.api.max_body_kib * 1024)
        server = listen(app, address.bind, address.port)
        undo.callback(server.stop)
        wiring.start_controller(config, parts.reconciler, host, undo)
        print(f"pinner serves host {host} at {server.url} (Ctrl-C ends it)", flush=True)
        select.select([asked, *ends], [], [])


def _serve_apart(config: cfg.ConfigOpts, address: _ApiAddress) -> None:
    """Run the agent in this process and the API in a child process without root. When one ends, the other ends too."""
    account = privileges.unprivileged(config.api.user)
    # The default state folder depends on the user, and the child runs as another user.
    database = wiring.database_url(config)
    lock = _lock(wiring.state_dir(config))
    socket = _prepare(config, account)
    # The child reads a byte when the agent listens, and the end of the pipe when this process has ended.
    child_end, own_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(own_end)
        os.close(lock)  # the API may end a moment after the agent, which a new server may replace at once
        os._exit(_api_process(config, account, socket, database, address, child_end))
    os.close(child_end)
    with ExitStack() as undo:
        undo.callback(os.close, lock)
        undo.callback(_end, child)
        agent = wiring.local_agent(config, {os.getpid(), child}, undo, watch=True)
        server = AgentServer(agent, socket, account.pw_uid)
        undo.callback(server.close)
        undo.callback(agent.close)  # runs before server.close, which waits for its callers
        server.start()
        asked, gone = asked_to_end(), os.pidfd_open(child)
        with suppress(BrokenPipeError):  # the API has ended already; its exit status says why
            os.write(own_end, b".")
        if asked in select.select([asked, gone], [], [])[0]:
            _signal(child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise SystemExit(status)


def _lock(state: Path) -> int:
    """Lock the state folder for this process, and return the lock's file descriptor; the kernel ends the lock with it.

    A second server would replace the first one's socket, and resolve the first one's run. Raises Invalid.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = os.open(state, os.O_RDONLY)
    except OSError as error:
        raise Invalid("[agent] state_dir", str(state), f"a writable folder ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Invalid("[agent] state_dir", str(state), "a folder that no other running `pinner serve` uses") from None
    return lock


def _prepare(config: cfg.ConfigOpts, account: pwd.struct_passwd) -> Path:
    """Make the state folder with one part for the agent and one for the API; returns the path of the agent's socket."""
    state = wiring.state_dir(config)
    for folder, mode in ((state, 0o711), (state / "agent", 0o700), (state / "api", 0o700)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    url = wiring.database_url(config)
    if not config.database.connection:
        with open_store(url):
            pass
    for path in (state / "api", *(state / "api").iterdir()):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    return state / "agent.sock"


def _api_process(
    config: cfg.ConfigOpts, account: pwd.struct_passwd, socket: Path, database: str, address: _ApiAddress, parent: int
) -> int:
    """Give up root and serve the API, once the agent listens; returns the exit status."""
    try:
        privileges.preload(PACKAGES)
        load_driver(database)
        installed()
        privileges.drop(account)
        if not os.read(parent, 1):
            return 1
        _serve_api(config, AgentClient(wiring.host_name(config), socket), database, address, parent)
    except PinnerError as error:
        print(f"pinner: error: {visible(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, Invalid) else 1
    except Exception:
        LOG.exception("the API ended")
        return 1
    return 0


def _signal(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def _end(child: int) -> None:
    """End the API, also where the agent did not start or has failed."""
    _signal(child)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
