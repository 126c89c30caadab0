"""The backoffs of each host."""

from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.policy import Backoff


@pytest.mark.fault(47)
def test_back_offs_are_stored_for_each_host(store):
    backoffs = {
        ("vcpu", "uuid-1", 0): Backoff(3, NOON),
        ("guest", "uuid-2", None): Backoff(1, NOON + timedelta(microseconds=7), "no answer from 'é\n"),
    }
    assert store.backoffs.of("h1") == {}
    store.backoffs.put("h1", backoffs, NOON)
    store.backoffs.put("h2", {}, NOON)
    assert (store.backoffs.of("h1"), store.backoffs.of("h2")) == (backoffs, {})
    store.backoffs.put("h1", {}, NOON)
    assert store.backoffs.of("h1") == {}
