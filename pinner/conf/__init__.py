"""pinner's configuration options by group. Only ``pinner.wiring`` reads them."""

from contextlib import suppress
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from pinner.conf import options
from pinner.conf.checks import check_names, check_values
from pinner.model.errors import Invalid

GROUPS: dict[str, list[cfg.Opt]] = {
    "agent": options.AGENT,
    "api": options.API,
    "database": options.DATABASE,
    "host": options.HOST,
    "libvirt": options.LIBVIRT,
    "nova": options.NOVA,
    "nova_listener": options.NOVA_LISTENER,
    "objective": options.OBJECTIVE,
    "policy": options.POLICY,
    "retention": options.RETENTION,
}


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For oslo-config-generator."""
    return list(GROUPS.items())


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    for group, members in GROUPS.items():
        conf.register_opts(members, group=group)
    return conf


def register_rabbit(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Options that oslo.messaging has registered stay. Raises Invalid for a wrong value."""
    for option in options.RABBIT:
        with suppress(cfg.DuplicateOptError):
            conf.register_opt(option, group=options.RABBIT_GROUP)
    check_values(conf, {options.RABBIT_GROUP: options.RABBIT})
    return conf


def load(files: list[Path] | None = None, into: cfg.ConfigOpts | None = None) -> cfg.ConfigOpts:
    """From ``files``, or from oslo.config's default files (~/.pinner, /etc/pinner/pinner.conf). Libraries read their
    own options from ``into``. Raises Invalid for an unreadable file, an unknown name, and a value that its option does
    not accept."""
    conf = register(cfg.ConfigOpts() if into is None else into)
    log.register_options(conf)
    named = ", ".join(str(file) for file in files or ())
    try:
        conf([], project="pinner", default_config_files=None if files is None else [str(file) for file in files])
        check_names(conf, GROUPS)
        check_values(conf, GROUPS)
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        raise Invalid("configuration", named or ", ".join(conf.config_file), str(error)) from None
    return conf
