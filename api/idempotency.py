"""The Idempotency-Key of a POST (draft-ietf-httpapi-idempotency-key-header): a client that got no answer sends the
request again with the same key, and the action is not repeated."""

import hashlib
import zlib

from flask import Response, g, request

from pinner.api.context import app_state, identity
from pinner.model.errors import Invalid, PinnerError
from pinner.store.idempotency import StoredAnswer

KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
"""Header field of an answer that was given before."""
MAX_LENGTH = 255


class InProgress(PinnerError):
    """The first request with this key has no answer yet."""

    code = "in_progress"

    def __init__(self, key: str) -> None:
        super().__init__(f"{KEY}: the first request with {key!r} is in progress; send it again later", key=key)


class KeyReused(PinnerError):
    """The key was used for another request."""

    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(f"{KEY}: {key!r} was used for another request; use a new key for each action", key=key)


def replay() -> Response | None:
    """The stored answer of a repeated request; None: the request has no key, or is the first one with its key.

    Raises Invalid, InProgress and KeyReused.
    """
    key = request.headers.get(KEY)
    if request.method != "POST" or key is None:
        return None
    if not (0 < len(key) <= MAX_LENGTH and key.isascii() and key.isprintable()):
        raise Invalid(KEY, key[:80], f"1 to {MAX_LENGTH} printable ASCII characters")
    state = app_state()
    if state.idempotency_keys is None:
        raise Invalid(KEY, key, "no key: this server stores no answers")
    fingerprint = _fingerprint()
    stored = state.idempotency_keys.begin(_scope(), key, fingerprint, state.now())
    if stored is None:
        g.idempotency = key, fingerprint
        return None
    if stored.status == 0:
        raise InProgress(key)
    if stored.fingerprint != fingerprint:
        raise KeyReused(key)
    headers = {REPLAYED: "true"} | ({"Location": stored.location} if stored.location else {})
    return Response(zlib.decompress(stored.body), stored.status, headers, mimetype="application/json")


def remember(response: Response) -> Response:
    """Store the answer of a successful request with a key; free the key of a request that failed."""
    reserved = g.pop("idempotency", None)
    keys = app_state().idempotency_keys
    if reserved is None or keys is None:
        return response
    key, fingerprint = reserved
    if response.status_code < 400:
        body = zlib.compress(response.get_data())
        keys.end(_scope(), key, StoredAnswer(fingerprint, response.status_code, response.location or "", body))
    else:
        keys.forget(_scope(), key)
    return response


def _scope() -> str:
    """The callers that share a key: one actor, limited to one host or to none."""
    return f"{identity().actor} {identity().host}".strip()


def _fingerprint() -> str:
    parts = (request.method, request.full_path, request.get_data(cache=True).decode("latin-1"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
