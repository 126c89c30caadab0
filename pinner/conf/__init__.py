"""pinner's options by group, read and checked: oslo.config ignores unknown names. Only ``pinner.wiring`` reads them."""

import difflib
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from oslo_config import cfg, types
from oslo_log import log

from pinner.conf import options
from pinner.model.errors import Invalid

Groups = dict[str, list[cfg.Opt]]

GROUPS: Groups = {
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
    """From ``files``, or oslo.config's default ones (~/.pinner, /etc/pinner/pinner.conf). Libraries read their own
    options from ``into``. Raises Invalid for an unreadable file, an unknown name, and a wrong value."""
    conf = register(cfg.ConfigOpts() if into is None else into)
    log.register_options(conf)
    named = ", ".join(str(file) for file in files or ())
    try:
        conf([], project="pinner", default_config_files=None if files is None else [str(file) for file in files])
        check_names(conf)
        check_values(conf, GROUPS)
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        raise Invalid("configuration", named or ", ".join(conf.config_file), str(error)) from None
    return conf


MESSAGING = frozenset(
    {"control_exchange", "executor_thread_pool_size", "rpc_ping_enabled", "rpc_response_timeout", "transport_url"}
)
"""oslo.messaging's options in [DEFAULT], which the library registers only for Nova's listener."""
LIBRARIES = "oslo_"
"""The sections of libraries, which register their options later, begin with it."""
NO_GROUP = "DEFAULT"


def check_names(conf: cfg.ConfigOpts) -> None:
    """Raises Invalid for an unknown section or option: a mistyped option would keep its default unnoticed."""
    known = _known(conf)
    for file, section, option, _ in _assignments(conf):
        if section.startswith(LIBRARIES):
            continue
        if section not in known:
            raise _invalid(file, f"there is no section [{section}]{_meant(section, known)}")
        if option not in known[section]:
            homes = [f"[{group}]" for group in GROUPS if option in known[group]]
            hint = f"; it belongs to {' or '.join(homes)}" if homes else _meant(option, known[section])
            raise _invalid(file, f"[{section}] has no option {option}{hint}")


def check_values(conf: cfg.ConfigOpts, groups: Groups) -> None:
    """Raises Invalid: oslo.config checks a value only at its first use."""
    for group, members in groups.items():
        for option in members:
            try:
                value = conf[group][option.dest]
            except cfg.ConfigSourceValueError as error:
                raise _wrong(conf, group, option, str(error.__context__ or error)) from None
            if isinstance(value, float) and not math.isfinite(value):
                raise _wrong(conf, group, option, "")


def _known(conf: cfg.ConfigOpts) -> dict[str, set[str]]:
    known = {group: {*conf[group]} for group in GROUPS}
    known[NO_GROUP] = {*conf, *MESSAGING} - {*GROUPS}
    return known


def _wrong(conf: cfg.ConfigOpts, group: str, option: cfg.Opt, why: str) -> Invalid:
    place = (group, option.dest)
    assigned = [(file, text) for file, section, name, text in _assignments(conf) if (section, name) == place]
    variable = f"OS_{group}__{option.dest}".upper()  # oslo.config reads the environment, too
    source, text = assigned[-1] if assigned else (variable, os.environ.get(variable, ""))
    shown = "(not shown)" if option.secret else repr(text)
    return _invalid(source, f"[{group}] {option.dest} is {shown}, not {_expected(option) or f'valid: {why}'}")


def _expected(option: cfg.Opt) -> str:
    match option.type:
        case types.Boolean():
            return "true or false"
        case types.Number(min=least, max=most) as kind:
            number = "a whole number" if isinstance(kind, types.Integer) else "a number"
            bounds = (f" {word} {bound:.12g}" for word, bound in (("from", least), ("to", most)) if bound is not None)
            return number + "".join(bounds)
        case types.String(choices=choices) if choices:
            return f"one of {', '.join(choices)}"
        case types.String(regex=re.Pattern(pattern=pattern)) if pattern in options.MEANINGS:
            return options.MEANINGS[pattern]
        case types.Dict():
            return "pairs NAME:VALUE, separated by commas"
    return ""


def _assignments(conf: cfg.ConfigOpts) -> Iterator[tuple[str, str, str, str]]:
    for file in _files(conf):
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(file, sections).parse()
        for section, assigned in sections.items():
            name = section if section == NO_GROUP else section.lower()
            for option, values in assigned.items():
                yield file, name, option, values[-1]


def _files(conf: cfg.ConfigOpts) -> list[str]:
    """Without pipes, which cannot be read twice."""
    folders = [Path(folder) for folder in conf.config_dir or ()]
    named = [Path(file) for file in conf.config_file or ()]
    return [
        str(file)
        for file in (*named, *(path for folder in folders for path in sorted(folder.glob("*.conf"))))
        if file.is_file()
    ]


def _meant(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else "; etc/pinner/pinner.conf.sample lists all"


def _invalid(file: str, why: str) -> Invalid:
    return Invalid("configuration", file, why)
