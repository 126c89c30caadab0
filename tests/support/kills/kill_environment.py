"""A host and its journal, whose processes are killed; afterwards the host must be as the journal says."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from support.kills.kills import Work, run_forked

from pinner.model.errors import NotFound
from pinner.store.journal.journal import StoredJournal

ENDS = {"undone": "before", "rolled_back": "before", "applied": "planned", "applied_partly": "partly"}


@dataclass
class Environment:
    """A host and the work to do on it."""

    work: Work
    observe: Callable[[], object]
    """Returns the current state of the host."""
    restore: Callable[[], None]
    before: object = None
    planned: object = None
    partly: object = None
    """The host after an apply whose last process refuses its change."""
    kills: Counter[str] = field(default_factory=Counter)
    """The number of kills, and of runs by their final state."""

    def run_state(self, run: str) -> str:
        """The state of a run in the journal; empty for an unknown run."""
        with closing(StoredJournal(self.work.folder)) as journal:
            try:
                return journal.run(run).state
            except NotFound:
                return ""

    def run_killed_at(self, point: int, method: str) -> bool:
        """Run one of Work's methods and kill it at this point; whether the process reached the point."""
        killed = run_forked(self.work, method, point)
        self.kills["kills"] += killed
        return killed

    def check_consistent(self, run: str = "run-1") -> None:
        """Check that the host is as the journal says, and that the run has a final state."""
        state = self.run_state(run) or ("undone" if run == "run-1" else "applied")
        assert state in ENDS, f"{run} is {state}: {self.errors()}"
        assert self.observe() == getattr(self, ENDS[state])
        self.kills[state] += 1

    def kill_apply(self, policy: str, stride: int = 1) -> None:
        """Kill an apply at each point, recover by this policy ("back" or "forward"), and check the host."""
        for point in count(0, stride):
            killed = self.run_killed_at(point, "apply")
            assert not run_forked(self.work, policy)
            self.check_consistent()
            self.reset()
            if not killed:
                break

    def kill_rollback(self, stride: int = 1) -> None:
        """Kill a rollback at each point, recover, and check the host."""
        for point in count(0, stride):
            assert not run_forked(self.work, "apply")
            killed = self.run_killed_at(point, "rollback")
            assert not run_forked(self.work, "back")
            self.check_consistent("back")
            self.reset()
            if not killed:
                break

    def errors(self) -> list[str]:
        with closing(StoredJournal(self.work.folder)) as journal:
            return [journal.run("run-1").error, *(entry.error for entry in journal.entries("run-1"))]

    def reset(self) -> None:
        """Restore the host and empty the journal."""
        self.restore()
        assert self.observe() == self.before
        for path in self.work.folder.glob("journal.sqlite*"):
            path.unlink()
        shutil.copy(self.work.folder / "empty" / "journal.sqlite", self.work.folder)


@contextmanager
def prepared(environment: Environment) -> Iterator[Environment]:
    """The environment with its states before and after an apply recorded."""
    empty = environment.work.folder / "empty"
    StoredJournal(empty).close()
    shutil.copy(empty / "journal.sqlite", environment.work.folder)
    environment.before = environment.observe()
    assert not run_forked(replace(environment.work, refused=0), "apply")
    environment.planned = environment.observe()
    assert environment.planned != environment.before
    environment.reset()
    yield environment
