"""The names of actors: people and programs that the audit trail shows. Nobody is named like a part of pinner."""

import re
import unicodedata

from pinner.model.errors import Invalid
from pinner.model.run.audit import OWN_ACTORS

MAX_ACTOR = 255
"""Characters of a name."""

_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u2800\u3164\ufe00-\ufe0f\uffa0]")
"""Characters that Python counts as printable, and nobody sees."""
_NUMBERED = re.compile(r"uld\s+[ol2-9]+")
"""A user without a name, with the letters of _ALIKE."""
_ALIKE = str.maketrans(
    "0οоσօ" + "1iιіӏıⅼł|" + "ρрᴘ" + "сϲ" + "уүγ" + "ηпո" + "гя" + "υս" + "аα" + "тτ" + "һհ" + "еҽ" + "ԁ",  # noqa: RUF001
    "ooooo" + "lllllllll" + "ppp" + "cc" + "yyy" + "nnn" + "rr" + "uu" + "aa" + "tt" + "hh" + "ee" + "d",
)
"""Digits and letters of other alphabets that look like a letter of pinner's own actors (Unicode TR 39)."""


def require_actor(name: str, field: str) -> str:
    """The name, where it is that of a person or a program. Raises Invalid."""
    if own := next((own for own in sorted(OWN_ACTORS) if _seen(own) == _seen(name)), ""):
        raise Invalid(field, name, f"another name: it looks like {own}, which is one of pinner's own actors")
    if _NUMBERED.fullmatch(_plain(name)):
        raise Invalid(field, name, "another name: pinner shows a user without a name so")
    if not (0 < len(name) <= MAX_ACTOR and name.isprintable() and _is_normal(name)):
        expected = f"1 to {MAX_ACTOR} printable characters in Unicode's form NFKC"
        raise Invalid(field, name, f"{expected}, without a blank at an end and without two together")
    return name


def _is_normal(name: str) -> bool:
    """Whether a name has one way to be written, and shows all its characters."""
    return name == unicodedata.normalize("NFKC", name) == " ".join(name.split()) and not _UNSEEN.search(name)


def _seen(name: str) -> str:
    """The letters and digits of a name, the same for names that look alike."""
    return "".join(letter for letter in _plain(name) if letter.isalnum())


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)
