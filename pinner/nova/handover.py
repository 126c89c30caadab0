"""Sends an event of a guest to pinner. libvirt's hook script and Nova's hooks call this module.

This runs inside other programs. Therefore it needs only the standard library and Python 3.8. Its settings are in a file
with lines ``name = value``: ``url`` and ``token`` of the pinner server.
"""

import json
import sys
import urllib.request

CONFIG = "/etc/pinner/hook.conf"
TIMEOUT = 5.0
"""Seconds for the connection and for each part of the answer."""


def settings(file: str = CONFIG) -> "dict[str, str]":
    """The settings of the file by name; the defaults where the file does not exist."""
    values = {"url": "http://127.0.0.1:8077", "token": ""}
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
    """Report to pinner that a guest (its UUID) has started on a host (empty: the server has a single host).

    Raises OSError where pinner does not accept the event, and ValueError where the settings are wrong.
    """
    server = settings(file)
    body = {"guest": guest, "event": event, "source": source}
    if host:
        body["host"] = host
    if not server["url"].startswith(("http://", "https://")):
        raise ValueError(f"url in {file}: {server['url']!r} does not begin with http:// or https://")
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        server["url"].rstrip("/") + "/v1/events/guest-started",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    if server["token"]:
        request.add_header("Authorization", "Bearer " + server["token"])
    # No proxy of the environment is used: the proxy would get the token.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT):
        pass


def main() -> int:
    """Send the event of the command line: guest UUID, event, settings file. Errors are one line on stderr."""
    guest, event, file = sys.argv[1:]
    try:
        send_started(guest, event, "libvirt hook", file=file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"guest {guest}, {event}: cannot send the event to pinner: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
