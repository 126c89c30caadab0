from dataclasses import replace

import pytest
from support.values import make_entries, make_run

from pinner.store.runs import entries as stored
from pinner.store.runs.entries import Marks
from pinner.store.runs.runs import Runs


@pytest.fixture
def runs(engine):
    runs = Runs(engine)
    runs.add(make_run(), make_entries(count=4))
    return runs


def test_the_first_reading_finds_every_entry_and_the_next_one_nothing(runs):
    seen: Marks = {}
    assert runs.news("run-1", seen) == (runs.entries("run-1"), 4)
    assert runs.news("run-1", seen) == ((), 4)


@pytest.mark.parametrize("some", [stored.SOME, 1])
def test_only_entries_that_were_noted_again_are_read(runs, monkeypatch, some):
    monkeypatch.setattr(stored, "SOME", some)
    seen: Marks = {}
    entries, _ = runs.news("run-1", seen)
    done, stuck = replace(entries[1], state="done"), replace(entries[3], state="stuck", error="busy")
    runs.save([done, stuck])
    assert runs.news("run-1", seen) == ((done, stuck), 4)
    again = replace(stuck, error="gone")
    runs.save([again])
    assert runs.news("run-1", seen) == ((again,), 4)


def test_an_unknown_run_has_no_news(runs):
    assert runs.news("run-9", {}) == ((), 0)
