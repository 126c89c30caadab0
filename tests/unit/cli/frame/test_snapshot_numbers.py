"""Numbers of a snapshot file that no host can have: each is refused by its field, or gives a plan."""

import json
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.made_up.full_snapshot import full_snapshot, number_fields, places

from pinner import codec
from pinner.cli.commands.what_if import capacity_from_snapshot
from pinner.cli.frame.options import plan_offline, read_snapshot
from pinner.model.errors import Invalid, PinnerError
from pinner.model.kinds import REMEDIES
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.questions import GuestShape
from pinner.model.snapshot import Snapshot
from pinner.render import shell, text

TEXT = json.dumps(codec.plain(full_snapshot()))
PLACES = list(places(Snapshot, json.loads(TEXT)))
FIRST = {place.field: place for place in reversed(PLACES)}
HUGE = 10**400
IMPOSSIBLE = {
    int: [2**64, -(2**63) - 1, HUGE, -HUGE, 1e308, float("nan"), float("inf")],
    float: [1e308, -1e308, float("nan"), float("inf"), float("-inf"), HUGE],
    datetime: ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 1e308, HUGE, float("nan")],
}
EXTREME = {
    int: [2**64 - 1, -(2**63), -1, 0, 8191, 8192, 10**9, 2**31],
    float: [2.0**64, -(2.0**63), 5e-324, -0.0, 0.0, 1e9],
    datetime: ["0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z", "2026-01-01T00:00:00", -1e12, 0],
}
REQUESTS = [
    Request(),
    Request("numa-local", rebalance=True),
    Request("isolated"),
    Request("isolated", isolation="live", remedies=tuple(REMEDIES)),
    Request("optimal", solver_budget=10),
]


def changed(numbers):
    """The document with these numbers at these places."""
    document = json.loads(TEXT)
    for place, number in numbers:
        part = document
        for step in place.path[:-1]:
            part = part[step]
        last = place.path[-1]
        if not place.field.endswith("{key}"):
            part[last] = number
        elif last in part:
            part[str(number)] = part.pop(last)
    return document


def test_every_number_of_a_snapshot_is_tried():
    assert {place.field for place in PLACES} == number_fields(Snapshot)


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_number_that_no_host_can_have_is_refused_by_its_field(kind):
    """A load of 1e308 ended a plan with an internal error."""
    for place in FIRST.values():
        for number in IMPOSSIBLE[kind] if place.kind is kind else ():
            with pytest.raises(Invalid) as caught:
                codec.load(Snapshot, json.dumps(changed([(place, number)])), "snapshot", exact=True)
            where = place.path[:-1] if place.field.endswith("{key}") else place.path
            assert caught.value.details["field"].startswith(".".join(map(str, ("snapshot", *where))))
            assert len(str(caught.value)) < 400


def test_the_command_tells_it_on_one_line(without_service, cli, tmp_path):
    file = tmp_path / "host.json"
    file.write_text(json.dumps(changed([(FIRST[".processes[].threads[].load"], 1e308)])))
    result = cli("plan", "--snapshot", file)
    assert result.status == 2
    assert "(snapshot.processes.0.threads.0.load: 1e+308 is not valid: Input should be less than" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(("distance", "is_possible"), [(-1, False), (255, True), (256, False), (2**64 - 1, False)])
def test_a_distance_that_no_kernel_reports_is_refused(without_service, cli, tmp_path, distance, is_possible):
    """With 2**64 - 1, the plan's objective had a number that could not be read back."""
    file = tmp_path / "host.json"
    file.write_text(json.dumps(changed([(FIRST[".topology.nodes[].distances{}"], distance)])))
    result = cli("plan", "--snapshot", file)
    assert result.status == (0 if is_possible else 2)
    assert is_possible or f"that is not from 0 to 255: {distance}" in result.err


def test_a_key_of_any_length_is_cut_off(without_service, cli, tmp_path):
    document = changed([])
    document["topology"]["nodes"][0]["distances"] = {"9" * 100_000: 10}
    file = tmp_path / "host.json"
    file.write_text(json.dumps(document))
    assert len(cli("plan", "--snapshot", file).err) < 1000


def test_the_name_of_the_file_is_never_cut_off():
    field = f"{'/a-folder-of-a-long-path' * 20}/counters.json"
    with pytest.raises(Invalid, match=f"{field}: 7 is not valid"):
        codec.load(Snapshot, "7", field)


numbers_of_a_host = st.lists(
    st.sampled_from(PLACES).flatmap(lambda place: st.tuples(st.just(place), st.sampled_from(EXTREME[place.kind]))),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(numbers_of_a_host, st.sampled_from(REQUESTS))
def test_other_numbers_are_refused_or_give_a_plan(tmp_path_factory, numbers, request):
    file = tmp_path_factory.getbasetemp() / "numbers.json"
    file.write_text(json.dumps(changed(numbers)))
    try:
        taken = read_snapshot(file)
        plan = plan_offline(taken, request)
        capacity_from_snapshot(taken, request, GuestShape(4, 0))
    except PinnerError:
        return
    assert text.render(plan)
    assert shell.render(plan)
    assert codec.load(Plan, codec.dump(plan)) == plan
