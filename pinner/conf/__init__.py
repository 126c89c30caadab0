"""pinner's options, one module per group; only wiring reads them."""

from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner.conf import agent, api, database, host, libvirt, planning

GROUPS = (agent, api, database, host, libvirt, planning)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Every option by group, for oslo-config-generator."""
    return [(group.NAME, group.OPTIONS) for group in GROUPS]


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Make the options known to ``conf``."""
    for group in GROUPS:
        conf.register_opts(group.OPTIONS, group=group.NAME)
    return conf


def load(files: list[Path] | None = None) -> cfg.ConfigOpts:
    """The configuration from ``files``, else from where oslo.config looks (~/.pinner, /etc/pinner/pinner.conf)."""
    conf = register(cfg.ConfigOpts())
    log.register_options(conf)
    conf([], project="pinner", default_config_files=None if files is None else [str(file) for file in files])
    return conf
