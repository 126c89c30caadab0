"""Pools of one CPU, by a real journal."""

from contextlib import closing
from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, snapshot
from support.values import NOON, make_run

from pinner.agent.local import with_pools
from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.errors import StoreUnavailable
from pinner.model.run.journal import Entry
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.opening import UnusableJournal

SHARING = guest(1, 1, cpus("1"))
"""Its emulator threads and its vCPU are on CPU 1."""


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


def place(journal, after: str, *, state="done", started: int = 7):
    """A run changed the vCPU of SHARING."""
    target, thread = Target("vcpu", SHARING.uuid, 0, SHARING.name), SHARING.vcpus[0].thread
    change = AffinityChange(target, (ThreadMask(thread.tid, started, cpus("0-1")),), cpus(after), "a test")
    run = make_run(f"run-{after}-{state}")
    journal.begin(run)
    journal.intend(Entry(run.id, 1, change, "intent", NOON))
    journal.note(Entry(run.id, 1, change, state, NOON))
    journal.end(replace(run, state="applied", ended_at=NOON))


def pooled(journal, found):
    (now,) = with_pools(snapshot(plain(2), [found]), journal).guests
    return str(now.pooled)


def test_the_cpu_that_pinner_gave_to_several_threads_of_a_guest_is_a_pool(journal):
    place(journal, "0")
    place(journal, "1")
    assert pooled(journal, SHARING) == "1"


def test_a_cpu_that_pinner_did_not_give_to_the_guest_last_is_no_pool(journal):
    assert pooled(journal, SHARING) == ""
    place(journal, "1")
    place(journal, "0")
    assert pooled(journal, SHARING) == ""


@pytest.mark.parametrize("change", [{"state": "undone"}, {"started": 3}], ids=["undone", "an earlier thread"])
def test_a_change_that_is_undone_or_of_an_earlier_start_of_the_guest_does_not_count(journal, change):
    place(journal, "1", **change)
    assert pooled(journal, SHARING) == ""


def test_a_vcpu_alone_on_its_cpu_has_it_to_itself(journal):
    place(journal, "1")
    alone = replace(SHARING, emulator=replace(SHARING.emulator, threads=guest(1, 1, cpus("0")).emulator.threads))
    assert pooled(journal, alone) == ""


def test_the_cpus_of_a_vcpu_that_has_several_are_no_pool(journal):
    """Nor are they with a second vCPU whose one CPU is a pool."""
    place(journal, "0-1")
    first, second = guest(1, 2, cpus("1")).vcpus
    wide = replace(first, thread=replace(first.thread, affinity=cpus("0-1")))
    assert pooled(journal, replace(SHARING, vcpus=(wide, second))) == ""


def test_without_the_journal_the_cpu_is_the_guests_own():
    assert pooled(UnusableJournal(StoreUnavailable("journal", "damaged")), SHARING) == ""
