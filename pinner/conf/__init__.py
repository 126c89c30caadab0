"""pinner's configuration options, one module per group. Only ``pinner.wiring`` reads them."""

from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner.conf import agent, api, database, host, libvirt, nova, nova_listener, objective, policy, retention
from pinner.conf.checks import check_names, check_values
from pinner.model.errors import Invalid

GROUPS = (agent, api, database, host, libvirt, nova, nova_listener, objective, policy, retention)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Every option by group, for oslo-config-generator."""
    return [(group.NAME, group.OPTIONS) for group in GROUPS]


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Register the options with ``conf``, and return it."""
    for group in GROUPS:
        conf.register_opts(group.OPTIONS, group=group.NAME)
    return conf


def load(files: list[Path] | None = None, into: cfg.ConfigOpts | None = None) -> cfg.ConfigOpts:
    """The configuration from ``files``, or from oslo.config's default files (~/.pinner, /etc/pinner/pinner.conf).

    ``into`` is an existing object to read the files into, for libraries that read their own options from it.

    Raises Invalid for a file that cannot be read, for a name that no option has, and for a value that its option does
    not accept.
    """
    conf = register(cfg.ConfigOpts() if into is None else into)
    log.register_options(conf)
    named = ", ".join(str(file) for file in files or ())
    try:
        conf([], project="pinner", default_config_files=None if files is None else [str(file) for file in files])
        groups = {group.NAME: group.OPTIONS for group in GROUPS}
        check_names(conf, groups)
        check_values(conf, groups)
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        raise Invalid("configuration", named or ", ".join(conf.config_file), str(error)) from None
    return conf
