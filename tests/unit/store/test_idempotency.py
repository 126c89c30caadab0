"""Idempotency keys on every database."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.errors import StoreUnavailable
from pinner.store.idempotency import ABANDONED, KEPT, Reservation, StoredAnswer

FIRST = Reservation("ann", "key", "hash", NOON)


def test_one_of_eight_requests_gets_the_key(store):
    """The others see that the first one has no answer yet."""
    keys, found = store.idempotency_keys, []
    threads = [threading.Thread(target=lambda: found.append(keys.begin(FIRST))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(None) == 1
    assert found.count(StoredAnswer("hash", 0, "", b"")) == 7


def test_an_answer_is_repeated_until_it_is_old(store):
    keys, answer = store.idempotency_keys, StoredAnswer("hash", 201, "/v1/runs/1", b"\x00\xff" * 50_000)
    assert keys.begin(FIRST) is None
    keys.end(FIRST, answer)
    assert keys.begin(replace(FIRST, at=NOON + timedelta(hours=1))) == answer
    assert keys.begin(replace(FIRST, key="KEY")) is None, "keys are compared by their bytes"
    assert keys.begin(replace(FIRST, at=NOON + KEPT + timedelta(seconds=1))) is None


def test_a_key_of_a_clock_that_was_ahead_is_free_again(store):
    keys = store.idempotency_keys
    assert keys.begin(replace(FIRST, at=NOON + timedelta(days=365))) is None
    assert keys.begin(FIRST) is None
    assert keys.begin(replace(FIRST, at=NOON - timedelta(hours=1))) == StoredAnswer("hash", 0, "", b"")


def test_a_refused_request_frees_its_key(store):
    keys = store.idempotency_keys
    keys.begin(FIRST)
    keys.forget(FIRST)
    assert keys.begin(replace(FIRST, fingerprint="other")) is None


def test_a_request_that_lost_its_key_leaves_the_key_to_the_next_one(store):
    """The first one counts as abandoned, or was freed by a commit whose answer was lost, and ends late."""
    keys = store.idempotency_keys
    later = replace(FIRST, at=NOON + ABANDONED + timedelta(seconds=1))
    assert keys.begin(FIRST) is None
    assert keys.begin(later) is None
    keys.forget(FIRST)
    keys.end(FIRST, StoredAnswer("hash", 201, "/v1/runs/1", b"first"))
    assert keys.begin(replace(later, at=later.at + timedelta(seconds=1))) == StoredAnswer("hash", 0, "", b"")
    answer = StoredAnswer("hash", 201, "/v1/runs/2", b"second")
    keys.end(later, answer)
    keys.forget(later)
    assert keys.begin(later) == answer


@pytest.mark.fault(60)
def test_a_commit_whose_answer_was_lost_does_not_block_the_key(store, monkeypatch):
    """The transaction was stored, and is repeated because nobody knows that."""
    from pinner.store import idempotency

    def twice(engine, work):
        real(engine, work)
        return real(engine, work)

    real = idempotency.write
    monkeypatch.setattr(idempotency, "write", twice)
    assert store.idempotency_keys.begin(FIRST) is None


@pytest.mark.fault(60)
def test_a_request_whose_reservation_failed_does_not_block_the_key(store, monkeypatch):
    """The database stored the reservation, and did not answer any more."""
    from pinner.store import idempotency

    def lost(engine, work):
        real(engine, work)
        monkeypatch.setattr(idempotency, "write", real)
        raise StoreUnavailable("db", "the connection is lost")

    real = idempotency.write
    monkeypatch.setattr(idempotency, "write", lost)
    with pytest.raises(StoreUnavailable):
        store.idempotency_keys.begin(FIRST)
    assert store.idempotency_keys.begin(replace(FIRST, fingerprint="other")) is None
