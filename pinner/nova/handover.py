"""Hands an event of a guest to pinner and lets go: what libvirt's hook script and Nova's hooks call.

Runs in other people's programs, so it needs the standard library alone, and Python 3.8. It is told nothing but where
pinner is, by a small file of lines ``name = value``: ``url`` and ``token``.
"""

import json
import sys
import urllib.request

CONFIG = "/etc/pinner/hook.conf"
TIMEOUT = 5.0
"""Seconds for the connection and for each part of the answer."""


def settings(file: str = CONFIG) -> "dict[str, str]":
    """The file's values by their names; without the file the defaults."""
    found = {"url": "http://127.0.0.1:8077", "token": ""}
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - this is old Python
            for line in lines:
                name, equals, value = line.partition("=")
                if equals and not line.lstrip().startswith("#"):
                    found[name.strip()] = value.strip()
    except FileNotFoundError:
        pass
    return found


def started(guest: str, event: str, source: str, host: str = "", file: str = CONFIG) -> None:
    """Tell pinner that a guest (by UUID) runs on a host (empty: the server's only one).

    Raises OSError and ValueError where that cannot be told.
    """
    given = settings(file)
    body = {"guest": guest, "event": event, "source": source}
    if host:
        body["host"] = host
    if not given["url"].startswith(("http://", "https://")):
        raise ValueError(f"url in {file}: not one that begins with http:// or https://")
    request = urllib.request.Request(  # noqa: S310 - just checked
        given["url"].rstrip("/") + "/v1/events/guest-started",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    if given["token"]:
        request.add_header("Authorization", "Bearer " + given["token"])
    # The environment's proxies are not asked: they would get the token.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT):
        pass


def main() -> int:
    """Arguments: the guest's UUID, the event, the file of settings. What goes wrong is one line on stderr."""
    guest, event, file = sys.argv[1:]
    try:
        started(guest, event, "libvirt hook", file=file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"guest {guest}, {event}: pinner was not told: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
