import logging
import os
import pwd
import socket
import ssl
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oslo_config import cfg

from pinner import wiring
from pinner.agent.protocol import Agent
from pinner.model.errors import Invalid, PinnerError
from pinner.render import visible
from pinner.server import folders, installation, privileges, sockets
from pinner.server.privileges import require_closed
from pinner.server.sockets import ApiAddress
from pinner.server.supervisor import Supervisor
from pinner.service.local import ServiceParts
from pinner.worker import Heartbeat

if TYPE_CHECKING:
    from pinner.api.server import Server

LOG = logging.getLogger(__name__)

ORPHAN_SECONDS = 10.0
"""How long a new server waits for the end of an API whose agent was killed."""


def serve(
    config: cfg.ConfigOpts,
    agent: Agent,
    database: str,
    listeners: Sequence[socket.socket],
    *ends: int,
    tls: ssl.SSLContext | None = None,
    threads: Sequence[Heartbeat] = (),
) -> None:
    """Until a signal arrives, or a descriptor of ``ends`` can be read. ``threads``: of an agent in this process."""
    supervisor = Supervisor()
    host = wiring.host_name(config)
    with ExitStack() as undo:
        parts, server = start(config, agent, database, listeners, undo, tls)
        background = [
            parts.audit_heads.heartbeat,
            parts.outcomes.passes.heartbeat,
            parts.probes.passes.heartbeat,
            *wiring.start_controller(config, parts, host, undo),
            *wiring.start_retention(config, parts, agent, undo),
        ]
        parts.audit_heads.start()
        undo.callback(parts.audit_heads.stop)
        parts.outcomes.passes.start()
        undo.callback(parts.outcomes.passes.stop)
        parts.probes.passes.start()
        undo.callback(parts.probes.stop)
        background = [*threads, server.heartbeat, *background]
        parts.monitor.watch(background, config.policy.resync_seconds)
        parts.monitor.start()
        undo.callback(parts.monitor.stop)
        print(f"pinner serves host {host} at {' and '.join(server.urls)} (Ctrl-C ends it)", flush=True)
        supervisor.wait([*background, parts.monitor.heartbeat], *ends)


def start(
    config: cfg.ConfigOpts,
    agent: Agent,
    database: str,
    listeners: Sequence[socket.socket],
    undo: ExitStack,
    tls: ssl.SSLContext | None = None,
) -> tuple[ServiceParts, "Server"]:
    """The sockets of TCP speak ``tls``; ``undo`` ends all."""
    # Imported here: the agent's process does not need these modules in its memory.
    from pinner.api.app import create_app
    from pinner.api.server import serve as answer
    from pinner.server.access import access_control

    parts = wiring.service_parts(config, {wiring.host_name(config): agent}, database, undo)
    control = access_control(config, parts.store)
    undo.callback(control.refusals.close)
    app = create_app(
        parts.service, control=control, idempotency_keys=parts.store.idempotency_keys, monitor=parts.monitor
    )
    server = answer(app, listeners, tls)
    parts.monitor.metrics.queue = server.queue
    undo.callback(server.stop)
    return parts, server


def serve_alone(config: cfg.ConfigOpts, address: ApiAddress) -> None:
    """For an agent in another process; without it, answers are host_unreachable. Raises Invalid for root and nobody."""
    user = os.geteuid()
    account = privileges.numbered(user, os.getegid())
    if wrong := privileges.unsuitable(user, account.pw_name):
        raise Invalid("--only api, started by the user", account.pw_name, wrong)
    agent, url = wiring.agent_client(config), wiring.database_url(config)
    with ExitStack() as undo:
        _lock(config, undo)
        require_closed(url, user)
        listeners = sockets.inherited()
        if not listeners:
            listeners = sockets.listen(address, undo)
        elif address.bind:
            listeners.append(sockets.listen_tcp(address.bind, address.port))
        serve(config, agent, url, listeners, tls=address.tls)


def run(
    config: cfg.ConfigOpts,
    account: pwd.struct_passwd,
    database: str,
    listeners: Sequence[socket.socket],
    agent_ready: int,
    tls: ssl.SSLContext | None,
) -> int:
    """Give up root in this forked process; serve from a byte at ``agent_ready`` to its end; returns the status."""
    try:
        agent = wiring.agent_client(config)
        installation.keep_readable(account)
        privileges.drop(account)
        with ExitStack() as undo:
            _lock(config, undo, ORPHAN_SECONDS)
            if not os.read(agent_ready, 1):
                return 1
            serve(config, agent, database, listeners, agent_ready, tls=tls)
    except PinnerError as error:
        print(f"pinner: error: {visible(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, Invalid) else 1
    except Exception:
        LOG.exception("the API ended")
        return 1
    return 0


def _lock(config: cfg.ConfigOpts, undo: ExitStack, wait_seconds: float = 0.0) -> None:
    lock = folders.lock_api(wiring.state_dir(config), wait_seconds=wait_seconds)
    if lock is not None:
        undo.callback(os.close, lock)
