"""Idempotency keys on every database."""

import threading
from datetime import timedelta

import pytest
from support.values import NOON

from pinner.store.idempotency import KEPT, StoredAnswer


def test_one_of_eight_requests_gets_the_key(store):
    """The others see that the first one has no answer yet."""
    keys, found = store.idempotency_keys, []
    threads = [threading.Thread(target=lambda: found.append(keys.begin("ann", "key", "hash", NOON))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(None) == 1
    assert found.count(StoredAnswer("hash", 0, "", b"")) == 7


def test_an_answer_is_repeated_until_it_is_old(store):
    keys, answer = store.idempotency_keys, StoredAnswer("hash", 201, "/v1/runs/1", b"\x00\xff" * 50_000)
    assert keys.begin("ann", "key", "hash", NOON) is None
    keys.end("ann", "key", answer)
    assert keys.begin("ann", "key", "hash", NOON + timedelta(hours=1)) == answer
    assert keys.begin("ann", "KEY", "hash", NOON) is None, "keys are compared by their bytes"
    assert keys.begin("ann", "key", "hash", NOON + KEPT + timedelta(seconds=1)) is None


def test_a_key_of_a_clock_that_was_ahead_is_free_again(store):
    keys = store.idempotency_keys
    assert keys.begin("ann", "key", "hash", NOON + timedelta(days=365)) is None
    assert keys.begin("ann", "key", "hash", NOON) is None
    assert keys.begin("ann", "key", "hash", NOON - timedelta(hours=1)) == StoredAnswer("hash", 0, "", b"")


def test_a_refused_request_frees_its_key(store):
    keys = store.idempotency_keys
    keys.begin("ann", "key", "hash", NOON)
    keys.forget("ann", "key")
    assert keys.begin("ann", "key", "other", NOON) is None


@pytest.mark.fault(60)
def test_a_commit_whose_answer_was_lost_does_not_block_the_key(store, monkeypatch):
    """The transaction was stored, and is repeated because nobody knows that."""
    from pinner.store import idempotency

    def twice(engine, work):
        real(engine, work)
        return real(engine, work)

    real = idempotency.write
    monkeypatch.setattr(idempotency, "write", twice)
    assert store.idempotency_keys.begin("ann", "key", "hash", NOON) is None
