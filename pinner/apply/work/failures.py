"""The guests that do not answer, and the failures of a run in words."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from pinner.apply.ports import Host
from pinner.model.change import Target
from pinner.model.errors import Busy, PinnerError
from pinner.model.kinds import DEFINED
from pinner.model.plan.groups import Group, group_of
from pinner.model.run.journal import Damaged, Entry
from pinner.model.text import listed

NAMED = 16
"""Guests and processes that a run's error names."""


LOSSES = 3
"""Failed undos that a run's error names."""

RECOVERED = {
    "applied": "finished",
    "applied_partly": "finished in part",
    "undone": "rolled back",
    "failed": "rolled back in part",
    "rolled_back": "its rollback finished",
    "rolled_back_partly": "its rollback finished in part",
}
"""By the state of a run that a recovery has ended."""


def summary(failures: Collection[tuple[Entry, str]], groups: int) -> str:
    reasons = [_reason(entry, error) for entry, error in failures]
    return f"{len(reasons)} of {groups} guests and processes are not placed: {listed(reasons, NAMED, '; ')}"


def losses(lost: Sequence[Entry], changes: int) -> str:
    """Empty where none is ``lost``."""
    if not lost:
        return ""
    why = "; ".join(entry.error for entry in lost[:LOSSES])
    return f"{len(lost)} of {changes} changes could not be undone: {why}"


def unreadable(damaged: Sequence[Damaged]) -> str:
    if not damaged:
        return ""
    named = listed(list(map(str, damaged)), NAMED)
    return f"the journal has damaged records, which are not undone: {named}; {damaged[0].why}"


def words(error: BaseException) -> str:
    """The text of an error; without one, the name of its type."""
    return str(error) or type(error).__name__


def unanswering(entries: Sequence[Entry], host: Host, unread: Mapping[str, str]) -> dict[Group, tuple[Entry, str]]:
    """The guests that do not answer now or are ``unread`` (see Admission), each with its first entry and the reason."""
    guests: dict[Group, Entry] = {}
    for entry in entries:
        if entry.change.target.kind in DEFINED:
            guests.setdefault(group_of(entry.change.target), entry)
    busy = {}
    for guest, entry in guests.items():
        with suppress(PinnerError):
            try:
                require_read(entry.change.target, unread)
                host.require_answering(entry.change.target)
            except Busy as error:
                busy[guest] = (entry, words(error))
    return busy


def require_read(target: Target, unread: Mapping[str, str]) -> None:
    """Raises Busy for a part of a guest that is ``unread``."""
    if why := unread.get(target.owner):
        raise Busy(str(target), f"it cannot be read: {why}", overdue=False)


def _reason(failed: Entry, error: str) -> str:
    target = str(failed.change.target)
    return error if error.startswith(target) else f"{target}: {error}"
