"""Sends an event of a guest to pinner. libvirt's hook script and Nova's hooks call this module.

This runs inside other programs. Therefore it needs only the standard library and Python 3.8. Its settings are in a file
with lines ``name = value``: ``url`` of the pinner server, and the ``token`` that a server needs over TCP.
"""

import http.client
import json
import socket
import sys
import urllib.request

CONFIG = "/etc/pinner/hook.conf"
SERVER = "unix:/run/pinner/api.sock"
"""The server where the settings name none: the one of this host."""
TIMEOUT = 5.0
"""Seconds for the connection and for each part of the answer."""
_UNIX = "unix:"
_PATH = "/v1/events/guest-started"


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection through a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket. Raises OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def settings(file: str = CONFIG) -> "dict[str, str]":
    """The settings of the file by name; the defaults where the file does not exist."""
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
    """Report to pinner that a guest (its UUID) has started on a host (empty: the server has a single host).

    Raises OSError where pinner does not accept the event, and ValueError where the settings are wrong.
    """
    server = settings(file)
    body = {"guest": guest, "event": event, "source": source}
    if host:
        body["host"] = host
    headers = {"Content-Type": "application/json"}
    if server["token"]:
        headers["Authorization"] = "Bearer " + server["token"]
    url = server["url"]
    if url.startswith(_UNIX + "/"):
        _post_to_socket(url[len(_UNIX) :], json.dumps(body).encode(), headers)
    elif url.startswith(("http://", "https://")):
        _post(url.rstrip("/") + _PATH, json.dumps(body).encode(), headers)
    else:
        raise ValueError(f"url in {file}: {url!r} does not begin with unix:/, http:// or https://")


def _post(url: str, body: bytes, headers: "dict[str, str]") -> None:
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - the caller has checked the scheme
    # No proxy of the environment is used: the proxy would get the token.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT):
        pass


def _post_to_socket(path: str, body: bytes, headers: "dict[str, str]") -> None:
    connection = UnixConnection(path)
    try:
        connection.request("POST", _PATH, body, headers)
        answer = connection.getresponse()
        if answer.status >= http.client.BAD_REQUEST:
            raise OSError(f"HTTP Error {answer.status}: {answer.reason}")
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer at {path}: {error!r}") from None
    finally:
        connection.close()


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
