"""The configuration, the names and paths that follow from it, and what it says about Nova."""

import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from oslo_config import cfg

from pinner import conf
from pinner.conf.options import RABBIT_GROUP
from pinner.host.nova import nova_conf
from pinner.model.errors import Invalid
from pinner.model.guest.nova import Listening, NovaConf, NovaSets, cpus
from pinner.owners import require_own

STATE_OF_ROOT = Path("/var/lib/pinner")
"""The default of a server that root starts."""
SOCKETS_OF_ROOT = Path("/run/pinner")


def configuration(files: list[Path] | None = None, into: cfg.ConfigOpts | None = None) -> cfg.ConfigOpts:
    """From ``files`` or the defaults. Root reads no default file that another user can write: HOME may be another's."""
    if files is None:
        for file in cfg.find_config_files("pinner") + cfg.find_config_dirs("pinner"):
            require_own(Path(file).parent, "configuration")
    return conf.load(files, into)


def now() -> datetime:
    return datetime.now(UTC)


def state_dir(config: cfg.ConfigOpts) -> Path:
    if config.agent.state_dir:
        return Path(config.agent.state_dir)
    if os.geteuid() == 0:
        return STATE_OF_ROOT
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "pinner"
    except RuntimeError:
        raise Invalid("[agent] state_dir", "", "a folder, because this user has no home folder") from None


def agent_folder(config: cfg.ConfigOpts) -> Path:
    return state_dir(config) / "agent"


def use_state_of_root(config: cfg.ConfigOpts) -> None:
    if not config.agent.state_dir:
        config.set_override("state_dir", str(STATE_OF_ROOT), "agent")


def agent_socket(config: cfg.ConfigOpts) -> Path:
    return Path(config.agent.socket) if config.agent.socket else socket_dir(config) / "agent.sock"


def api_socket(config: cfg.ConfigOpts) -> Path:
    return Path(config.api.socket) if config.api.socket else socket_dir(config) / "api.sock"


def has_own_state(config: cfg.ConfigOpts) -> bool:
    """Whether a user has a state folder beside root's."""
    return not (config.api.socket or config.agent.state_dir) and state_dir(config) != STATE_OF_ROOT


def socket_dir(config: cfg.ConfigOpts) -> Path:
    state = state_dir(config)
    return SOCKETS_OF_ROOT if state == STATE_OF_ROOT else state


def database_url(config: cfg.ConfigOpts) -> str:
    return config.database.connection or f"sqlite:///{state_dir(config) / 'api' / 'pinner.sqlite'}"


def host_name(config: cfg.ConfigOpts) -> str:
    return config.host.name or socket.gethostname()


def nova_sets(config: cfg.ConfigOpts) -> NovaSets:
    """Raises Invalid."""
    sets = (cpus(config.nova[name], f"[nova] {name}") for name in ("cpu_dedicated_set", "cpu_shared_set"))
    return NovaSets(*sets)


def nova_reader(config: cfg.ConfigOpts) -> Callable[[], NovaConf | None]:
    """It gives None where Nova's configuration is to be ignored."""
    if config.nova.ignore_nova_conf:
        return lambda: None
    return nova_conf.Reader([Path(file) for file in config.nova.nova_conf])


def listening(config_files: list[Path] | None) -> Listening:
    config = conf.register_rabbit(configuration(config_files))
    listener, queues = config.nova_listener, config[RABBIT_GROUP]
    is_durable = queues.amqp_durable_queues or queues.rabbit_quorum_queue
    return Listening(tuple(listener.topics), listener.pool, is_durable, queues.rabbit_quorum_queue)
