"""Makes the changes of a run that is open in the journal, several guests at once."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from pinner.apply import steps
from pinner.apply.notes import Notes, reported, require_read, summary, unanswering, words
from pinner.apply.ports import Host, Journal, Progress
from pinner.apply.side_by_side import side_by_side, with_busy_last
from pinner.apply.steps import Step
from pinner.apply.steps.metadata import is_saved
from pinner.apply.undo.undoing import undoable
from pinner.model.change import Group, MetadataChange, Target, are_independent, group_of, without_room
from pinner.model.errors import ApplyFailed, Busy, Gone, PinnerError, StoreUnavailable
from pinner.model.kinds import ALONE, DEFINED, INSIDE, SETTINGS
from pinner.model.run.journal import UNDO_BEGUN, Entry, EntryState, Run, RunState

_PUT_OFF = "; its undo is not made yet"

LOG = logging.getLogger(__name__)


class Transaction:
    def __init__(
        self,
        run: Run,
        entries: Sequence[Entry],
        host: Host,
        journal: Journal,
        now: Callable[[], datetime],
        progress: Progress,
        *,
        unread: Mapping[str, str] = MappingProxyType({}),
        resumed: bool = False,
    ) -> None:
        """``unread``: see Admission. ``resumed``: each change may be made or half made. A process or setting (ALONE)
        that is ``gone`` stays so: its id may be another one's."""
        self._unread = unread
        self._ended: set[Target] = set()
        """Targets that ended when their definition may have been written."""
        self._run = run
        self._entries = entries
        self._host = host
        self._journal = journal
        self._resumed = resumed
        self._notes = Notes(run, len(entries), journal, now, progress, resumed=resumed, reported=reported(run, entries))
        self._note, self._noted = self._notes.note, self._notes.latest
        self._is_independent = not run.all_or_nothing and are_independent(entry.change for entry in entries)
        self._at_once = host.guests_at_once if are_independent(entry.change for entry in entries) else 1
        self._groups = dict.fromkeys(group_of(entry.change.target) for entry in entries)
        self._in_place: dict[int, Entry] = {}
        """By ``seq``: the changes that are or may be made."""
        self._forced: set[int] = set()
        """The ``seq`` of each change that failed just now and has touched the host."""
        self._errors: dict[int, str] = {}
        self._failures: dict[Group, tuple[Entry, str]] = {}
        self._begun: set[Group] = set()
        self._busy: set[Group] = set()
        self._resumed_failures: Collection[Group] = ()
        for entry in entries[:1]:
            self._notes.begin(entry)

    def make(self) -> Run:
        """A group whose change fails is undone. The run ends ``applied``; ``applied_partly`` if some groups are placed;
        ``undone`` if none is; ``failed`` if an undo failed. Any failure undoes all groups of an ``all_or_nothing`` run;
        if the run changes the host itself, any failure but a setting's does. Raises StoreUnavailable if the end cannot
        be written: all changes are undone then."""
        self._resume()
        try:
            if self._lacks_answers():
                self._undo_groups(set(self._groups))
                return self._notes.close(*self._outcome())
            self._leave_out_unfit()
            side_by_side(self._entries, self._attempt, self._at_once if self._is_independent else 1)
            self._undo_failures()
        except BaseException as error:  # any error, also Ctrl-C: the host must not stay half changed
            self._undo_groups(set(self._groups))
            closed = self._notes.close("failed" if self._has_stuck() else "undone", words(error))
            if isinstance(error, PinnerError):
                return closed
            raise
        try:
            return self._notes.close(*self._outcome())
        except StoreUnavailable:
            self._undo_on_host(list(self._in_place.values()))
            raise

    def _resume(self) -> None:
        for entry in self._entries if self._resumed else ():
            self._in_place[entry.seq] = entry
            if entry.state in ("failed", "stuck"):
                self._errors[entry.seq] = entry.error.removesuffix(_PUT_OFF)
            if entry.state in UNDO_BEGUN:
                failed = self._failures.setdefault(group_of(entry.change.target), (entry, ""))
                error = failed[1] or self._errors.get(entry.seq, "")
                self._failures[group_of(entry.change.target)] = (entry if error else failed[0], error)
        self._resumed_failures = frozenset(self._failures)

    def _lacks_answers(self) -> bool:
        """All missing answers of an all-or-nothing run are noted, so that the next run leaves these guests out."""
        if self._is_independent or self._resumed:
            return False
        failed = (entry for entry in self._entries if self._run.all_or_nothing and entry.state == "failed")
        missing = {group_of(entry.change.target): (entry, entry.error) for entry in failed}
        for group, (entry, error) in (missing | unanswering(self._entries, self._host, self._unread)).items():
            self._errors[entry.seq] = error
            self._failures[group] = (entry, error)
        return bool(self._failures)

    def _leave_out_unfit(self) -> None:
        """See Admission. Nothing is written into a guest only to be undone."""
        for entry in () if self._resumed else self._entries:
            if entry.state == "failed" and entry.change.target.kind in INSIDE:
                self._errors[entry.seq] = entry.error
                self._abort(entry, later=False)

    def _attempt(self, entry: Entry) -> None:
        """Raises an error that concerns the whole run; any other aborts the group."""
        if group_of(entry.change.target) in self._failures:
            return
        step = steps.step(entry, self._host, self._journal, persist=self._run.persist, resumed=self._resumed)
        group = group_of(entry.change.target)
        try:
            self._in_place[entry.seq] = self._make(step)
        except BaseException as error:
            if step.touched or self._resumed:
                self._in_place[entry.seq] = step.entry
            if step.touched:
                self._forced.add(entry.seq)
            self._errors[entry.seq] = words(error)
            if isinstance(error, Busy):
                self._busy.add(group)
            fails_alone = self._is_independent or self._may_skip(entry)
            if not fails_alone or not isinstance(error, PinnerError) or isinstance(error, StoreUnavailable):
                raise
            self._abort(entry, later=isinstance(error, Busy))

    def _may_skip(self, entry: Entry) -> bool:
        return not self._run.all_or_nothing and entry.change.target.kind in SETTINGS

    def _make(self, step: Step) -> Entry:
        target = step.entry.change.target
        if step.entry.state == "gone" and target.kind in ALONE:
            return self._note(step.entry, "gone", step.entry.error)
        require_read(target, self._unread)
        try:
            if target.kind in DEFINED and group_of(target) not in self._begun:
                self._host.guests.require_answering(target)
                self._begun.add(group_of(target))
            step.make()
        except Gone as error:
            half_made = step.touched or self._resumed
            if half_made and target.kind in DEFINED:
                if is_saved(target.owner, self._host):
                    # Its image may have some of the changes, and no rollback undoes what is gone.
                    raise ApplyFailed(str(target), "the guest was saved meanwhile") from error
                if self._run.persist:
                    self._ended.add(target)
            if half_made and target.kind == "process":
                # Its children may have inherited the mask, and no rollback undoes a change that is gone.
                return self._note(step.entry, *self._undo(step.entry))
            return self._note(step.entry, "gone", str(error))
        return self._note(step.entry, "done")

    def _abort(self, failed: Entry, *, later: bool) -> None:
        """``later``: when the other groups are made. The journal has the failure first: a recovery undoes the group."""
        group, error = group_of(failed.change.target), self._errors[failed.seq]
        self._failures[group] = (failed, error)
        if later and self._in_groups({group}, tuple(self._in_place.values())):
            touched = self._in_place.get(failed.seq)
            self._note(touched or failed, "stuck" if touched else "failed", error + (_PUT_OFF if touched else ""))
            self._note_unmade({group})
        else:
            self._undo_groups({group})
        self._journal.intend()

    def _undo_failures(self) -> None:
        while self._failures and (blocked := self._without_room()):
            for entry, why in blocked.values():
                self._errors[entry.seq] = f"{entry.change.target}: {why}"
                self._abort(entry, later=True)
        put_off = {group for group in self._failures if self._in_groups({group}, self._in_place.values())}
        if put_off:
            self._undo_groups(put_off)

    def _without_room(self) -> dict[Group, tuple[Entry, str]]:
        """The groups with a vCPU on a CPU that a failed group kept, with that change and the reason."""
        placed = self._placed()
        unmade = (entry.change for entry in self._in_groups(self._failures, self._entries))
        blocked = without_room(unmade, [entry.change for entry in placed])
        return {group_of(placed[position].change.target): (placed[position], why) for position, why in blocked}

    def _undo_groups(self, groups: Collection[Group]) -> None:
        """Latest change first. The notes come after: the journal has every prior mask."""
        # Copies: other guests may be changed at the same time.
        touched = sorted(self._in_groups(groups, tuple(self._in_place.values())), key=lambda entry: entry.seq)
        outcomes = self._undo_on_host(touched)
        for entry in touched:
            del self._in_place[entry.seq]
        latest = {entry.seq: entry for entry in (*self._entries, *touched)}
        failed = [seq for seq in tuple(self._errors) if seq in outcomes or seq not in self._noted]
        for entry in self._in_groups(groups, [latest[seq] for seq in failed]):
            state, problem = outcomes.pop(entry.seq, ("undone", ""))
            why = "; but its undo: ".join(filter(None, (self._errors[entry.seq], problem)))
            self._note(entry, "stuck" if state == "stuck" else "failed", why)
        for seq, (state, problem) in outcomes.items():
            self._note(latest[seq], state, problem)
        self._note_unmade(groups)

    def _undo_on_host(self, touched: Sequence[Entry]) -> dict[int, tuple[EntryState, str]]:
        outcomes: dict[int, tuple[EntryState, str]] = {}

        def undo(entry: Entry) -> None:
            try:
                outcomes[entry.seq] = self._undo(entry, force=entry.seq in self._forced)
            except Exception as error:
                LOG.exception("run %s: the undo of %s", self._run.id, entry.change.target)
                outcomes[entry.seq] = "stuck", words(error)

        with_busy_last(undoable(self._run, touched), undo, tuple(self._busy), self._at_once)
        return outcomes

    def _note_unmade(self, groups: Collection[Group]) -> None:
        """Changes that are ``gone`` or ``failed`` from the beginning stay so."""
        for entry in () if self._resumed else self._in_groups(groups, self._entries):
            if entry.seq not in self._noted and entry.seq not in self._in_place:
                unmade: tuple[EntryState, str] = ("undone", "not made: a change before it failed")
                self._note(entry, *(unmade if entry.state == "intent" else (entry.state, entry.error)))

    def _outcome(self) -> tuple[RunState, str]:
        if not self._failures:
            return "applied", ""
        in_place = self._placed() or any(group_of(target) not in self._failures for target in self._ended)
        state: RunState = "applied_partly" if in_place else "failed" if self._has_stuck() else "undone"
        if state != "applied_partly" and len(self._failures) == 1:
            return state, next(iter(self._failures.values()))[1]
        return state, summary(self._failures.values(), len(self._groups))

    def _placed(self) -> list[Entry]:
        """Metadata without pins places no guest."""
        placed = self._in_groups(self._groups.keys() - self._failures.keys(), self._in_place.values())
        return [entry for entry in placed if entry.state == "done" and not isinstance(entry.change, MetadataChange)]

    def _has_stuck(self) -> bool:
        return any(entry.state == "stuck" for entry in self._noted.values())

    @staticmethod
    def _in_groups(groups: Collection[Group], entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if group_of(entry.change.target) in groups]

    def _undo(self, entry: Entry, *, force: bool = False) -> tuple[EntryState, str]:
        under_way = group_of(entry.change.target) in self._resumed_failures
        return steps.undo(entry, self._host, self._journal, persist=self._run.persist, force=force, under_way=under_way)
