"""The journal knows which pins of a guest pinner wrote itself."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from support.values import NOON, cpus, make_change, make_entries, make_run

from pinner.model.change import MetadataChange, PartPin, Target
from pinner.model.errors import StoreUnavailable
from pinner.model.run.journal import RecordedPins
from pinner.store.database.engine import write
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.opening import UnusableJournal, pins_of

pytestmark = pytest.mark.fault(52)

WEB, OTHER = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


def carry_out(journal, run, *states, guest=WEB, before="0-3", after="4", run_state="applied", **facts):
    """A run with an entry of this state for vCPU 0, 1, ... of the guest."""
    began = make_run(run, **facts)
    journal.begin(began)
    for number, (entry, state) in enumerate(zip(make_entries(run, len(states)), states, strict=True)):
        change = replace(make_change(before=before, after=after), target=Target("vcpu", guest, number, "web"))
        journal.intend(replace(entry, change=change, state=state))
    journal.end(replace(began, state=run_state, ended_at=NOON + timedelta(seconds=1)))


def test_a_guest_without_a_run_has_no_recorded_pins(journal):
    carry_out(journal, "run-1", "done", guest=OTHER)
    assert journal.recorded_pins([WEB]) == RecordedPins()
    assert journal.recorded_pins([]) == RecordedPins()


@pytest.mark.parametrize("state", ["intent", "done", "stuck"])
def test_a_guest_whose_threads_a_run_changed_is_placed(journal, state):
    carry_out(journal, "run-1", state)
    assert journal.recorded_pins([WEB, OTHER]) == RecordedPins(frozenset({WEB}))


def test_after_a_rollback_only_the_parts_count_that_were_moved(journal):
    """The other pins are their operator's again, whichever run moved a part."""
    carry_out(journal, "run-1", "undone", "undone", before="4", after="4")
    carry_out(journal, "run-2", "undone")
    carry_out(journal, "run-3", "done", guest=OTHER)
    recorded = journal.recorded_pins([WEB, OTHER])
    assert recorded == RecordedPins(frozenset({OTHER}), parts=frozenset({(WEB, "vcpu", 0)}))
    assert [recorded.has_live(WEB, "vcpu", vcpu) for vcpu in range(2)] == [True, False]


def test_pins_of_an_operator_are_pinners_only_while_they_are_adopted(journal):
    """A placement by hand that changes no mask."""
    carry_out(journal, "run-1", "undone", "undone", before="4", after="4")
    assert journal.recorded_pins([WEB]) == RecordedPins()
    carry_out(journal, "run-2", "done", before="4", after="4")
    assert journal.recorded_pins([WEB]) == RecordedPins(frozenset({WEB}))


def name_pins(journal, run, *parts, guest=WEB, by_hand=True, state="done"):
    """The change of metadata with which a run of the guest begins."""
    pins = tuple(PartPin("vcpu", part, cpus("4")) for part in parts)
    change = MetadataChange(Target("metadata", guest, None, "web"), (), (), pins, "why", by_hand=by_hand)
    (*_, entry) = make_entries(run, 9)
    journal.intend(replace(entry, change=change, state=state))


def test_of_a_guest_that_is_placed_by_hand_only_the_placed_parts_are_pinners(journal):
    carry_out(journal, "run-1", "done")
    name_pins(journal, "run-1", 0)
    recorded = journal.recorded_pins([WEB])
    assert recorded == RecordedPins(parts=frozenset({(WEB, "vcpu", 0)}))
    assert [recorded.has_live(WEB, "vcpu", vcpu) for vcpu in range(2)] == [True, False]
    carry_out(journal, "run-2", "done")
    name_pins(journal, "run-2", 0, by_hand=False)
    assert journal.recorded_pins([WEB]) == RecordedPins(frozenset({WEB}))


def test_with_a_damaged_record_of_the_metadata_all_pins_of_the_guest_are_pinners(journal):
    carry_out(journal, "run-1", "done")
    name_pins(journal, "run-1", 0)
    write(journal._engine, lambda connection: connection.execute(text("UPDATE entries SET change = '{' || change")))
    assert journal.recorded_pins([WEB]) == RecordedPins(frozenset({WEB}))


@pytest.mark.parametrize(("damaged", "parts"), [("vcpu", {OTHER}), ("metadata", {WEB, OTHER})])
def test_a_damaged_record_of_a_guest_costs_no_other_guest_its_pins(journal, damaged, parts):
    """If the journal could not be read, all live pins of the host would count as pinner's."""
    for run, guest in (("run-1", WEB), ("run-2", OTHER)):
        carry_out(journal, run, "undone", guest=guest)
        name_pins(journal, run, 0, guest=guest, by_hand=False, state="undone")
    query = text("UPDATE entries SET change = '{' || change WHERE run = 'run-1' AND kind = :kind")
    write(journal._engine, lambda connection: connection.execute(query, {"kind": damaged}))
    recorded = journal.recorded_pins([WEB, OTHER])
    assert recorded == RecordedPins(parts=frozenset((guest, "vcpu", 0) for guest in parts))


def test_a_damaged_record_of_a_guest_costs_no_other_guest_the_pins_of_its_definition(journal):
    carry_out(journal, "run-1", "done", persist=True)
    write(journal._engine, lambda connection: connection.execute(text("UPDATE entries SET change = '{' || change")))
    carry_out(journal, "run-2", "done", persist=True, guest=OTHER)
    recorded = journal.recorded_pins([WEB, OTHER])
    assert (recorded.placed, (OTHER, "vcpu", 0, cpus("4")) in recorded.persisted) == ({WEB, OTHER}, True)


def test_pins_in_a_definition_that_were_placed_by_hand_are_pinners(journal):
    carry_out(journal, "run-1", "done", persist=True)
    name_pins(journal, "run-1", 0)
    assert journal.recorded_pins([WEB]).persisted == {(WEB, "vcpu", 0, cpus("4"))}


def test_a_guest_whose_changes_all_failed_was_not_placed(journal):
    """It could not be read, so no change was tried. A change that was tried comes after that of the metadata."""
    carry_out(journal, "run-1", "failed", "failed")
    assert journal.recorded_pins([WEB]) == RecordedPins()
    carry_out(journal, "run-2", "undone", "failed")
    assert journal.recorded_pins([WEB]) == RecordedPins(parts=frozenset((WEB, "vcpu", vcpu) for vcpu in range(2)))


def test_pins_in_definitions_count_until_their_run_is_rolled_back(journal):
    carry_out(journal, "run-1", "done", "undone", "stuck", persist=True, after="4-5")
    carry_out(journal, "run-2", "done", guest=OTHER)
    expected = {(WEB, "vcpu", 0, cpus("4-5")), (WEB, "vcpu", 2, cpus("4-5"))}
    assert journal.recorded_pins([WEB, OTHER]) == RecordedPins(frozenset({WEB, OTHER}), frozenset(expected))


@pytest.mark.parametrize(("run_state", "counts"), [("applied", True), ("rolled_back_partly", False)])
def test_the_definition_of_a_guest_that_ended_meanwhile_may_have_the_pin(journal, run_state, counts):
    carry_out(journal, "run-1", "gone", persist=True, run_state=run_state)
    assert bool(journal.recorded_pins([WEB]).persisted) == counts


def test_while_the_journal_cannot_be_read_every_live_pin_counts_as_pinners():
    unusable = UnusableJournal(StoreUnavailable("/journal", "it is damaged"))
    assert pins_of(unusable, [WEB]) == RecordedPins(placed=frozenset({WEB}))
