"""Asks a pinner server over REST, and raises the errors that it sends, bounded in time and size: the timeouts of httpx
are for one part each, and a server that sends a byte a second would meet them."""

import re
import ssl
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpcore
import httpx

from pinner import codec
from pinner.model.errors import HostUnreachable, Invalid, NotPermitted, PinnerError, revive
from pinner.model.page import MAX_LIMIT, Page
from pinner.owners import connect_remedy

T = TypeVar("T")

UNIX = "unix:"
"""The scheme of a Unix socket's URL; an absolute path follows."""
EXAMPLES = "a URL such as unix:/run/pinner/api.sock or http://127.0.0.1:8077"
ACTOR = "X-Pinner-Actor"
"""The person for whom root calls, percent-encoded."""
MAX_PORT = 65535
CONNECT_TIMEOUT = 10.0
"""Seconds, unless the whole answer has less."""
MAX_ANSWER = 64 * 1024 * 1024
"""Bytes. The plan of a host with 10,000 threads takes about 5 MiB."""
MAX_PAGES = 1000


class RestClient:
    """``url``: unix:/path/of/socket, http://host:port or https://host:port. ``token`` is the bearer token, which a
    server requires over TCP. The server has ``patience`` seconds for each whole answer, of at most ``limit`` bytes; of
    a stream, for its header and then for each part. ``actor`` is the person for whom root calls; a Unix socket takes it
    from root alone."""

    def __init__(self, url: str, token: str | None, patience: float, actor: str, limit: int = MAX_ANSWER) -> None:
        self._url = url
        self._patience = patience
        self._limit = limit
        base, socket = _target(url)
        if token and not (token.isascii() and token.isprintable()):
            raise Invalid("token", "(not shown)", "printable ASCII, on one line")
        headers = {"Accept-Encoding": ENCODINGS[-1]} | ({"Authorization": f"Bearer {token}"} if token else {})
        if actor and socket:
            headers[ACTOR] = quote(actor, safe="")
        timeout = httpx.Timeout(patience, connect=min(patience, CONNECT_TIMEOUT))
        # The system's authorities, or those of SSL_CERT_FILE; httpx would use a list of its own.
        tls = ssl.create_default_context() if base.scheme == "https" else None
        # No proxy of the environment is used: a proxy would receive the token, and cannot reach this host's loopback.
        transport = BoundedTransport(tls, socket)
        self._http = httpx.Client(base_url=base, headers=headers, timeout=timeout, trust_env=False, transport=transport)

    def close(self) -> None:
        self._http.close()

    def whole(self, kind: type[T], *path: str) -> tuple[T, ...]:
        items: list[T] = []
        marker = ""
        for _ in range(MAX_PAGES):
            page: Page[T] = self.get(Page[kind], *path, limit=MAX_LIMIT, marker=marker)  # type: ignore[valid-type]
            items += page.items
            marker = page.next
            if not marker:
                return tuple(items)
        raise PinnerError(f"the server's list has more than {MAX_PAGES} pages of {MAX_LIMIT}")

    def get(self, kind: type[T], *path: str, **query: str | float | None) -> T:
        """A query field that is None or empty is not sent."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self.call(kind, "GET", path, params=given)

    def post(self, kind: type[T], *path: str, body: Mapping[str, Any]) -> T:
        return self.call(kind, "POST", path, json=body)

    def call(self, kind: type[T], method: str, path: tuple[str, ...], **given: Any) -> T:
        return read(kind, read_json(self.send(method, path, **given)))

    def send(self, method: str, path: tuple[str, ...], **given: Any) -> bytes:
        """Raises the server's error, HostUnreachable and Invalid."""
        with self.reachable(), deadline(self._patience), self._http.stream(method, _url(path), **given) as answer:
            body = content(answer, self._limit)
        if not answer.is_success:
            raise error_of(answer.status_code, body)
        return body

    @contextmanager
    def reachable(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            if _refused_by_mode(error):
                raise NotPermitted(self._url, connect_remedy(Path(self._url.removeprefix(UNIX)))) from None
            late = f" within {self._patience:g} s" if isinstance(error, httpx.TimeoutException) else ""
            why = f"no pinner server answers{late} ({error}); is `pinner serve` running there?"
            raise HostUnreachable(self._url, why) from None
        except TooLarge as error:
            why = f"no pinner server sends such an answer ({error}); ask for less, or check which server listens there"
            raise HostUnreachable(self._url, why, limit=self._limit) from None
        except UnicodeEncodeError as error:
            raise Invalid("text", ascii(error.object), "text in UTF-8") from None

    @contextmanager
    def stream(self, *path: str, silence: float | None = None) -> Iterator[httpx.Response]:
        """A successful answer whose body arrives in parts, or one of the status 503 (Service Unavailable); ``silence``
        is the longest time between two parts, in seconds. Raises httpx.TransportError, and the server's error."""
        timeout = httpx.USE_CLIENT_DEFAULT if silence is None else httpx.Timeout(silence, connect=CONNECT_TIMEOUT)
        request = self._http.build_request("GET", _url(path), timeout=timeout)
        with deadline(self._patience):
            answer = self._http.send(request, stream=True)
        with closing(answer):
            if not answer.is_success and answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                raise self.error(answer)
            encoding(answer)
            yield answer

    def chunks(self, answer: httpx.Response) -> Iterator[bytes]:
        """The body of a stream. Raises HostUnreachable where it breaks off."""
        try:
            yield from answer.iter_bytes()
        except httpx.TransportError as error:
            why = f"the answer broke off before its end ({error}); try again: the server's log says why it ended"
            raise HostUnreachable(self._url, why) from None

    def error(self, answer: httpx.Response) -> PinnerError:
        with self.reachable(), deadline(self._patience):
            return error_of(answer.status_code, content(answer, self._limit))


def _target(url: str) -> tuple[httpx.URL, str]:
    """The base URL, and the path of the Unix socket, empty for TCP. Raises Invalid."""
    if url.startswith(UNIX):
        socket = url.removeprefix(UNIX)
        if not socket.startswith("/"):
            raise Invalid("url", url, f"an absolute path after {UNIX}, such as unix:/run/pinner/api.sock")
        return httpx.URL("http://localhost"), socket
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise Invalid("url", _without_user(url), f"{EXAMPLES} ({error})") from None
    if base.userinfo:
        raise Invalid("url", _without_user(url), "a URL without a user and a password")
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) > MAX_PORT:
        raise Invalid("url", url, EXAMPLES)
    return base, ""


def _without_user(url: str) -> str:
    """For an error: a password is a secret."""
    return re.sub(r"//.*@", "//", url)


def _refused_by_mode(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _url(path: tuple[str, ...]) -> str:
    return "/v1/" + "/".join(quote(part, safe="", errors="replace") for part in path)


def read_json(content: bytes) -> Any:
    try:
        return codec.load(object, content, "answer")
    except Invalid:
        raise PinnerError(f"the server's answer is not JSON: {content[:80]!r}") from None


def read(kind: type[T], value: object) -> T:
    try:
        return codec.read(kind, value, "answer")
    except Invalid as error:
        raise PinnerError(f"the server's answer does not fit this version of pinner: {error}") from None


def error_of(status: int, content: bytes) -> PinnerError:
    """With the type that it had in the server."""
    try:
        sent = read_json(content)["error"]
        return revive(str(sent["code"]), str(sent["message"]), dict(sent["details"]))
    except (PinnerError, LookupError, TypeError, ValueError):
        return PinnerError(f"the server answered {status}, without an error that pinner knows: {content[:80]!r}")


MAX_PART = 16 * 1024 * 1024
"""Bytes of a line or an event."""


def lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The complete lines, each with its line end. Only a line feed ends one: guests' names may contain characters that
    other readers take for a line end (U+2028). Raises PinnerError."""
    for line in _parts(chunks, b"\n"):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise PinnerError(f"the server's answer is not UTF-8 text: {error}") from None
        yield text + "\n"


def server_sent_events(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each. Raises PinnerError."""
    for block in _parts(chunks, b"\n\n"):
        fields = {name: value for name, _, value in (line.partition(b": ") for line in block.split(b"\n"))}
        yield fields.get(b"event", b""), fields.get(b"data", b"")


def _parts(chunks: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(end)
        yield from complete
        if len(rest) > MAX_PART:
            raise PinnerError(f"the server's answer has {len(rest)} bytes without an end; at most {MAX_PART} are read")


KEEP_SECONDS = 5.0
ENCODINGS = ("identity", "gzip")
"""One at a time: two, one in the other, can hide gigabytes."""
_PIECE = 1 << 14
_GZIP = 31
_end: ContextVar[float | None] = ContextVar("end", default=None)


class TooLarge(ValueError):
    """An answer has more bytes than the caller takes."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """All that this thread sends and receives on bounded transports ends in time, or raises httpx.TimeoutException."""
    before = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(before)


def content(answer: httpx.Response, limit: int) -> bytes:
    """Raises TooLarge beyond ``limit`` bytes, compressed or not."""
    received = bytearray()
    for part in answer.iter_raw():
        received += part
        if len(received) > limit:
            raise TooLarge(f"it has more than {limit} bytes")
    if encoding(answer) != "gzip":
        return bytes(received)
    try:
        unpacked = zlib.decompressobj(_GZIP).decompress(received, limit + 1)
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from None
    if len(unpacked) > limit:
        raise TooLarge(f"it has more than {limit} bytes")
    return unpacked


def encoding(answer: httpx.Response) -> str:
    """Raises httpx.DecodingError for any but ENCODINGS."""
    name = str(answer.headers.get("Content-Encoding", "identity")).lower()
    if name not in ENCODINGS:
        raise httpx.DecodingError(f"content encoding {name[:80]!r} instead of {' or '.join(ENCODINGS)}")
    return name


class BoundedTransport(httpx.HTTPTransport):
    """HTTP/1.1 over TCP or a Unix socket, bounded by ``deadline``."""

    def __init__(self, tls: ssl.SSLContext | None, socket: str) -> None:
        super().__init__(verify=tls or False, trust_env=False)
        # httpx has no parameter for the network backend of its pool.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls, uds=socket or None, keepalive_expiry=KEEP_SECONDS, network_backend=_Backend()
        )


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: the stream below has the timeout for each part that the server takes.
        for at in range(0, len(buffer), _PIECE):
            self._stream.write(buffer[at : at + _PIECE], _left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, _left(timeout), local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_unix_socket(path, _left(timeout), socket_options))


def _left(timeout: float | None) -> float | None:
    end = _end.get()
    if end is None:
        return timeout
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise httpcore.ReadTimeout("timed out")
    return seconds if timeout is None else min(timeout, seconds)
