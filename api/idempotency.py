"""The Idempotency-Key of a POST (draft-ietf-httpapi-idempotency-key-header): the action is not repeated when a client
that got no answer repeats the request."""

import hashlib
import logging
import zlib

from flask import Response, g, request

from pinner.api.access.context import app_state, identity
from pinner.model.errors import Invalid, PinnerError, StoreUnavailable
from pinner.store.idempotency import Reservation, StoredAnswer

LOG = logging.getLogger(__name__)

KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
MAX_LENGTH = 255


class InProgress(PinnerError):
    code = "in_progress"

    def __init__(self, key: str) -> None:
        super().__init__(f"{KEY}: the first request with {key!r} is in progress; send it again later", key=key)


class KeyReused(PinnerError):
    code = "key_reused"

    def __init__(self, key: str) -> None:
        super().__init__(f"{KEY}: {key!r} was used for another request; use a new key for each action", key=key)


def replay() -> Response | None:
    """The stored answer; None without a key, or for its first request. Raises Invalid, InProgress and KeyReused."""
    key = request.headers.get(KEY)
    if request.method != "POST" or key is None:
        return None
    if not (0 < len(key) <= MAX_LENGTH and key.isascii() and key.isprintable()):
        raise Invalid(KEY, key[:80], f"1 to {MAX_LENGTH} printable ASCII characters")
    state = app_state()
    if state.idempotency_keys is None:
        raise Invalid(KEY, key, "no key: this server stores no answers")
    reservation = Reservation(_scope(), key, _fingerprint(), state.now())
    stored = state.idempotency_keys.begin(reservation)
    if stored is None:
        g.idempotency = reservation
        return None
    if stored.fingerprint != reservation.fingerprint:
        raise KeyReused(key)
    if stored.status == 0:
        raise InProgress(key)
    headers = {REPLAYED: "true"} | ({"Location": stored.location} if stored.location else {})
    return Response(zlib.decompress(stored.body), stored.status, headers, mimetype="application/json")


def remember(response: Response) -> Response:
    """Store the answer of a successful request; free the key of a failed one. Where it cannot be stored, the key has no
    answer until it counts as abandoned."""
    reservation: Reservation | None = g.pop("idempotency", None)
    keys = app_state().idempotency_keys
    if reservation is None or keys is None:
        return response
    try:
        if response.status_code < 400:
            body = zlib.compress(response.get_data())
            stored = StoredAnswer(reservation.fingerprint, response.status_code, response.location or "", body)
            keys.end(reservation, stored)
        else:
            keys.forget(reservation)
    except StoreUnavailable as error:
        LOG.error("%s: the answer for its %s is not stored: %s", g.request_id, KEY, error)
    return response


def _scope() -> str:
    """Callers share the keys of one actor and host limit."""
    actor, host = identity().actor, identity().host
    # A hash, because both together can be too long for the column. No actor's name has the separator.
    return hashlib.sha256(f"{actor}\n{host}".encode()).hexdigest() if host else actor


def _fingerprint() -> str:
    parts = (request.method, request.full_path, request.get_data(cache=True).decode("latin-1"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
