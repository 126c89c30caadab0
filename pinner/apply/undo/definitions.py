"""The pin in a guest's definition that an undo restores: the last one that no run wrote.

If an operator changed it between two runs, only the later run's entry has the operator's pin.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pinner.apply.ports import Host, Journal
from pinner.model.change import AffinityChange, Target, TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import PINNED
from pinner.model.run.journal import Entry, InForce, Run


def last_of_others(known: str, found: str, written: Collection[CpuSet], target: Target, host: Host) -> str:
    """The definition that a run ``found``, unless earlier runs had ``written`` the target's pin there: then
    ``known``."""
    return known if host.defined_pin(target, found) in written else found


class Definitions:
    """The definitions that targets of one run would have without it. Later runs come oldest first."""

    def __init__(self, run: Run, entries: Iterable[Entry], host: Host) -> None:
        self._host = host
        self._first = {entry.change.target.key: entry for entry in entries if run.persist}
        self._last: dict[TargetKey, str] = {}

    def __contains__(self, target: Target) -> bool:
        return target.key in self._first

    def without_run(self, later: Entry) -> Entry:
        """A later run's entry with the definition that it would have found."""
        target = later.change.target
        first = self._first.get(target.key)
        if first is None or not isinstance(first.change, AffinityChange) or target.kind not in PINNED:
            return later
        known = self._last.get(target.key, first.definition)
        # A later run that gave the target other CPUs has been rolled back, or the rollback of the run is refused.
        self._last[target.key] = last_of_others(known, later.definition, (first.change.after,), target, self._host)
        return replace(later, definition=self._last[target.key])

    def of_run(self, entry: Entry) -> Entry:
        """The run's entry with the definition that its undo restores."""
        return replace(entry, definition=self._last.get(entry.change.target.key, entry.definition))


def with_pins_of_others(run: Run, entries: Sequence[Entry], host: Host, journal: Journal) -> list[Entry]:
    definitions = Definitions(run, entries, host)
    for record in journal.in_force(run.host, after=run.id) if run.persist else ():
        if isinstance(record, InForce) and record.persist:
            definitions.without_run(record.entry)
    return [definitions.of_run(entry) for entry in entries]
