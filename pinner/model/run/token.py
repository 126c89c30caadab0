"""API tokens: ``pinner_ID_SECRET``, of 12 and 64 hexadecimal digits; the id finds the row. The secret has 256 random
bits, so no guessing finds it from a plain SHA-256, unlike a password."""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from pinner.model.errors import Invalid
from pinner.model.run.audit import OWN_ACTORS

MAX_ACTOR = 255

_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0]")
"""Printable for Python, and invisible."""
_NUMBERED = re.compile(r"uld\s+[ol2-9]+")
"""A user without a name, with the letters of _ALIKE."""
_ALIKE = str.maketrans(
    "0οоσօ" + "1iιіӏıⅼł|" + "ρрᴘ" + "сϲ" + "уүγ" + "ηпո" + "гя" + "υս" + "аα" + "тτ" + "һհ" + "еҽ" + "ԁ",  # noqa: RUF001
    "ooooo" + "lllllllll" + "ppp" + "cc" + "yyy" + "nnn" + "rr" + "uu" + "aa" + "tt" + "hh" + "ee" + "d",
)
"""Characters that look like a letter of pinner's own actors (Unicode TR 39)."""


def require_actor(name: str, field: str) -> str:
    """A person's or a program's name. Raises Invalid."""
    if own := next((own for own in sorted(OWN_ACTORS) if _seen(own) == _seen(name)), ""):
        raise Invalid(field, name, f"another name: it looks like {own}, which is one of pinner's own actors")
    if _NUMBERED.fullmatch(_plain(name)):
        raise Invalid(field, name, "another name: pinner shows a user without a name so")
    if not (0 < len(name) <= MAX_ACTOR and name.isprintable() and _is_normal(name)):
        expected = f"1 to {MAX_ACTOR} printable characters in Unicode's form NFKC"
        raise Invalid(field, name, f"{expected}, without a blank at an end and without two together")
    return name


def _is_normal(name: str) -> bool:
    return name == unicodedata.normalize("NFKC", name) == " ".join(name.split()) and not _UNSEEN.search(name)


def _seen(name: str) -> str:
    """The same for names that look alike."""
    return "".join(letter for letter in _plain(name) if letter.isalnum())


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)


Role = Literal["reader", "operator", "admin", "hook"]
"""operator: every GET, snapshots, plans, applies, rollbacks, exclusions; hook: guests' events, and hosts' topology."""
ROLES: tuple[Role, ...] = get_args(Role)

ID_BYTES = 6
SECRET_BYTES = 32
_TEXT = re.compile(rf"pinner_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MAX_HOST = 255


@dataclass(frozen=True, slots=True)
class Token:
    """``name`` is the actor of the audit trail."""

    id: str
    name: str
    role: Role
    host: str
    """Empty: every host."""
    hash: str
    """SHA-256 of the secret, hexadecimal."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    """None: never."""
    revoked_at: datetime | None

    def state(self, now: datetime) -> Literal["active", "expired", "revoked"]:
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "active"


@dataclass(frozen=True, slots=True)
class PresentedToken:
    id: str
    hash: str


def token_text(token_id: str, secret: str) -> str:
    return f"pinner_{token_id}_{secret}"


def secret_hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def parse_token(text: str) -> PresentedToken:
    """Raises Invalid, which does not show the text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise Invalid("token", "(not shown)", "the text that `pinner-manage token create` printed")
    return PresentedToken(match[1], secret_hash(match[2]))


def check_name(name: str, field: str) -> str:
    if not _NAME.fullmatch(name):
        raise Invalid(field, name, "1 to 64 letters, digits and characters of . _ @ -, first a letter or a digit")
    return require_actor(name, field)


def check_role(role: str, field: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise Invalid(field, role, f"one of {', '.join(ROLES)}")


def check_host(host: str, field: str) -> str:
    if not host.isprintable() or not 0 < len(host) <= MAX_HOST:
        raise Invalid(field, host, f"the name of a host, 1 to {MAX_HOST} printable characters")
    return host
