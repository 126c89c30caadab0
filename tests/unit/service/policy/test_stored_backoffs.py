"""The backoffs of a host while several threads read and count them."""

from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.policy import Backoff
from pinner.planning.policy import backoff_counts
from pinner.service.policy.stored_backoffs import HostBackoffs

HUNG, OVER = ("guest", "uuid-1", None), ("guest", "uuid-2", None)


@pytest.mark.fault(47)
def test_a_drift_report_forgets_no_failure_that_is_counted_meanwhile(store, monkeypatch):
    """A drift report reads the backoffs while a reconcile of the same host counts a failure."""
    store.backoffs.put("h1", {OVER: Backoff(1, NOON - timedelta(days=30), "hung")}, NOON)
    backoffs = HostBackoffs(store, lambda: NOON)
    forget = backoff_counts.forget

    def forget_late(stored, now):
        if backoff_counts.forget is forget_late:
            monkeypatch.undo()
            backoffs.count_failed("h1", {HUNG: "no answer"})
        return forget(stored, now)

    monkeypatch.setattr(backoff_counts, "forget", forget_late)
    backoffs.of("h1")
    assert set(store.backoffs.of("h1")) == {HUNG}
