"""Nova's options, read by oslo.config from the configuration files of nova-compute, in its order
(ConfigOpts._parse_config_files).

The default files come first, unless the command line names a file; then the default folders, unless it names a folder;
then those of the command line. A later file overrides an earlier one. Default places: oslo_config.cfg.find_config_files
and find_config_dirs.

Sources of the options: nova/conf/compute.py, notifications.py and libvirt.py; oslo_messaging/notify/notifier.py and
oslo_messaging/_drivers/impl_rabbit.py."""

import argparse
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal, NoReturn

from oslo_config import cfg, sources, types
from oslo_config.sources import _environment

from pinner.host.nova.nova_process import ProcessRoot, Started, home_of
from pinner.model.errors import Invalid, shown
from pinner.model.guest.nova import NovaConf

PROJECT = "nova"
MAX_FILES = 200
MAX_WORDS = 1000
"""argparse takes minutes for tens of thousands."""
MAX_BYTES = 4 << 20
"""The bytes of all files. A nova.conf with all comments has 0.5 MiB."""
_CLOCK_SECONDS = 1.0
"""The accuracy of a process's start."""
Kind = Literal["file", "folder"]


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    contents: tuple[tuple[str, bytes], ...] = ()
    """Name and content, in the order of reading."""
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Files newer than the process, which has read them at its start only."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.contents)


def collect(started: Started, root: ProcessRoot) -> ConfigFiles:
    """Raises Invalid for a missing folder, a command line that does not parse, and a file that is not regular."""
    contents: list[tuple[str, bytes]] = []
    missing: list[str] = []
    changed: list[str] = []
    length = 0
    for count, name in enumerate(_files(started, root)):
        if count >= MAX_FILES:
            raise Invalid("nova.conf", name, f"one of at most {MAX_FILES} files")
        try:
            contents.append((name, root.read(name)))
            length += len(contents[-1][1])
            if started.at is not None and root.stat(name).st_mtime > started.at + _CLOCK_SECONDS:
                changed.append(name)
        except FileNotFoundError:
            missing.append(name)
        except OSError as error:
            raise Invalid("nova.conf", name, f"a file that can be read ({error.strerror})") from None
        if length > MAX_BYTES:
            raise Invalid("nova.conf", name, f"the last of files with {MAX_BYTES} bytes at most in all")
    return ConfigFiles(tuple(contents), tuple(missing), tuple(changed))


def find(started: Started, root: ProcessRoot, extension: str = ".conf") -> Iterator[str]:
    for name in (PROJECT, started.program) if started.has_default_places else ():
        places = (_absolute(posixpath.join(folder, name + extension), started) for folder in _folders(started))
        yield from [place for place in places if root.exists(place)][:1]


def _files(started: Started, root: ProcessRoot) -> Iterator[str]:
    if len(started.arguments) > MAX_WORDS:
        raise Invalid("nova.conf", f"{len(started.arguments)} words", f"a command line of at most {MAX_WORDS} words")
    named = _named(started.arguments)
    if not _is_given(started.arguments, "--config-file"):
        yield from find(started, root)
    if not _is_given(started.arguments, "--config-dir"):
        for folder in find(started, root, ".conf.d"):
            yield from _in_folder(folder, root)
    for kind, path in named:
        place = _absolute(_expanded(path, started, root), started)
        if kind == "file":
            yield place
        elif not path or not root.exists(place):
            raise Invalid(
                "nova.conf", path and place, "a folder that exists: the command line of nova-compute names it"
            )
        else:
            yield from _in_folder(place, root)


def _in_folder(folder: str, root: ProcessRoot) -> Iterator[str]:
    """The files as glob(3) finds them. Raises Invalid for a pattern."""
    if set(folder) & set("*?["):
        raise Invalid("nova.conf", folder, "a folder without *, ? and [ in its path: Nova takes them for a pattern")
    try:
        names = root.names(folder)
    except OSError:
        return
    for name in sorted(names):
        if name.endswith(".conf") and not name.startswith("."):
            yield posixpath.join(folder, name)


def _folders(started: Started) -> Iterator[str]:
    if started.home:
        yield from (posixpath.join(started.home, f".{PROJECT}"), started.home)
    yield from (f"/etc/{PROJECT}", "/etc")
    variables = dict(started.environment)
    yield from (
        posixpath.join(variables[name], "etc", PROJECT) for name in ("SNAP_COMMON", "SNAP") if variables.get(name)
    )


class _Named(argparse.Action):
    def __call__(
        self, _parser: object, namespace: argparse.Namespace, value: object, _option: str | None = None
    ) -> None:
        namespace.places.append((self.dest, value))


class _Parser(argparse.ArgumentParser):
    """Raises each error instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


def _named(arguments: tuple[str, ...]) -> list[tuple[Kind, str]]:
    """argparse accepts shortened options, as oslo.config does."""
    parser = _Parser(add_help=False, exit_on_error=False)
    parser.add_argument("--config-file", dest="file", action=_Named)
    parser.add_argument("--config-dir", dest="folder", action=_Named)
    try:
        parsed, _ = parser.parse_known_args(arguments, argparse.Namespace(places=[]))
    except argparse.ArgumentError as error:
        raise Invalid("nova.conf", " ".join(arguments), f"a command line that nova-compute accepts ({error})") from None
    places: list[tuple[Kind, str]] = parsed.places
    return places


def _is_given(arguments: tuple[str, ...], option: str) -> bool:
    """Unlike argparse, oslo.config finds it only by its full name."""
    return any(argument == option or argument.startswith(f"{option}=") for argument in arguments)


def _expanded(path: str, started: Started, root: ProcessRoot) -> str:
    if not path.startswith("~"):
        return path
    name, slash, rest = path[1:].partition("/")
    home = home_of(name, root) if name else started.home
    return f"{home}{slash}{rest}" if home or not name else path


def _absolute(path: str, started: Started) -> str:
    return posixpath.normpath(posixpath.join(started.folder, path))


MAX_INVENTORY = 2**31 - 1
"""The largest number of a resource in Placement (placement/schemas/inventory.py)."""

_OLD_DRIVER = "notification_driver"
"""It was in [DEFAULT] until oslo.messaging 16; Nova 31 (2025.1) uses it."""

_OPTIONS: Mapping[str | None, list[cfg.Opt]] = {
    None: [
        cfg.StrOpt("vcpu_pin_set", default=""),
        cfg.IntOpt("reserved_host_cpus", default=0, min=0),
        cfg.StrOpt("compute_driver", default=""),
        cfg.MultiStrOpt(_OLD_DRIVER, default=[]),
    ],
    "compute": [cfg.StrOpt("cpu_dedicated_set", default=""), cfg.StrOpt("cpu_shared_set", default="")],
    "libvirt": [
        cfg.BoolOpt("cpu_power_management", default=False),
        cfg.StrOpt("cpu_power_management_strategy", default="cpu_state", choices=["cpu_state", "governor"]),
        cfg.StrOpt("cpu_power_governor_high", default="performance"),
        cfg.StrOpt("cpu_power_governor_low", default="powersave"),
    ],
    "notifications": [
        cfg.StrOpt(
            "notification_format",
            default="unversioned",
            choices=["both", "versioned", "unversioned"],
            deprecated_group="DEFAULT",
        ),
        cfg.ListOpt("versioned_notifications_topics", default=["versioned_notifications"]),
    ],
    "oslo_messaging_notifications": [
        cfg.MultiStrOpt("driver", default=[], deprecated_opts=[cfg.DeprecatedOpt(_OLD_DRIVER, group="DEFAULT")])
    ],
    "oslo_messaging_rabbit": [
        cfg.BoolOpt("amqp_durable_queues", default=False),
        cfg.BoolOpt("rabbit_quorum_queue", default=False),
    ],
}

MAX_VALUE = 1 << 16
"""Characters. A list of all CPUs that Linux knows has fewer."""
MAX_VALUES = 1000
"""With those named by $: options that name each other could each double the text."""


class _Environment(_environment.EnvironmentConfigurationSource):
    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._variables = variables

    def get(self, group_name: str | None, option_name: str, opt: cfg.Opt) -> tuple[Any, Any]:  # noqa: ARG002
        name = self.get_name(group_name, option_name)
        if name not in self._variables:
            return (sources._NoValue, None)
        return (self._variables[name], cfg.LocationInfo(cfg.Locations.environment, name))


class _Options(cfg.ConfigOpts):
    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self._env_driver = _Environment(variables)
        self._values = 0

    def _substitute(self, value: Any, group: Any = None, namespace: Any = None) -> Any:
        self._values += 1
        substituted = super()._substitute(value, group, namespace) if self._values <= MAX_VALUES else value
        if self._values > MAX_VALUES:
            raise cfg.Error(f"more than {MAX_VALUES} values, or options that name others by $ too often")
        if isinstance(substituted, str) and len(substituted) > MAX_VALUE:
            raise cfg.Error(f"a value has more than {MAX_VALUE} characters")
        return substituted

    def _load_alternative_sources(self) -> None:
        """One driver of oslo.config fetches URLs, and pinner's agent is root."""
        if self.config_source:
            raise cfg.Error("config_source names other sources of options, which pinner does not read")


class _Unreadable(Exception): ...


def evaluate(config_files: ConfigFiles, variables: tuple[tuple[str, str], ...]) -> NovaConf:
    """What Nova refuses to read is in ``error``."""
    try:
        return _evaluated(config_files, variables)
    except _Unreadable as error:
        return NovaConf(config_files.names, error=str(error))


@lru_cache(maxsize=8)
def _evaluated(config_files: ConfigFiles, variables: tuple[tuple[str, str], ...]) -> NovaConf:
    """Raises _Unreadable: an error is not kept, because it may be of this moment only."""
    if config_files.missing:
        raise _Unreadable(str(cfg.ConfigFilesNotFoundError(list(config_files.missing))))
    with _as_files(config_files) as names:
        try:
            return _values(config_files, list(names), dict(variables))
        except cfg.ConfigFileParseError as error:
            # oslo.config quotes the wrong line last. Nova's user can put a symlink to any file here, and the agent is
            # root.
            text = re.split(r""": ['"]""", str(error), maxsplit=1)[0]
        except RecursionError as error:
            text = f"{error}: options name each other by $"
        except (cfg.Error, UnicodeDecodeError, ValueError) as error:
            text = str(error)
        raise _Unreadable(re.sub(r"/proc/self/fd/\d+", lambda name: names.get(name[0], name[0]), text))


def _values(config_files: ConfigFiles, readable: list[str], variables: Mapping[str, str]) -> NovaConf:
    conf = _Options(variables)
    for group, options in _OPTIONS.items():
        conf.register_opts(options, group=group)
    if any(b"$" in content for _, content in config_files.contents) or any(
        "$" in value for value in variables.values()
    ):
        _register_others(conf)
    conf([], default_config_files=readable, default_config_dirs=[])
    return NovaConf(
        files=config_files.names,
        dedicated=conf.compute.cpu_dedicated_set,
        shared=conf.compute.cpu_shared_set,
        pin_set=conf.vcpu_pin_set,
        format=conf.notifications.notification_format,
        topics=tuple(conf.notifications.versioned_notifications_topics),
        drivers=tuple(conf.oslo_messaging_notifications.driver),
        reserved_cpus=_reserved(conf.reserved_host_cpus),
        **_power(conf.libvirt),
        compute_driver=conf.compute_driver,
        is_durable=conf.oslo_messaging_rabbit.amqp_durable_queues or conf.oslo_messaging_rabbit.rabbit_quorum_queue,
        changed=config_files.changed,
        is_quorum=conf.oslo_messaging_rabbit.rabbit_quorum_queue,
        old_drivers=tuple(conf[_OLD_DRIVER]),
    )


def _reserved(cpus: int | None) -> int:
    """Raises ValueError for a number that Placement takes for no resource."""
    if (cpus or 0) > MAX_INVENTORY:
        raise ValueError(f"reserved_host_cpus is {shown(str(cpus))}, and must be a number from 0 to {MAX_INVENTORY}")
    return cpus or 0


def _power(libvirt: cfg.ConfigOpts.GroupAttr) -> dict[str, Any]:
    """Nova reads the others only where the first two say so."""
    if not libvirt.cpu_power_management:
        return {}
    strategy = libvirt.cpu_power_management_strategy
    if strategy != "governor":
        return {"power_management": True, "power_strategy": strategy}
    _ = libvirt.cpu_power_governor_low  # Nova does not start where this one is wrong, either
    return {"power_management": True, "power_strategy": strategy, "governor_high": libvirt.cpu_power_governor_high}


def _register_others(conf: cfg.ConfigOpts) -> None:
    """A value can name them by $."""
    for group, options in _others().items():
        section = None if group == "DEFAULT" else group
        names = {option.name for option in _OPTIONS.get(section, [])}
        conf.register_opts([option for option in options if option.name not in names], group=section)


@cache
def _others() -> Mapping[str, list[cfg.Opt]]:
    """Written by tools/nova_options.py. A default that depends on the host is in words."""
    sections = json.loads(resources.files("pinner.host.nova").joinpath("nova_options.json").read_text())
    return {group: [_option(name, about) for name, about in options.items()] for group, options in sections.items()}


def _option(name: str, about: Mapping[str, Any]) -> cfg.Opt:
    old_names = [cfg.DeprecatedOpt(old, group=group) for group, old in about.get("old_names", ())]
    kind = cfg.MultiOpt if "is_multi" in about else cfg.Opt
    type_ = _type(**about.get("type", {"name": "String"}))
    return kind(name, type_, default=about.get("default"), deprecated_opts=old_names)


def _type(name: str, **arguments: Any) -> Any:
    if name == "Ignored":
        return lambda _: None
    of_items = {key: _type(**arguments[key]) for key in ("item_type", "value_type") if key in arguments}
    return getattr(types, name)(**(arguments | of_items))


@contextmanager
def _as_files(config_files: ConfigFiles) -> Iterator[Mapping[str, str]]:
    """Nothing is on a disk: the files contain passwords."""
    opened: dict[str, str] = {}
    descriptors: list[int] = []
    try:
        for name, content in config_files.contents:
            descriptor = os.memfd_create("nova.conf")
            descriptors.append(descriptor)
            with open(descriptor, "wb", closefd=False) as file:
                file.write(content)
            opened[f"/proc/self/fd/{descriptor}"] = name
        yield opened
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
