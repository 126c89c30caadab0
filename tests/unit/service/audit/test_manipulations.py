"""Any series of actions and any one manipulation: the verification finds it, and nothing else."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.store.forgery import copy, execute, put_back, rewrite
from support.store.trail import ANN, EVE, Installation
from support.values import NOON, make_run

from pinner.model.errors import NotFound, RunConflict
from pinner.model.run.audit import AuditAction, audit_event

ACTIONS = st.lists(st.sampled_from(["apply", "rollback", "refuse", "exchange", "restart", "exclude"]), max_size=6)
TAMPERS = st.sampled_from([None, "tail", "row", "rewrite", "empty", "forge", "direct", "older", "heads", "middle"])


def tamper(pinner, how, number, older):
    """One manipulation; False where it changes nothing."""
    length = pinner.store.audit.head().seq
    seq = number % length + 1
    if how == "forge":
        event = audit_event(EVE, NOON, AuditAction.RUN_CHANGE, "h1", f"run-{number}: process sshd (1)", "done")
        pinner.store.audit.append(event)
    elif how == "direct":
        plan = pinner.plan()
        pinner.agent.apply(plan, make_run(f"run-{number}", actor="eve", plan=plan.id), lambda *_: None)
    else:
        with pinner.stopped():
            if how == "tail":
                execute(pinner.database, f"DELETE FROM audit WHERE seq >= {seq}")
            elif how == "row":
                execute(pinner.database, f"UPDATE audit SET result = 'x' || result WHERE seq = {seq}")
            elif how == "rewrite":
                rewrite(
                    pinner.database, lambda rows: [row | {"actor": "eve"} if row["seq"] == seq else row for row in rows]
                )
            elif how == "middle":
                rewrite(pinner.database, lambda rows: [row for row in rows if row["seq"] != seq])
            elif how == "empty":
                execute(pinner.database, "DELETE FROM audit")
            elif how == "older":
                put_back(pinner.database, older)
            elif how == "heads":
                execute(pinner.database, "DELETE FROM agent_heads")


@pytest.mark.fault(46)
@settings(deadline=None, max_examples=examples(15))
@given(before=ACTIONS, after=ACTIONS, how=TAMPERS, number=st.integers(0, 1000))
def test_a_trail_is_intact_if_and_only_if_nothing_was_manipulated(tmp_path_factory, empty, before, after, how, number):
    folder = tmp_path_factory.mktemp("trail")
    pinner = Installation(folder / "one", empty)
    try:
        copy(pinner.database, folder / "older")
        applied = [pinner.apply()]
        for action in [*before, *after]:
            act(pinner, action, applied)
        pinner.exchange()
        assert pinner.verify().result == "intact", pinner.verify()
        if how is not None:
            tamper(pinner, how, number, folder / "older")
            assert pinner.verify().result == "broken"
            for action in after:
                act(pinner, action, applied)
            assert pinner.verify().result == "broken"
    finally:
        pinner.stop()


def act(pinner, action, applied):
    match action:
        case "apply":
            applied.append(pinner.apply())
        case "rollback" if applied:
            with suppress(NotFound, RunConflict):  # it was lost with the database, or Eve has changed its targets
                pinner.rollback(applied.pop())
        case "refuse":
            pinner.refused()
        case "exchange":
            pinner.exchange()
        case "restart":
            with pinner.stopped():
                pass
        case "exclude":
            guest = "00000000-0000-4000-8000-000000000001"
            pinner.agent.set_excluded(guest, excluded=True)
            for result in ("excluded: started", "excluded"):
                event = audit_event(ANN, NOON, AuditAction.GUEST_EXCLUDE, "h1", f"web ({guest})", result)
                pinner.store.audit.append(event)
