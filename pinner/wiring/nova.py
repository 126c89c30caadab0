"""What pinner's own configuration says about Nova."""

from collections.abc import Callable
from pathlib import Path

from oslo_config import cfg

from pinner.conf import rabbit
from pinner.host.nova import nova_conf
from pinner.model.guest.nova import NovaConf, NovaSets, cpus
from pinner.model.guest.nova_report import Listening
from pinner.wiring.settings import configuration


def nova_sets(config: cfg.ConfigOpts) -> NovaSets:
    """As pinner's own configuration has them. Raises Invalid."""
    sets = (cpus(config.nova[name], f"[nova] {name}") for name in ("cpu_dedicated_set", "cpu_shared_set"))
    return NovaSets(*sets)


def nova_reader(config: cfg.ConfigOpts) -> Callable[[], NovaConf | None]:
    """Reads Nova's configuration now; None where pinner's says to ignore it."""
    if config.nova.ignore_nova_conf:
        return lambda: None
    return nova_conf.Reader([Path(file) for file in config.nova.nova_conf])


def listening(config_files: list[Path] | None) -> Listening:
    """The topics and the pool of pinner's Nova listener."""
    config = rabbit.register(configuration(config_files))
    listener, queues = config.nova_listener, config[rabbit.NAME]
    is_durable = queues.amqp_durable_queues or queues.rabbit_quorum_queue
    return Listening(tuple(listener.topics), listener.pool, is_durable, queues.rabbit_quorum_queue)
