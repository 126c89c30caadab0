"""The guests and processes that a run could not place, from its entries or from a refusal."""

from collections.abc import Iterable

from pinner.model.change import Target
from pinner.model.errors import PinnerError
from pinner.model.groups import Group, group_of, is_of_the_host, others_that_move
from pinner.model.journal import Entry

Failures = dict[Group, tuple[Target, str]]
"""By group: the target whose change failed, and its error."""


def failures_of(entries: Iterable[Entry]) -> Failures:
    """The groups of a run that failed."""
    found: Failures = {}
    for entry in entries:
        if entry.state in ("failed", "stuck") and entry.error:
            found.setdefault(group_of(entry.change.target), (entry.change.target, entry.error))
    return found


def moving_targets(refusals: Iterable[PinnerError]) -> Failures:
    """The groups that made every one of these plans stale: something moves them faster than a plan is made and
    applied."""
    named = [_moved(refusal) for refusal in refusals]
    repeated = set.intersection(*map(set, named)) if named else set()
    return {group: named[-1][group] for group in repeated}


def _moved(refusal: PinnerError) -> Failures:
    found: Failures = {}
    for fields in refusal.details.get("targets", ()):
        target = Target(**fields)
        if is_of_the_host(target):
            continue
        why = next((text for text in refusal.details["moved"] if text.startswith(str(target))), str(target))
        found.setdefault(
            group_of(target), (target, f"{why}, after each new plan: {others_that_move(target)} sets its affinity")
        )
    return found
