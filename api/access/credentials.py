"""Who sends a request: by the Unix socket's peer, a bearer token, or a TLS client certificate; docs/rest.md says what
wrong credentials lead to.

A valid token is accepted even from an address that has to wait: many callers may share it. After wrong secrets for a
token, the right one must wait at their address, too, so that guesses tell nothing. Hashes are compared in constant
time."""

import hmac
import math
import pwd
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import unquote

from cachetools import TTLCache
from werkzeug.datastructures import Headers, WWWAuthenticate
from werkzeug.exceptions import Forbidden, TooManyRequests, Unauthorized

from pinner.api.access.peer import Networks, Peer, TcpPeer, UnixPeer, client_address, is_trusted, throttle_key
from pinner.model.errors import Invalid, NotFound
from pinner.model.run.audit import UNAUTHENTICATED
from pinner.model.run.token import MAX_ACTOR, PresentedToken, Role, Token, parse_token, require_actor

FREE_FAILURES = 5
"""A person may take the wrong token."""
LONGEST_SECONDS = 60.0
FORGET_SECONDS = 900.0
"""Without a failure for so long, a key starts anew."""
MAX_KEYS = 4096
"""The key that failed least recently makes room for a new one."""


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    until: float


class Throttle:
    """How long a key waits after failures: 1, 2, 4 ... LONGEST_SECONDS. ``clock`` gives seconds that only increase."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: TTLCache[str, _Failures] = TTLCache(MAX_KEYS, FORGET_SECONDS, timer=clock)
        self._guard = threading.Lock()

    def wait(self, key: str) -> float:
        """Seconds."""
        with self._guard:
            failures = self._failures.get(key)
            return max(0.0, failures.until - self._clock()) if failures else 0.0

    def failed(self, key: str) -> float:
        """Returns the seconds to wait. A failure during the wait does not make it longer."""
        with self._guard:
            now = self._clock()
            failures = self._failures.get(key, _Failures(0, now))
            if failures.until <= now:
                count = failures.count + 1
                # The exponent is bounded, so that years of failures do not make a number that no float holds.
                seconds = min(2.0 ** min(count - FREE_FAILURES - 1, 30), LONGEST_SECONDS)
                failures = _Failures(count, now + seconds if count > FREE_FAILURES else now)
            self._failures[key] = failures
            return failures.until - now


ACTOR_HEADER = "X-Pinner-Actor"
"""The person for whom root sends the request over the Unix socket, percent-encoded (RFC 3986)."""
FORWARDED_HEADERS = ("X-Forwarded-For", "Forwarded")
ACCEPTED_SECONDS = 3600.0
MAX_ACCEPTED = 1024
FRESH_SECONDS = 1.0
"""The age at which a token's row is read again: a read takes 0.2 ms, and requests may be thousands a second."""
MAX_ROWS = 1024
_NO_HASH = "0" * 64
_MAKE_ONE = "`pinner-manage token create` makes one"


@dataclass(frozen=True, slots=True)
class Identity:
    actor: str
    origin: str
    """The client's address, or the process at the other end of the Unix socket."""
    role: Role | None = None
    """None: only the public paths are allowed."""
    host: str = ""
    """The only host that the request may act on; empty: every host."""


class TokenReader(Protocol):
    def find(self, token_id: str) -> Token:
        """Raises NotFound."""


class Credentials:
    """``client_roles`` are by the common name of a client certificate. The X-Forwarded-For of ``trusted`` proxies is
    believed. ``clock`` gives seconds that only increase."""

    def __init__(
        self,
        tokens: TokenReader,
        client_roles: Mapping[str, Role],
        trusted: Networks,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self._client_roles = client_roles
        self._trusted = trusted
        self._now = now
        self._throttle = Throttle(clock)
        self._accepted: TTLCache[tuple[str, str], bool] = TTLCache(MAX_ACCEPTED, ACCEPTED_SECONDS, timer=clock)
        self._rows: TTLCache[str, Token] = TTLCache(MAX_ROWS, FRESH_SECONDS, timer=clock)
        self._guard = threading.Lock()

    def anonymous(self, peer: Peer, headers: Headers) -> Identity:
        match peer:
            case UnixPeer(_, pid):
                return Identity(UNAUTHENTICATED, f"process {pid}")
            case TcpPeer(address):
                forwarded = ",".join(headers.getlist("X-Forwarded-For"))
                return Identity(UNAUTHENTICATED, client_address(address, forwarded, self._trusted))

    def identify(self, peer: Peer, headers: Headers) -> Identity:
        """Raises Unauthorized, TooManyRequests, Forbidden, and Invalid for a wrong X-Pinner-Actor. On TCP a token
        counts more than a certificate; a trusted proxy's certificate does not speak for its clients."""
        sender = self.anonymous(peer, headers)
        match peer:
            case UnixPeer(uid):
                return Identity(_local_actor(uid, headers), sender.origin, "admin")
            case TcpPeer():
                identity = self._over_tcp(peer, headers, sender.origin)
                if ACTOR_HEADER in headers:
                    raise Invalid(ACTOR_HEADER, "(not shown)", "no such header: only root on the Unix socket sends it")
                return identity

    def _over_tcp(self, peer: TcpPeer, headers: Headers, origin: str) -> Identity:
        if "Authorization" in headers:
            return self._by_token(headers["Authorization"], origin)
        if peer.certificate and not is_trusted(peer.address, self._trusted):
            return self._by_certificate(peer.certificate, origin)
        raise _unauthorized(f"this server needs a bearer token; {_MAKE_ONE}")

    def _by_certificate(self, name: str, origin: str) -> Identity:
        if name not in self._client_roles:
            raise Forbidden(f"certificate: {name[:MAX_ACTOR]!r} has no role in [api] tls_client_roles")
        return Identity(name, origin, self._client_roles[name])

    def _by_token(self, authorization: str, origin: str) -> Identity:
        key = throttle_key(origin)
        scheme, _, text = authorization.partition(" ")
        try:
            presented = parse_token(text.strip())
        except Invalid:
            raise self._refused(key, f"this is no bearer token of pinner; {_MAKE_ONE}") from None
        if scheme.lower() != "bearer":
            raise self._refused(key, "the scheme must be Bearer")
        token = self._match(presented, key)
        match token.state(self._now()):
            case "revoked":
                raise self._refused(key, f"token {token.id} is revoked; {_MAKE_ONE}")
            case "expired":
                raise self._refused(key, f"token {token.id} has expired; {_MAKE_ONE}")
            case "active":
                with self._guard:
                    self._accepted[key, presented.hash] = True
                return Identity(token.name, origin, token.role, token.host)

    def _match(self, presented: PresentedToken, key: str) -> Token:
        token = self._find(presented.id)
        is_right = hmac.compare_digest(presented.hash, token.hash if token else _NO_HASH)
        if token is None:
            raise self._refused(key, _no_match(presented))
        own_key = f"{key} {token.id}"
        if is_right and (not self._throttle.wait(own_key) or self._was_accepted(key, presented)):
            return token
        if not is_right:
            self._throttle.failed(own_key)
        raise self._refused(key, _no_match(presented))

    def _find(self, token_id: str) -> Token | None:
        with self._guard:
            row = self._rows.get(token_id)
        if row is None:
            try:
                row = self._tokens.find(token_id)
            except NotFound:
                return None
            with self._guard:
                self._rows[token_id] = row
        return row

    def _was_accepted(self, key: str, presented: PresentedToken) -> bool:
        with self._guard:
            return (key, presented.hash) in self._accepted

    def _refused(self, key: str, why: str) -> Unauthorized | TooManyRequests:
        seconds = math.ceil(self._throttle.failed(key))
        if seconds:
            return TooManyRequests(
                f"Authorization: too many requests with wrong credentials come from this address; try again in "
                f"{seconds} seconds. The last one: {why}",
                retry_after=seconds,
            )
        return _unauthorized(why)


def _no_match(presented: PresentedToken) -> str:
    return f"there is no token {presented.id} with this secret"


def _unauthorized(why: str) -> Unauthorized:
    return Unauthorized(f"Authorization: {why}", www_authenticate=WWWAuthenticate("bearer", {"realm": "pinner"}))


def _local_actor(uid: int, headers: Headers) -> str:
    """The user of the process, or the actor that root names. Raises Invalid, Forbidden."""
    if any(name in headers for name in FORWARDED_HEADERS):
        # Everybody on the Unix socket is an administrator, and so would be every client of the proxy.
        raise Forbidden("a reverse proxy must not use the Unix socket; let it connect to [api] bind, with tokens")
    named = headers.get(ACTOR_HEADER)
    if named is None:
        return _user_name(uid)
    if uid != 0:
        raise Invalid(
            ACTOR_HEADER, named[:MAX_ACTOR], f"no such header from uid {uid}: only root may name another actor"
        )
    actor = unquote(named)
    # Root may have no name, or one of pinner's own.
    return actor if actor == _user_name(uid) else require_actor(actor, ACTOR_HEADER)


def _user_name(uid: int) -> str:
    """The number where the user has no name, or one that people can mistake."""
    try:
        return require_actor(pwd.getpwuid(uid).pw_name, "user")
    except (KeyError, Invalid):
        return f"uid {uid}"
