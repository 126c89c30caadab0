import os
import pwd
from contextlib import ExitStack
from pathlib import Path

from oslo_config import cfg

from pinner import wiring
from pinner.agent.local import LocalAgent
from pinner.agent.socket.server import AgentServer
from pinner.host.processes.immovable import OwnProcesses
from pinner.model.errors import Invalid
from pinner.server import folders, privileges, sockets
from pinner.server.supervisor import Supervisor
from pinner.worker import Heartbeat


def prepare(config: cfg.ConfigOpts, account: pwd.struct_passwd) -> int:
    """Returns the descriptor of the folders' lock. Raises Invalid."""
    lock = folders.lock(wiring.state_dir(config))
    folders.prepare(wiring.state_dir(config), account)
    sockets.prepare(wiring.agent_socket(config), "[agent] socket")
    return lock


def start(config: cfg.ConfigOpts, account: pwd.struct_passwd, undo: ExitStack) -> list[Heartbeat]:
    """``undo`` ends the threads."""
    threads: list[Heartbeat] = []
    agent = wiring.local_agent(config, OwnProcesses(account.pw_uid), undo, threads)
    return [*threads, *answer(agent, wiring.agent_socket(config), account.pw_uid, undo)]


def answer(agent: LocalAgent, path: Path, user: int, undo: ExitStack) -> list[Heartbeat]:
    server = AgentServer(agent, path, user)
    undo.callback(server.close)
    undo.callback(agent.close)  # runs before server.close, which waits for its callers
    server.start()
    return server.heartbeats


def serve_alone(config: cfg.ConfigOpts) -> None:
    """For an API that another process serves, until a signal arrives."""
    if os.geteuid() != 0:
        raise Invalid("--only", "agent", "started by root: only root may move the threads of other users")
    account = privileges.unprivileged(config.api.user, config.api.group)
    with ExitStack() as undo:
        undo.callback(os.close, prepare(config, account))
        supervisor = Supervisor()
        threads = start(config, account, undo)
        print(f"pinner's agent serves host {wiring.host_name(config)} at {wiring.agent_socket(config)}", flush=True)
        supervisor.wait(threads)
