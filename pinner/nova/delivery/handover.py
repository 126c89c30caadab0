"""Sends an event of a guest to pinner, for libvirt's hook script and Nova's hooks. This runs inside other programs, so
it needs only the standard library and Python 3.8. Each line of its settings is ``name = value``: ``url`` of the server,
and the ``token`` for TCP."""

import json
import sys

from pinner.nova.delivery import plain_http

CONFIG = "/etc/pinner/hook.conf"
SERVER = "unix:/run/pinner/api.sock"
"""The server of this host, where the settings name none."""
TIMEOUT = 5.0
"""Seconds for the whole answer."""
_PATH = "/v1/events/guest-started"


def settings(file: str = CONFIG) -> "dict[str, str]":
    """The defaults where the file does not exist."""
    values = {"url": SERVER, "token": ""}
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - as short as pathlib, and needs no import
            for line in lines:
                name, equals, value = line.partition("=")
                if equals and not line.lstrip().startswith("#"):
                    values[name.strip()] = value.strip()
    except FileNotFoundError:
        pass
    return values


def send_started(guest: str, event: str, source: str, host: str = "", file: str = CONFIG) -> None:
    """``guest`` is a UUID; empty ``host``: the server's only one. Raises OSError where pinner does not accept the
    event, ValueError for wrong settings."""
    server = settings(file)
    body = {"guest": guest, "event": event, "source": source}
    if host:
        body["host"] = host
    url = server["url"]
    if not url.startswith(("unix:/", "http://", "https://")):
        raise ValueError(f"url in {file}: {url!r} does not begin with unix:/, http:// or https://")
    plain_http.post(url, _PATH, server["token"], json.dumps(body).encode(), TIMEOUT)


def main() -> int:
    """Takes the guest's UUID, the event and the settings file. Errors are one line on stderr."""
    guest, event, file = sys.argv[1:]
    try:
        send_started(guest, event, "libvirt hook", file=file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"guest {guest}, {event}: cannot send the event to pinner: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
