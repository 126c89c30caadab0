"""The probes in each database."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.errors import NotFound, ProbeBusy
from pinner.model.outcome.outcome import Probe, Window
from pinner.model.page import PageRequest
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.outcome.verdict import outcome
from pinner.store.audit.audit import Audit
from pinner.store.retention import Retention
from pinner.store.runs.outcomes import Probes

PROBE = Probe(
    "probe-1", "h1", ("plan-1",), ("current", "planned"), "ann", "cli", "running", NOON, ("planned", "current"), 20,
    ("web1",),
)  # fmt: skip
WINDOWS = (Window("planned", {"drops": 1.0}), Window("current", {}, {}, "guest web1 went"))
ENDED = replace(PROBE, state="ended", windows=WINDOWS, ended_at=NOON, outcome=outcome(WINDOWS))


def event(action, result="done"):
    return audit_event(Caller("ann", "cli", ""), NOON, action, "h1", "probe-1", result)


BEGIN, END = event(AuditAction.PROBE_BEGIN), event(AuditAction.PROBE_END)


def actions(engine):
    return [each.action for each in Audit(engine).list(None, None, None, PageRequest(direction="asc")).items]


def test_a_probe_is_stored_from_its_begin_to_its_end(engine):
    probes = Probes(engine)
    probes.add(PROBE, BEGIN)
    assert (probes.get("probe-1"), probes.running("h1"), probes.running("h2")) == (PROBE, (PROBE,), ())
    probes.put(replace(PROBE, windows=WINDOWS[:1]))
    assert probes.get("probe-1").windows == WINDOWS[:1]
    probes.end(ENDED, END)
    assert (probes.get("probe-1"), probes.running("h1")) == (ENDED, ())
    assert actions(engine) == ["probe.begin", "probe.end"]


def test_a_host_has_one_probe_at_a_time(engine):
    probes = Probes(engine)
    probes.add(PROBE, BEGIN)
    with pytest.raises(ProbeBusy) as busy:
        probes.add(replace(PROBE, id="probe-2"), BEGIN)
    assert (busy.value.code, busy.value.details["probe"]) == ("host_busy", "probe-1")
    probes.add(replace(PROBE, id="probe-3", host="h2"), BEGIN)
    assert actions(engine) == ["probe.begin"] * 2


def test_an_end_is_stored_once(engine):
    probes = Probes(engine)
    probes.add(PROBE, BEGIN)
    probes.end(ENDED, END)
    probes.end(replace(PROBE, state="interrupted"), END)
    probes.put(PROBE)
    assert probes.get("probe-1") == ENDED
    assert actions(engine) == ["probe.begin", "probe.end"]


def test_an_unknown_probe(engine):
    with pytest.raises(NotFound):
        Probes(engine).get("probe-9")


def test_old_probes_are_deleted_after_their_end(engine):
    probes = Probes(engine)
    later = NOON + timedelta(days=1)
    probes.add(PROBE, BEGIN)
    assert Retention(engine).purge_probes(later) == 0
    probes.end(ENDED, END)
    assert (Retention(engine).purge_probes(NOON), Retention(engine).purge_probes(later, dry_run=True)) == (0, 1)
    assert probes.get("probe-1") == ENDED
    assert (Retention(engine).purge_probes(later), Retention(engine).purge_probes(later)) == (1, 0)
