"""Random runs, rollbacks, kills, changes of other programs and new devices, checked against a model of the promises.

The model has the changes of each setting that are in force, and knows nothing of journals, entries and recoveries.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.fakes.in_memory_host import InMemoryHost
from support.values import NOON, make_run

from pinner.apply import executor, steps
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import RunConflict
from pinner.model.kinds import TargetKind
from pinner.model.run.journal import Run
from pinner.model.states import GuestCpus, Number, State
from pinner.store.journal.journal import StoredJournal

Kill = tuple[int, bool, RecoveryPolicy] | None
"""The number of a write, whether it is made before the process dies, and the policy of the recovery. None: no kill."""
KINDS: tuple[TargetKind, ...] = ("irq", "ring", "irqbalance", "guest_rps", "weight")
WHOLE: tuple[TargetKind, ...] = ("ring", "weight")
"""The kinds whose targets have no part."""
KILLS = st.none() | st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from(("back", "forward")))
VALUES = st.sampled_from((6, 6, 6, 7))
"""Most runs give a setting the same value again."""
STEPS = st.one_of(
    st.tuples(st.just("apply"), st.dictionaries(st.sampled_from(KINDS), VALUES, min_size=1, max_size=2), KILLS),
    st.tuples(st.just("foreign"), st.sampled_from(KINDS), st.sampled_from((0, 1, 6))),
    st.tuples(st.just("replace"), st.sampled_from(KINDS), st.none()),
    st.tuples(st.just("rollback"), st.integers(0, 3), KILLS),
    st.tuples(st.just("all"), st.none(), KILLS),
)


class Killed(BaseException):
    """The process is dead: it changes neither the host nor the journal any more."""


@dataclass(frozen=True)
class Change:
    run: str
    before: State
    after: State


class Model:
    def __init__(self) -> None:
        self.states: dict[Target, State] = {}
        self.changes: dict[Target, list[Change]] = defaultdict(list)
        """Those of devices that are gone, too; oldest first."""

    def apply(self, run: str, after: dict[Target, State]) -> None:
        for target, state in after.items():
            self.changes[target].append(Change(run, self.states[target], state))
            self.states[target] = state

    def is_in_force(self, run: str) -> bool:
        return any(self._from(changes, run) for changes in self.changes.values())

    def is_changed_later(self, run: str) -> bool:
        """Whether a later run has given a target of the run another state."""
        mine = [self._from(changes, run) for changes in self.changes.values()]
        return any(change.after != changes[0].after for changes in mine for change in changes)

    def rollback(self, run: str) -> str:
        """Undo the run; the state of the rollback. A value of another program stays, and a device may be gone."""
        state = "rolled_back"
        for target, changes in self.changes.items():
            for change, *later in filter(None, [self._from(changes, run)]):
                now = self.states.get(target)
                kept = [change] if now not in (change.before, change.after, None) else []
                changes[changes.index(change) :] = kept + [replace(each, before=change.before) for each in later]
                if kept or now is None:
                    state = "rolled_back_partly"
                else:
                    self.states[target] = change.before
        return state

    def rollback_all(self) -> str:
        """Undo all runs; the state of the rollback. A device that is gone needs nothing."""
        state = "rolled_back"
        for target, changes in self.changes.items():
            now, given_cpus = (
                self.states.get(target),
                {each.after for each in changes if isinstance(each.after, CpuSet)},
            )
            if changes and now not in {changes[0].before, changes[-1].after, None, *given_cpus}:
                state = "rolled_back_partly"
                continue
            if changes and now is not None:
                self.states[target] = changes[0].before
            changes.clear()
        return state

    @staticmethod
    def _from(changes: list[Change], run: str) -> list[Change]:
        first = next((number for number, change in enumerate(changes) if change.run == run), len(changes))
        return changes[first:]


class Machine:
    """A host with a setting of each kind, and its journal."""

    def __init__(self, journal: StoredJournal) -> None:
        self.journal, self.host, self.model = journal, InMemoryHost(), Model()
        self.runs: list[str] = []
        self.undos = 0
        self.targets: dict[TargetKind, Target] = {}
        for kind in KINDS:
            self.replace(kind)

    def replace(self, kind: TargetKind, _: None = None) -> None:
        """The device of a setting is another one now, with the same name."""
        number = sum(target.kind == kind for target in self.model.changes)
        old, new = self.targets.get(kind), Target(kind, f"it {number}", None if kind in WHOLE else number, "it")
        for states in (self.host.states, self.model.states):
            states[new] = states.pop(old) if old else value(kind, 0)
        self.targets[kind] = new
        self.model.changes[new] = []

    def foreign(self, kind: TargetKind, number: int) -> None:
        for states in (self.host.states, self.model.states):
            states[self.targets[kind]] = value(kind, number)

    def apply(self, numbers: dict[TargetKind, int], kill: Kill) -> None:
        wanted = {self.targets[kind]: value(kind, number) for kind, number in numbers.items()}
        wanted = {target: state for target, state in wanted.items() if state != self.host.states[target]}
        changes = (StateChange(target, self.host.states[target], state, "so") for target, state in wanted.items())
        run = make_run(f"run-{len(self.runs)}")
        self.runs.append(run.id)
        plan = self.host.plan(*changes)
        ended = self._survive(lambda: executor.apply(plan, run, self.host, self.journal, lambda: NOON, silent), kill)
        assert ended.state in ("applied", "undone")
        assert ended.state == "applied" or (kill and kill[2] == "back")
        if ended.state == "applied":
            self.model.apply(run.id, wanted)

    def rollback(self, number: int, kill: Kill) -> None:
        if not self.runs:
            return
        run = self.runs[number % len(self.runs)]
        try:
            ended = self._roll_back(run, kill)
        except RunConflict:
            assert self.model.is_changed_later(run) or not self.model.is_in_force(run)
        else:
            assert not self.model.is_changed_later(run)
            assert ended.state == self.model.rollback(run), ended

    def all(self, _: None, kill: Kill) -> None:
        ended = self._roll_back("", kill)
        assert ended.state == self.model.rollback_all(), ended

    def _roll_back(self, run: str, kill: Kill) -> Run:
        self.undos += 1
        undo = make_run(f"back-{self.undos}", kind="rollback", plan="", undoes=run)
        return self._survive(lambda: executor.rollback(undo, self.host, self.journal, lambda: NOON, silent), kill)

    def _survive(self, act: Callable[[], Run], kill: Kill) -> Run:
        """The run, or its recovery where its process was killed before or after one of its writes."""
        try:
            with killed(self.host, self.journal, kill[0], made=kill[1]) if kill else ExitStack():
                return act()
        except Killed:
            # The notes that the journal holds back die with the process.
            self.journal._notes.clear()
            recovered = recover(self.host, self.journal, kill[2] if kill else "back", lambda: NOON)
            assert recovered is not None
            return recovered


@contextmanager
def killed(host: InMemoryHost, journal: StoredJournal, point: int, *, made: bool) -> Iterator[None]:
    """The process dies before or after (``made``) the write of this number."""
    alive, written, write = [True], [0], host.set_state

    def dying(target: Target, state: State) -> None:
        require_alive()
        alive[0] = written[0] != point
        written[0] += 1
        if alive[0] or made:
            write(target, state)
        require_alive()

    def require_alive() -> None:
        if not alive[0]:
            raise Killed

    def while_alive(act: Callable[..., object]) -> Callable[..., object]:
        def guarded(*given: object, **more: object) -> object:
            require_alive()
            return act(*given, **more)

        return guarded

    with ExitStack() as patched:
        patched.enter_context(mock.patch.object(host, "set_state", dying))
        for where, name in ((steps, "undo"), *((journal, name) for name in ("note", "intend", "end"))):
            patched.enter_context(mock.patch.object(where, name, while_alive(getattr(where, name))))
        yield


def silent(*_: object) -> None:
    """The progress of a run that nobody watches."""


def value(kind: TargetKind, number: int) -> State:
    if kind == "guest_rps":
        return GuestCpus(CpuSet.of([number]))
    return Number(number) if kind in WHOLE else CpuSet.of([number])


SET_AGAIN = [("apply", {"irq": 6}, None), ("foreign", "irq", 1), ("apply", {"irq": 6}, None)]


@settings(max_examples=examples(50))
@given(st.lists(STEPS, max_size=16))
@example([*SET_AGAIN, ("rollback", 0, None), ("rollback", 1, None)])
@example([*SET_AGAIN, ("rollback", 0, None), ("all", None, None)])
def test_settings_have_what_was_promised_after_any_sequence(sequence):
    with tempfile.TemporaryDirectory() as folder:
        journal = StoredJournal(Path(folder))
        machine = Machine(journal)
        for name, *given_values in sequence:
            getattr(machine, name)(*given_values)
            assert machine.host.states == machine.model.states
        journal.close()
