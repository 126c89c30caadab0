"""The comparison of the centre's trail with an agent's: which records may lack a counterpart."""

from dataclasses import replace

import pytest

from pinner.model.run.agent_audit import AgentRecord
from pinner.service.audit.audit_match import TrailMatch

AT = "2026-11-21T10:00:00.000000+00:00"
LATER = "2026-11-23T10:00:00.000000+00:00"


def agents(seq, action, result, *, target="", after="", run="run-1"):
    return AgentRecord(seq, AT, run, action, target, "", after, result, "ann", "root", "", "")


def centres(seq, action, subject, result):
    texts = {"action": action, "subject": subject, "result": result, "before": "", "after": ""}
    return {"seq": seq, "at": AT, "actor": "ann", "host": "h1", **texts}


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("result", "actor", "forged"),
    [("refused: stale_plan", "ann", False), ("started", "ann", False), ("started", "eve", True)],
)
def test_a_request_whose_refusal_a_killed_centre_never_heard_is_not_forged(result, actor, forged):
    match = TrailMatch("h1")
    match.add_agent(agents(1, "centre.head", "", target="0", after="", run=""))
    match.add_agent(agents(2, "run.apply", result, target="plan-1"))
    match.end_of_first_part()
    match.add_centre(centres(1, "run.apply", "run-1 of plan-1", "started") | {"actor": actor})
    match.add_centre(centres(2, "run.end", "run-1", "failed: interrupted before it changed anything"))
    assert ("forged" in {finding.kind.value for finding in match.findings((), 0, 0, "")}) is forged


def test_a_run_that_was_refused_after_its_begin_may_have_lost_its_request():
    """Retention removed the centre's record 1, and the agent saw the next one before it began the run."""
    match = TrailMatch("h1")
    match.add_agent(agents(5, "centre.head", "", target="2", after="", run=""))
    match.add_agent(agents(6, "run.apply", "started", target="plan-1"))
    match.add_agent(agents(7, "run.end", "failed: plan plan-1 is stale"))
    match.end_of_first_part()
    match.add_centre(centres(3, "run.apply", "run-1 of plan-1", "refused: stale_plan"))
    assert list(match.findings((), 1, 9, LATER)) == []


@pytest.mark.fault(46)
@pytest.mark.parametrize("begun_at_centre", [False, True])
@pytest.mark.parametrize(("minute", "kinds"), [(1, set()), (59, {"unreported"})])
def test_a_run_that_the_agent_ended_earlier_is_not_under_way_whatever_the_centre_says(minute, kinds, begun_at_centre):
    match = TrailMatch("h1")
    match.add_agent(agents(1, "centre.head", "", target="0", run=""))
    match.add_agent(agents(2, "run.apply", "started", target="plan-1"))
    match.add_agent(agents(3, "run.end", "applied"))
    match.end_of_first_part()
    if begun_at_centre:
        match.add_centre(centres(1, "run.apply", "run-1 of plan-1", "started"))
    found = match.findings({"run-1"}, 0, 0, AT.replace("10:00", f"10:{minute:02}"))
    assert {finding.kind.value for finding in found} == kinds


GUEST = "00000000-0000-4000-8000-000000000001"
MADE = ["excluded"]
FAILED = ["excluded", "excluded: failed, apply_failed"]
BEGUN = ["excluded: started"]
DONE = [*BEGUN, "excluded"]
REFUSED = [*BEGUN, "excluded: failed, apply_failed"]
LOST = [*BEGUN, "excluded: failed, host_unreachable"]
UNRECORDED = [*BEGUN, "excluded: failed, store_unavailable"]


@pytest.mark.fault(46)
@pytest.mark.fault(67)
@pytest.mark.parametrize(
    ("agent", "centre", "kinds"),
    [
        (MADE, DONE, []),
        (FAILED, REFUSED, []),
        (MADE + FAILED, DONE + REFUSED, []),
        ([], REFUSED, []),
        ([], LOST, []),
        (MADE, LOST, []),
        (FAILED, LOST, []),
        (MADE, UNRECORDED, []),
        ([], BEGUN, []),
        (FAILED, BEGUN, []),
        (MADE, BEGUN, []),
        (MADE + MADE, DONE + BEGUN, []),
        (FAILED, DONE, ["forged"]),
        ([], DONE, ["forged"]),
        ([], MADE, ["forged"]),
        (MADE, REFUSED, ["unreported"]),
        (MADE, [], ["unreported"]),
        (MADE + MADE, DONE, ["unreported"]),
    ],
)
def test_a_guest_is_excluded_as_often_by_both_trails(agent, centre, kinds):
    assert kinds_of(agent, centre) == kinds


@pytest.mark.parametrize(
    ("agent", "centre", "newer"),
    [([], [], MADE), (MADE, BEGUN, []), (MADE, REFUSED, FAILED[1:]), ([], [], FAILED), ([], BEGUN, FAILED)],
)
def test_a_guest_that_is_excluded_while_the_trails_are_read_is_no_contradiction(agent, centre, newer):
    assert kinds_of(agent, centre, newer) == []


@pytest.mark.fault(46)
@pytest.mark.parametrize(("agent", "kinds"), [([], ["forged"]), (MADE, [])])
def test_an_exclusion_before_the_first_head_whose_result_is_not_known_hides_no_forged_one(agent, kinds):
    assert kinds_of(agent, LOST + DONE, head=len(LOST)) == kinds


def test_what_the_first_head_shows_may_be_older_than_the_agents_trail_although_an_older_head_follows():
    """Two threads of the server report heads at the same time."""
    match = TrailMatch("h1")
    for seq, head in enumerate((3, 1), 8):
        match.add_agent(agents(seq, "centre.head", "", target=str(head), after="", run=""))
    match.end_of_first_part()
    for seq, result in enumerate(DONE, 2):
        match.add_centre(centres(seq, "guest.exclude", f"web ({GUEST})", result))
    assert list(match.findings((), 0, 0, "")) == []


def kinds_of(agent, centre, newer=(), head=0):
    """The findings for results of the agent, then of the centre, then for those that the agent has added meanwhile."""
    match = TrailMatch("h1")
    match.add_agent(agents(1, "centre.head", "", target=str(head), after="", run=""))
    for seq, result in enumerate(agent, 2):
        match.add_agent(agents(seq, "guest.exclude", result, target=GUEST, run=""))
    match.end_of_first_part()
    for seq, result in enumerate(centre, 1):
        match.add_centre(centres(seq, "guest.exclude", f"web ({GUEST})", result))
    for seq, result in enumerate(newer, 2 + len(agent)):
        match.add_agent(agents(seq, "guest.exclude", result, target=GUEST, run=""))
    return [finding.kind.value for finding in match.findings((), 0, 0, "")]


BEGIN = ("run.apply", "run-1 of plan-1", "started")
CHANGE = ("run.change", "run-1: process x (1)", "done")
END = ("run.end", "run-1", "applied")
RUN = [BEGIN, CHANGE, END]
UNKNOWN_RUN = [("run.apply", "run-9 of plan-1", "started"), ("run.end", "run-9", "applied")]
RECOVERED = [BEGIN, ("run.recover", "run-1", "rolled back"), ("run.end", "run-1", "failed")]


def match_of(agent, centre, first=1, start=1):
    """``agent`` has actions of run-1 as the centre records them, and numbers of heads. Both give their first number."""
    match = TrailMatch("h1")
    for seq, made in enumerate(agent, first):
        if isinstance(made, int):
            match.add_agent(agents(seq, "centre.head", "", target=str(made), run=""))
        else:
            action, subject, result = made
            match.add_agent(agents(seq, action, result, target=subject[5:].removeprefix(" of ").removeprefix(": ")))
    match.end_of_first_part()
    for seq, made in enumerate(centre, start):
        match.add_centre(centres(seq, *made))
    return match


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("agent", "forged"),
    [
        (RUN, [BEGIN]),
        (RUN, [CHANGE]),
        (RUN, [END]),
        (RUN, [("run.end", "run-1", "failed: nothing was changed")]),
        (RUN, [*UNKNOWN_RUN, ("run.apply", "run-9 of plan-1", "refused: stale_plan")]),
        (RUN, [*UNKNOWN_RUN, ("run.end", "run-9", "failed: interrupted")]),
        (RECOVERED, [CHANGE]),
    ],
)
def test_what_the_centre_adds_to_an_honest_run_is_forged(agent, forged):
    """A record again, with whichever time; an end of a run that never was; a change after the end."""
    assert list(match_of([0, *agent], agent).findings((), 0, 0, LATER)) == []
    found = list(match_of([0, *agent], [*agent, *forged]).findings((), 0, 0, LATER))
    assert {finding.kind.value for finding in found} == {"forged"}


@pytest.mark.fault(46)
@pytest.mark.parametrize(("changes", "kinds"), [([CHANGE], {"unreported"}), ([], set())])
def test_a_refusal_in_place_of_the_end_excuses_no_run_that_changed_something(changes, kinds):
    agent = [0, BEGIN, *changes, ("run.end", "run-1", "failed: plan plan-1 is stale")]
    found = match_of(agent, [BEGIN, *changes, ("run.apply", "run-1 of plan-1", "refused: stale_plan")])
    assert {finding.kind.value for finding in found.findings((), 0, 0, LATER)} == kinds


@pytest.mark.fault(46)
def test_a_forged_export_hides_no_begin_and_no_change_that_is_younger():
    """The owner of the database appends the end of a run that somebody began at the agent, and forges an export."""
    found = match_of([1, 2, *RUN, 4], [END], start=3).findings((), 2, 4, AT)
    assert [(finding.kind.value, finding.run) for finding in found] == [("unreported", "run-1")] * 2


@pytest.mark.fault(46)
def test_a_forged_export_hides_no_forged_run_from_an_agent_whose_trail_was_cut():
    exclusion = ("guest.exclude", f"web ({GUEST})", "excluded")
    forged = [("run.change", "run-9: process x (1)", "done"), UNKNOWN_RUN[1], exclusion]
    found = list(match_of([2, 3, 7], forged, first=7, start=4).findings((), 3, 7, AT))
    assert [finding.kind.value for finding in found] == ["forged"] * 3


@pytest.mark.fault(46)
def test_a_head_of_a_clock_that_was_behind_makes_no_earlier_head_old():
    match = TrailMatch("h1")
    for seq, (number, at) in enumerate([(1, AT), (5, AT.replace("2026", "1970")), (9, AT)], 1):
        match.add_agent(replace(agents(seq, "centre.head", "", target=str(number), run=""), at=at))
    assert match.young_head(6, 9, AT) == 5
