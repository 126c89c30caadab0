"""Policies are read as they were stored, at most one for each host."""

import pytest
from sqlalchemy import text
from support.values import NOON

from pinner import codec
from pinner.model.errors import NotFound, PreconditionFailed
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.audit.audit import Audit
from pinner.store.policies import Policies


def event(host="h1"):
    return AuditEvent(NOON, "ann", "cli", AuditAction.POLICY_SET, host, "h1", "", "", "done", "req-1")


@pytest.fixture
def policies(engine):
    return Policies(engine)


def test_a_policy_is_stored_with_its_audit_record(engine, policies):
    with pytest.raises(NotFound, match="has no policy"):
        policies.get("h1")
    for policy in (Policy(), Policy(Request("isolated", excluded_guests=("a",), busy_threshold=1.5), "enforce")):
        policies.put("h1", policy, NOON, event())
        assert policies.get("h1") == policy
    with pytest.raises(NotFound):
        policies.get("h2")
    assert len(Audit(engine).list(None, None, None, PageRequest()).items) == 2
    assert Audit(engine).verify().ok
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM policies")).scalar() == 1


def test_a_policy_is_not_stored_if_its_audit_record_cannot_be_written(policies):
    with pytest.raises(Exception, match=r"(?i)not.null|cannot be null"):
        policies.put("h1", Policy(), NOON, event(host=None))
    with pytest.raises(NotFound):
        policies.get("h1")


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_policy_that_another_caller_has_changed_meanwhile_stays(engine, policies, change):
    first, second = Policy(), Policy(mode="propose")
    for policy in (first, second):
        policies.put("h1", policy, NOON, event())
    stale, present = ((codec.content_hash(policy),) for policy in (first, second))
    with pytest.raises(PreconditionFailed):
        _change(policies, change, stale)
    assert policies.get("h1") == second
    assert len(Audit(engine).list(None, None, None, PageRequest()).items) == 2
    _change(policies, change, present)
    assert len(Audit(engine).list(None, None, None, PageRequest()).items) == 3


def _change(policies, change, expected):
    if change == "put":
        policies.put("h1", Policy(mode="enforce"), NOON, event(), expected)
    else:
        policies.delete("h1", event(), expected)
