"""Applies a plan; rolls back one run or all. The journal has each change before it is made; the kernel is read back."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime

from pinner.apply import steps
from pinner.apply.notes import Notes, reported, require_read, words
from pinner.apply.ports import Admission, Admit, Host, Journal, Part, Progress
from pinner.apply.steps.memory import memory_changes
from pinner.apply.steps.metadata import is_named, with_metadata
from pinner.apply.transaction import Transaction
from pinner.apply.undo.all_runs import whole_undo
from pinner.apply.undo.later_runs import corrected_later_runs
from pinner.apply.undo.undoing import Undoing, undoable, with_prior_facts
from pinner.model.change import AffinityChange, Change, PlannedChange, Target, are_independent, contiguous
from pinner.model.errors import (
    NOTHING_CHANGED,
    ApplyFailed,
    Blocked,
    Busy,
    Gone,
    Invalid,
    PinnerError,
    RunConflict,
    StalePlan,
    StoreUnavailable,
)
from pinner.model.guest.nova import Bounds, require_clear
from pinner.model.kinds import ALONE, DEFINED, INSIDE, PINNED, SETTINGS
from pinner.model.machine.process import Lineage
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Entry, EntryState, Run

_NAMED = 5


def apply(
    plan: Plan,
    run: Run,
    host: Host,
    journal: Journal,
    now: Callable[[], datetime],
    progress: Progress,
    admit: Admit = lambda plan, _run: Admission(plan),
) -> Run:
    """Returns the ended run; ``Transaction.make`` has its states. Raises HostBusy, Refused, Blocked, NovaConflict,
    StalePlan and Invalid before the host is changed; StoreUnavailable if the journal cannot be written: all changes are
    undone, and a recovery must end the run."""
    journal.begin(run)
    try:
        with _refusing(run, journal, now):
            # Only under the host's lock: without the lock, another run may still change the host.
            admission = admit(plan, run)
            plan = admission.plan
            changes: tuple[Change, ...] = changes_to_make(plan, host, admission.unread, persist=run.persist)
            admission.require_permitted()
            if run.migrate_memory:
                # Last: guests that run on their new CPUs already allocate new memory on the right node.
                changes += memory_changes(plan, host)
            if not run.all_or_nothing and are_independent(changes):
                changes = contiguous(changes)
            changes = tuple(with_metadata(changes, host, by_hand=bool(plan.request.placement)))
            entries = tuple(_intents(changes, run, host, now(), admission))
            journal.intend(*entries, reported=reported(run, entries))
        return Transaction(run, entries, host, journal, now, progress, unread=admission.unread).make()
    finally:
        journal.leave(run)


def rollback(run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    """Undoes the run ``run.undoes``, or all runs of the host. Where a target has ended or another program has moved it,
    both runs end ``rolled_back_partly``, and can be rolled back again. Raises NotFound, HostBusy, RunConflict."""
    if run.undoes_all:
        return _roll_all_back(run, host, journal, now, progress)
    _require_reversible(run.undoes, journal)
    journal.begin(run)
    try:
        with _refusing(run, journal, now):
            # Checked again under the host's lock: another rollback of the run may have just ended.
            to_undo = _require_reversible(run.undoes, journal)
            if not (noted := journal.entries(to_undo.id)):
                raise RunConflict(to_undo.id, to_undo.state, NOTHING_CHANGED)
            earlier = to_undo.is_of_earlier_boot(run.boot)
            entries = with_prior_facts(to_undo, undoable(to_undo, noted), host, journal, earlier_boot=earlier)
            corrected = corrected_later_runs(to_undo, entries, host, journal, earlier_boot=earlier)
        # From here on, a recovery finishes a rollback that is interrupted.
        notes = Notes(run, len(entries), journal, now, progress, corrected=corrected)
        return Undoing(notes, entries, host, len(noted), earlier_boot=earlier).roll_back(persist=to_undo.persist)
    finally:
        journal.leave(run)


def _roll_all_back(run: Run, host: Host, journal: Journal, now: Callable[[], datetime], progress: Progress) -> Run:
    journal.begin(run)
    try:
        with _refusing(run, journal, now):
            whole = whole_undo(run, journal.in_force(run.host), now(), host)
            journal.intend(*whole.entries)
        notes = Notes(run, len(whole.entries), journal, now, progress)
        return Undoing(notes, undoable(run, whole.entries), host, len(whole.entries)).roll_back(
            persist=False, damaged=whole.damaged
        )
    finally:
        journal.leave(run)


@contextmanager
def _refusing(run: Run, journal: Journal, now: Callable[[], datetime]) -> Iterator[None]:
    """The block must not change the host. A recovery ends the run where the journal fails or has entries of it."""
    try:
        yield
    except BaseException as error:
        failed = replace(run, state="failed", error=words(error), ended_at=now())
        if not isinstance(error, StoreUnavailable):
            journal.end(failed)
            raise
        with suppress(StoreUnavailable):
            if not journal.entries(run.id):
                journal.end(failed)
        raise


def _intents(changes: tuple[Change, ...], run: Run, host: Host, at: datetime, admission: Admission) -> Iterator[Entry]:
    """Ended targets begin as ``gone``, unreadable guests and unfit changes as ``failed``: so a recovery knows: no rule
    was applied."""
    guests = {change.target.owner for change in changes if run.persist and change.target.kind in DEFINED}
    definitions = {guest: host.guests.definition(guest) for guest in guests - admission.unread.keys()}
    for seq, change in enumerate(changes, start=1):
        target = change.target
        definition, lineage = definitions.get(target.owner, ""), _lineage(change, host)
        state, error = _first_state(target, admission)
        yield Entry(run.id, seq, change, state, at, error, definition=definition, lineage=lineage)


def _first_state(target: Target, admission: Admission) -> tuple[EntryState, str]:
    try:
        if target in admission.ended:
            raise Gone(str(target))
        require_read(target, admission.unread)
        if why := admission.unfit.get(target):
            raise ApplyFailed(str(target), why)
    except Gone as error:
        return "gone", words(error)
    except (Busy, ApplyFailed) as error:
        return "failed", words(error)
    return "intent", ""


def _lineage(change: Change, host: Host) -> Lineage | None:
    with suppress(Gone):
        return host.lineage(change.target) if isinstance(change, AffinityChange) else None
    return None


def _require_reversible(name: str, journal: Journal) -> Run:
    """Raises NotFound, RunConflict."""
    run = journal.run(name)
    if run.kind == "rollback":
        raise RunConflict(run.id, "a rollback itself", "apply its plan again to undo it")
    if run.state not in ("applied", "applied_partly", "failed", "rolled_back_partly"):
        raise RunConflict(run.id, run.state, "only a run that has ended with changes in place can be rolled back")
    if later := journal.changed_later(name, _NAMED + 1):
        after, target = later[-1]
        again = f"run {after.id} has changed {target} again since{_undone_before([run for run, _ in later])}"
        raise RunConflict(run.id, run.state, again)
    return run


def _undone_before(later: list[Run]) -> str:
    """``later``: newest first."""
    if partly := [run.id for run in later if run.state == "rolled_back_partly"]:
        which = "its rollback left that" if partly[-1] == later[-1].id else f"the rollback of {partly[-1]} left a later"
        return f", and {which} change in place; roll back all runs (--all)"
    if len(later) > _NAMED:
        return f", and more than {_NAMED} later runs must be rolled back first; roll back all runs (--all)"
    return f"; roll back {', then '.join(run.id for run in later)} first, or all runs (--all)"


def changes_to_make(
    plan: Plan, host: Host, unread: Collection[str] = (), *, persist: bool
) -> tuple[PlannedChange, ...]:
    """All changes of the plan, or none if all are made. What libvirt does not tell of ``unread`` guests (by UUID) makes
    no plan stale. Raises Blocked, NovaConflict; StalePlan, with ``persist`` also if all changes are made; with
    ``persist`` Invalid if a guest is transient or pinned by Nova."""
    if plan.blocked:
        raise Blocked(plan.id, plan.blocked)
    if host.fingerprint() != plan.basis.fingerprint:
        raise StalePlan(plan.id, ("the host's CPUs, nodes or kernel arguments have changed",))
    bounds = host.bounds() if plan.wanted and not plan.is_release else Bounds()
    require_clear(plan.wanted, bounds.nova, emulators=plan.request.nova_emulators)
    gone: list[str] = []
    inspected: list[tuple[Target, steps.Inspection]] = []
    pending = False
    # A guest may not answer: it is asked last.
    for change in sorted(plan.changes, key=lambda change: change.target.kind in INSIDE):
        if pending and change.target.kind in INSIDE:
            continue
        try:
            inspection = _inspected(change, host, by_hand=bool(plan.request.placement))
        except Gone as error:
            # A guest that has ended frees CPUs that the plan does not use.
            gone += [str(error)] if change.target.kind not in ALONE else []
            continue
        inspected.append((change.target, inspection))
        pending = pending or not inspection.is_made
    if gone or pending or persist:
        stale = [(target, differences) for target, inspection in inspected if (differences := inspection.stale())]
        moved = [text for _, differences in stale for text in differences]
        if not plan.is_release:  # a release restores only parts that pinner has placed
            moved += (*_plugged_in(plan, host), *dict.fromkeys(_limited(plan, host)))
        moved += _newly_excluded(plan.changes, bounds.excluded.difference(unread))
        if gone or moved:
            raise StalePlan(plan.id, (*gone, *moved), tuple(asdict(target) for target, _ in stale))
    if persist:
        _require_definitions((planned for planned in plan.changes if planned.target.owner not in unread), bounds, host)
    return () if inspected and not pending else plan.changes


def _inspected(change: PlannedChange, host: Host, *, by_hand: bool) -> steps.Inspection:
    """A setting that cannot be read now counts as not changed: the run reads it again, and fails for it alone. What a
    guest says of its inside makes no plan stale, but fails alone, too. A placement ``by_hand`` makes pins pinner's,
    whoever made them. Raises Gone."""
    try:
        inspection = steps.inspect(change, host)
        if by_hand and isinstance(change, AffinityChange) and change.target.kind in PINNED:
            return replace(inspection, is_made=inspection.is_made and is_named(change, host))
        return replace(inspection, stale=tuple) if change.target.kind in INSIDE else inspection
    except PinnerError as error:
        if isinstance(error, Gone) or change.target.kind not in SETTINGS:
            raise
        return steps.Inspection(is_made=False, stale=tuple)


def _plugged_in(plan: Plan, host: Host) -> Iterator[str]:
    """Without vCPUs of guests that Nova pinned. A placement by hand need not place all parts."""
    if plan.request.placement:
        return
    guests: dict[str, str] = {}
    planned: dict[str, set[Part]] = {}
    for target in (want.target for want in plan.wanted if want.target.kind in PINNED):
        guests[target.owner] = target.name
        if target.part is not None:
            planned.setdefault(target.owner, set()).add((target.kind, target.part))
    for guest, name in guests.items():
        with suppress(Gone):
            known = planned.get(guest, set())
            ours = {kind for kind, _ in known} | {"iothread"}
            for kind, number in sorted(part for part in host.parts(guest) - known if part[0] in ours):
                yield f"guest {name} {kind} {number} was plugged in"


def _limited(plan: Plan, host: Host) -> Iterator[str]:
    """Cgroups that allow the plan's guests other CPUs than then, without those that the plan makes partitions."""
    own = {want.target.owner for want in plan.wanted if want.target.kind == "partition"}
    for guest in dict.fromkeys(want.target.owner for want in plan.wanted if want.target.kind in PINNED):
        with suppress(Gone):
            then, now = (
                {limit.path: limit for limit in limits}
                for limits in (plan.basis.cpu_limits.get(guest, ()), host.cpu_limits(guest))
            )
            for path in {**then, **now}:
                if path not in own and then.get(path) != now.get(path):
                    allows = f"allows CPUs {now[path].cpus}" if path in now else "leaves out no CPU"
                    before = f", no longer {then[path].cpus}" if path in then else ""
                    yield f"{now.get(path, then.get(path))} {allows}{before}"


def _newly_excluded(changes: Iterable[PlannedChange], excluded: Collection[str]) -> Iterator[str]:
    guests = {change.target.owner: change.target.name for change in changes}
    return (f"guest {name} is excluded by its metadata" for guest, name in guests.items() if guest in excluded)


def _require_definitions(changes: Iterable[PlannedChange], bounds: Bounds, host: Host) -> None:
    guests = {change.target.owner: change.target.name for change in changes if change.target.kind in PINNED}
    theirs = {guest.uuid for guest in bounds.nova.guests} | bounds.cells
    for guest, name in guests.items():
        if guest in theirs:
            # pinner would overwrite Nova's pins there, or later read its own pin as a pin of Nova.
            raise Invalid("persist", name, "a guest that Nova did not pin: Nova manages the persistent XML", guest=name)
        if not host.guests.persistent(guest):
            raise Invalid("persist", name, "a guest with a persistent definition; this one is transient", guest=name)
