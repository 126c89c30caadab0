"""The settings for pinner in a flavor's extra specs."""

from collections.abc import Collection, Iterator

from pinner.model.guest.guest import Guest

EXCLUDED = "pinner:excluded"
STRATEGY = "pinner:strategy"
_PREFIX = "pinner:"


def excluded(guest: Guest) -> bool:
    """A value that is not a boolean excludes nothing."""
    value = _specs(guest).get(EXCLUDED, "")
    return bool(value) and _boolean(value) is True


def strategy(guest: Guest, known: Collection[str]) -> str:
    """The strategy that the flavor asks for, if ``known`` has it; else empty."""
    asked = _specs(guest).get(STRATEGY, "")
    return asked if asked and asked in known else ""


def warnings(guest: Guest, known: Collection[str]) -> Iterator[str]:
    """About settings for pinner that have no effect."""
    for spec, value in sorted(_specs(guest).items()):
        whose = f"guest {guest.name}: its flavor has {spec}"
        if spec == EXCLUDED and _boolean(value) is None:
            yield f"{whose} = {value!r}, which has no effect; valid is true or false"
        # All names are asked for only here: that loads the plug-ins, and fails where one of them does not load.
        elif spec == STRATEGY and value not in known:
            yield f"{whose} = {value!r}, which has no effect; valid is {' or '.join(sorted(known))}"
        elif spec.startswith(_PREFIX) and spec not in (EXCLUDED, STRATEGY):
            yield f"{whose}, which pinner does not know; valid are {EXCLUDED} and {STRATEGY}"


def _boolean(value: str) -> bool | None:
    """The value as Nova reads it; None for any other text."""
    # Few flavors have the setting, and the import takes longer than a plan.
    from oslo_utils import strutils

    try:
        found: bool = strutils.bool_from_string(value, strict=True)
    except ValueError:
        return None
    return found


def _specs(guest: Guest) -> dict[str, str]:
    return dict(guest.nova.extra_specs) if guest.nova else {}
