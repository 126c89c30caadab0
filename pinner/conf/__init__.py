"""pinner's options, one module per group; only wiring reads them."""

from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner.conf import agent, api, database, host, libvirt, nova, nova_listener, policy
from pinner.model.errors import Invalid

GROUPS = (agent, api, database, host, libvirt, nova, nova_listener, policy)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Every option by group, for oslo-config-generator."""
    return [(group.NAME, group.OPTIONS) for group in GROUPS]


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Make the options known to ``conf``."""
    for group in GROUPS:
        conf.register_opts(group.OPTIONS, group=group.NAME)
    return conf


def load(files: list[Path] | None = None, into: cfg.ConfigOpts | None = None) -> cfg.ConfigOpts:
    """The configuration from ``files``, else from where oslo.config looks (~/.pinner, /etc/pinner/pinner.conf).

    It is read ``into`` a given one where libraries want to look at theirs in it, too.

    Raises Invalid for a file that cannot be read, and for a value that is none of its option's.
    """
    conf = register(cfg.ConfigOpts() if into is None else into)
    log.register_options(conf)
    try:
        conf([], project="pinner", default_config_files=None if files is None else [str(file) for file in files])
        for group in GROUPS:
            for option in group.OPTIONS:
                # oslo.config looks at a value when it is first read, which may be in the middle of the work.
                conf[group.NAME][option.dest]
    except cfg.Error as error:
        named = ", ".join(str(file) for file in files or conf.config_file)
        raise Invalid("configuration", named, str(error)) from None
    return conf
