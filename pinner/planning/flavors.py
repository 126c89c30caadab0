"""What a guest's flavor asks of pinner, in its extra specs."""

from collections.abc import Collection, Iterator

from oslo_utils import strutils

from pinner.model.guest import Guest

EXCLUDED = "pinner:excluded"
STRATEGY = "pinner:strategy"
_PREFIX = "pinner:"


def excluded(guest: Guest) -> bool:
    """Whether the flavor leaves the guest alone; a value that says neither yes nor no does not."""
    return strutils.bool_from_string(_specs(guest).get(EXCLUDED, ""), default=False)


def strategy(guest: Guest, known: Collection[str]) -> str:
    """The strategy that the flavor asks for, if it is ``known``; else none, empty."""
    asked = _specs(guest).get(STRATEGY, "")
    return asked if asked in known else ""


def doubts(guest: Guest, known: Collection[str]) -> Iterator[str]:
    """What is wrong in the flavor's words to pinner, and what would be right."""
    expected = {EXCLUDED: "true or false", STRATEGY: " or ".join(sorted(known))}
    for spec, value in sorted(_specs(guest).items()):
        whose = f"guest {guest.name}: its flavor has {spec}"
        if spec.startswith(_PREFIX) and spec not in expected:
            yield f"{whose}, which pinner does not know; it knows {' and '.join(expected)}"
        elif (spec == STRATEGY and value not in known) or (spec == EXCLUDED and not _says(value)):
            yield f"{whose} = {value!r}, which has no effect; right would be {expected[spec]}"


def _says(value: str) -> bool:
    try:
        strutils.bool_from_string(value, strict=True)
    except ValueError:
        return False
    return True


def _specs(guest: Guest) -> dict[str, str]:
    return dict(guest.nova.extra_specs) if guest.nova else {}
