"""The order in which a run's changes are told."""

from dataclasses import replace

import pytest
from support.values import make_entries, make_run

from pinner.service.runs.run_follower import RunFollower


@pytest.mark.parametrize(("kind", "state", "order"), [("apply", "done", [1, 2, 3]), ("rollback", "undone", [3, 2, 1])])
def test_an_undo_is_told_as_it_goes_the_last_change_first(kind: str, state: str, order: list[int]) -> None:
    entries = tuple(replace(entry, state=state) for entry in make_entries())
    told = RunFollower().progress_of(make_run(kind=kind), entries, len(entries))
    assert [progress.entry.seq for progress in told if progress.entry] == order
