"""The settings of the weigher, /etc/pinner/weigher.conf. This runs inside nova-scheduler, so it needs only the standard
library and Python 3.8."""

from __future__ import annotations

import configparser
import dataclasses
from typing import Any

CONFIG = "/etc/pinner/weigher.conf"
SECTION = "weigher"


class SettingsError(ValueError):
    pass


@dataclasses.dataclass(frozen=True)
class Settings:
    """All times are in seconds."""

    server: str
    """The URL of the pinner servers; {host} is the host's name."""
    token_file: str = ""
    """The file with the server's token; it contains {host} where ``server`` does. Empty: no token."""
    ca_file: str = ""
    """The file of the servers' authorities; empty: those of the system."""
    multiplier: float = 1.0
    """The weight of a host where the flavor fits."""
    timeout: float = 0.5
    """The longest wait of one scheduling."""
    refresh: float = 5.0
    """The age at which an answer, which still counts, is asked for again."""
    max_age: float = 60.0
    """The age up to which an answer counts."""
    retry: float = 30.0
    """The time until a host without a valid answer is asked again."""


def read_settings(file: str = CONFIG) -> Settings:
    """Raises SettingsError, which names the file and the setting."""
    parser = configparser.ConfigParser(interpolation=None, strict=True, inline_comment_prefixes=("#",))
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - the standard library alone, as in handover
            parser.read_file(lines)
        values = dict(parser[SECTION])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError) as error:
        raise SettingsError(f"{file}: {_why(error)}") from None
    known = {field.name: field for field in dataclasses.fields(Settings)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise SettingsError("{}: {} is unknown; valid are {}".format(file, unknown[0], ", ".join(known)))
    settings: dict[str, Any] = {}
    for name, text in values.items():
        settings[name] = text if known[name].default in ("", dataclasses.MISSING) else _number(file, name, text)
    if not settings.get("server", "").startswith(("http://", "https://")):
        raise SettingsError(f"{file}: server is not http://... or https://..., such as http://{{host}}:8077")
    if "{host}" in settings["server"] and "{host}" not in (settings.get("token_file") or "{host}"):
        # A compute host chooses its name, and so the server that would get the token of all hosts.
        raise SettingsError(f"{file}: token_file needs {{host}}, too, such as /etc/pinner/tokens/{{host}}")
    return Settings(**settings)


def _why(error: Exception) -> str:
    return f"the section [{SECTION}] is missing" if isinstance(error, KeyError) else str(error).replace("\n", " ")


def _number(file: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    least, most = (-1e6, 1e6) if name == "multiplier" else (0.0, 30.0 if name == "timeout" else 86400.0)
    if not least <= value <= most:
        raise SettingsError(f"{file}: {name} = {text!r} is not a number from {least:g} to {most:g}")
    return value
