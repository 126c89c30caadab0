"""Writes pinner/host/nova/nova_options.json: type, default and old names of each option of Nova, by section and name.

Run it by an interpreter that has Nova: ``python tools/nova_options.py > pinner/host/nova/nova_options.json``.
"""

import inspect
import json
import re
from typing import Any

import nova.cmd.compute  # registers the options of nova-compute
from nova import config
from oslo_config import cfg, types

OWN = ("config_dir", "config_file", "config_source", "shell_completion")
"""Options that oslo.config itself registers."""
TEXT = {"name": "String"}


def options() -> dict[str, dict[str, dict[str, Any]]]:
    """The options that nova-compute knows after its start."""
    config.parse_args(["nova-compute"], default_config_files=[])
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for info, group in nova.cmd.compute.CONF._all_opt_infos():
        option = info["opt"]
        if option.dest not in OWN:
            found.setdefault(group.name if group else "DEFAULT", {})[option.dest] = described(option)
    return found


def described(option: cfg.Opt) -> dict[str, Any]:
    """What differs from a text that is not set, has one value, and never had another name."""
    found: dict[str, Any] = {}
    if option.default is not None:
        is_hosts = option.sample_default not in (None, option.default)
        words = "-".join(re.findall(r"\w+", f"default {option.sample_default}"))  # a valid name of a host, too
        found["default"] = words if is_hosts else option.default
    if (kind := described_type(option.type)) != TEXT:
        found["type"] = kind
    if option.multi:
        found["is_multi"] = True
    if option.deprecated_opts:
        found["old_names"] = [[old.group, old.name] for old in option.deprecated_opts]
    return found


def described_type(kind: Any) -> dict[str, Any]:
    """The class of oslo_config.types, with the arguments that make such a type."""
    if kind is str:
        return TEXT
    if not isinstance(kind, types.ConfigType):  # Nova's options that ignore every value
        assert kind("4") is None, kind
        return {"name": "Ignored"}
    known = next(each for each in type(kind).__mro__ if getattr(types, each.__name__, None) is each)
    found: dict[str, Any] = {"name": known.__name__}
    for name in inspect.signature(known).parameters:
        value = getattr(kind, name, None)
        if name != "type_name" and value != getattr(known(), name, None):
            found[name] = described_argument(value)
    return found


def described_argument(value: Any) -> Any:
    """The argument as JSON has it."""
    if isinstance(value, types.ConfigType):
        return described_type(value)
    return value.pattern if hasattr(value, "pattern") else list(value) if isinstance(value, dict) else value


def main() -> None:
    """Print the file, one section a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(names, sort_keys=True)}" for name, names in sorted(options().items()))
    print("{", ",\n".join(lines), "}", sep="\n")


if __name__ == "__main__":
    main()
