"""`pinner serve`: the API, the agent and the database of one host. Root starts two processes: the agent stays root, the
API gets its listening sockets, gives up root and opens the database. Another user starts one. Each can be served
alone."""

import gc
import logging
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner import wiring
from pinner.agent.freed_memory import use_one_heap
from pinner.api.access.tls import TlsFiles, server_context
from pinner.model.errors import Invalid, PinnerError
from pinner.owners import require_own
from pinner.server import agent_process, api_process, folders, privileges, sockets
from pinner.server.privileges import require_closed
from pinner.server.sockets import ApiAddress
from pinner.server.supervisor import Supervisor
from pinner.worker import Heartbeat


def serve(config_files: list[Path] | None, bind: str | None, port: int | None, only: str | None = None) -> None:
    """Returns after SIGINT or SIGTERM. Raises PinnerError where serving cannot begin, or the API process was killed."""
    use_one_heap()
    config = wiring.configuration(config_files)
    _require_own_log(config)
    _set_up_log(config)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    if only:
        wiring.use_state_of_root(config)
    if only == "agent":
        agent_process.serve_alone(config)
        return
    address = _api_address(config, bind, port)
    if only == "api":
        api_process.serve_alone(config, address)
    elif os.geteuid() == 0:
        _serve_apart(config, address)
    else:
        with ExitStack() as undo:
            undo.callback(os.close, folders.lock(wiring.state_dir(config)))
            url = wiring.database_url(config)
            require_closed(url, os.geteuid())
            threads: list[Heartbeat] = []
            agent = wiring.local_agent(config, {os.getpid()}, undo, threads)
            listeners = sockets.listen(address, undo)
            api_process.serve(config, agent, url, listeners, tls=address.tls, threads=threads)


def _api_address(config: cfg.ConfigOpts, bind: str | None, port: int | None) -> ApiAddress:
    """Where only a port is given, the address is loopback."""
    host = bind or config.api.bind or (sockets.LOOPBACK if port is not None else "")
    number = config.api.port if port is None else port
    # Read here, because root has not been given up: only root needs to read the key.
    files = TlsFiles(
        config.api.tls_certificate, config.api.tls_key, config.api.tls_client_ca, config.api.tls_client_required
    )
    return ApiAddress(wiring.api_socket(config), config.api.group, host, number, server_context(files))


def _require_own_log(config: cfg.ConfigOpts) -> None:
    """Raises Invalid for a log file of root in a folder that another user can write."""
    if config.log_file:
        require_own(Path(config.log_dir or "", config.log_file).parent, "[DEFAULT] log_file")
    elif config.log_dir:
        require_own(Path(config.log_dir), "[DEFAULT] log_dir")


def _set_up_log(config: cfg.ConfigOpts) -> None:
    try:
        log.setup(config, "pinner")
    except (OSError, log.LogConfigError) as error:
        raise Invalid("[DEFAULT] log_file", config.log_file or "", f"a file that can be written ({error})") from None


def _serve_apart(config: cfg.ConfigOpts, address: ApiAddress) -> None:
    account = privileges.unprivileged(config.api.user, config.api.group)
    # The default state folder depends on the user, and the child runs as another user.
    wiring.use_state_of_root(config)
    url = wiring.database_url(config)
    with ExitStack() as undo:
        lock = agent_process.prepare(config, account)
        undo.callback(os.close, lock)
        require_closed(url, account.pw_uid)
        listeners = sockets.listen(address, undo, wait_seconds=api_process.ORPHAN_SECONDS)
        # The child reads a byte when the agent listens, and the end of the pipe when this process has ended.
        child_end, own_end = os.pipe()
        # Else the first collection in each process writes to all objects, and the two share no memory of them.
        gc.collect()
        gc.freeze()
        child = os.fork()
        if child == 0:
            os.close(own_end)
            os.close(lock)  # the API may end a moment after the agent, which a new server may replace at once
            os._exit(api_process.run(config, account, url, listeners, child_end, address.tls))
        os.close(child_end)
        for listener in listeners:
            listener.close()
        undo.callback(_end, child)
        threads = agent_process.start(config, account, undo)
        supervisor, gone = Supervisor(), os.pidfd_open(child)
        with suppress(BrokenPipeError):  # the API has ended already; its exit status says why
            os.write(own_end, b".")
        if gone not in supervisor.wait(threads, gone, ready=False):
            _signal(child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        raise PinnerError(f"the API's process {child} was ended by {signal.Signals(-status).name}")
    if status:
        raise SystemExit(status)


def _signal(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def _end(child: int) -> None:
    """Also where the agent did not start or has failed."""
    _signal(child)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
