"""oslo.messaging's options about the kind of queues, for programs that do not use that library."""

from contextlib import suppress

from oslo_config import cfg

from pinner.conf.checks import check_values

NAME = "oslo_messaging_rabbit"
OPTIONS: list[cfg.Opt] = [
    cfg.BoolOpt("amqp_durable_queues", default=False),
    cfg.BoolOpt("rabbit_quorum_queue", default=False),
]


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Register the options with ``conf``, and return it. Those that oslo.messaging has registered stay. Raises Invalid
    for a wrong value."""
    for option in OPTIONS:
        with suppress(cfg.DuplicateOptError):
            conf.register_opt(option, group=NAME)
    check_values(conf, {NAME: OPTIONS})
    return conf
