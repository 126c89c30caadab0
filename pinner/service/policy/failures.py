"""The guests and processes that a run could not place, from its entries or from a refusal."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pinner.model.change import Target
from pinner.model.errors import PinnerError
from pinner.model.plan.groups import Group, group_of, is_of_the_host, others_that_move
from pinner.model.run.journal import Entry

Failures = dict[Group, tuple[Target, str]]
"""By group: the target whose change failed, and its error."""


def failures_of(entries: Iterable[Entry]) -> Failures:
    found: Failures = {}
    for entry in entries:
        if entry.state in ("failed", "stuck") and entry.error:
            found.setdefault(group_of(entry.change.target), (entry.change.target, entry.error))
    return found


def are_of_the_host(failures: Failures) -> bool:
    """Whether a change of the host itself failed."""
    return any(is_of_the_host(target) for target, _ in failures.values())


def moving_targets(refusals: Sequence[PinnerError]) -> Failures:
    """The groups that make plan after plan stale; none after one refusal.

    Each process that a refusal names is one: something moves it faster than a plan is made and applied. A guest is one
    only if two refusals name it, because a guest that was started again makes one plan stale, too.
    """
    found: Failures = {}
    times: Counter[Group] = Counter()
    for refusal in refusals if len(refusals) > 1 else ():
        named = _moved(refusal)
        times.update(named.keys())
        found |= named
    return {group: why for group, why in found.items() if times[group] > 1 or why[0].kind == "process"}


def _named_targets(refusal: PinnerError) -> Failures:
    """Except those of the host itself."""
    found: Failures = {}
    for fields in refusal.details.get("targets", ()):
        target = Target(**fields)
        if not is_of_the_host(target):
            why = next((text for text in refusal.details["moved"] if text.startswith(str(target))), str(target))
            found.setdefault(group_of(target), (target, why))
    return found


def _moved(refusal: PinnerError) -> Failures:
    return {
        group: (target, f"{why}, after a new plan: {others_that_move(target)} sets its affinity")
        for group, (target, why) in _named_targets(refusal).items()
    }
