"""Runs of an admission that a test makes by hand, and the recovery of such a run after a kill."""

from collections.abc import Callable

import pytest
from support.fakes.in_memory_host import InMemoryHost
from support.fakes.snapshot_host import Killed
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.ports import Admission
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.model.run.journal import Run
from pinner.store.journal.journal import StoredJournal


def apply_admitted(admission: Admission, host: InMemoryHost, journal: StoredJournal, **more: object) -> Run:
    """The run ``run-1`` of the admission; ``more`` are its options."""
    run = make_run("run-1", **more)
    return executor.apply(
        admission.plan, run, host, journal, lambda: NOON, lambda entry, total: None, lambda plan, run: admission
    )


def recover_killed(apply: Callable[[], Run], host: InMemoryHost, journal: StoredJournal, policy: RecoveryPolicy) -> Run:
    """The recovery of a run whose process was killed at its first write to the host."""

    def die(*_: object) -> None:
        raise Killed

    host.before_write = die
    with pytest.MonkeyPatch.context() as dead:
        dead.setattr("pinner.apply.transaction.Transaction._undo_groups", die)
        with pytest.raises(Killed):
            apply()
    host.before_write = lambda write: None
    journal._notes.clear()  # they died with the process
    return recover(host, journal, policy, lambda: NOON)
