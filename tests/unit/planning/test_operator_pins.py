"""A guest that an operator pinned stays as it is, with the CPUs of its own, unless the request names it."""

from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, plain, process, snapshot

from pinner.model.errors import Invalid, Refused
from pinner.model.guest.guest import Guest, OperatorPin
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.placement import drifts, record
from pinner.planning.planner import plan

pytestmark = pytest.mark.fault(52)

ALL = cpus("0-31")
STRATEGIES = ("shared-pool", "numa-local", "isolated")


def pinned(number: int, *pins: str, written: str = "definition", live: bool = True, **more: object) -> Guest:
    """A guest whose operator pinned its vCPUs, one ``pin`` each; not ``live``: only in the definition so far."""
    found = guest(number, len(pins), ALL, pins=pins if live else (), **more)
    return replace(found, operator_pins=tuple(OperatorPin("vcpu", n, cpus(pin), written) for n, pin in enumerate(pins)))


def host(*guests: Guest, isolated: str = "") -> Snapshot:
    return snapshot(plain(32, isolated=isolated), guests, [process(300, 40.0, "0-31")])


def placed(made: Plan) -> set[str]:
    return {want.target.name for want in made.wanted if want.target.kind == "vcpu"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_guest_that_an_operator_pinned_is_reported_and_left_alone(strategy: str) -> None:
    here = host(pinned(1, "20", "21"), guest(2, 2, ALL), isolated="16-31" if strategy == "isolated" else "")
    made = plan(here, "s", Request(strategy))
    assert placed(made) == {"g2"}
    assert [(left.label, left.why) for left in made.skipped] == [
        (
            "guest g1",
            "an operator pinned it in its definition: vcpu 0 to 20, vcpu 1 to 21; it owns CPUs 20-21; to place it, "
            "name it in guests (--guest)",
        )
    ]
    assert not cpus("20-21") & made.roles.cpus
    assert plan(applied(here, made), "s", Request(strategy)).changes == ()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["g1", "00000000-0000-4000-8000-000000000001"])
def test_a_pinned_guest_that_the_request_names_is_placed(strategy: str, name: str) -> None:
    here = host(pinned(1, "3", "3"), guest(2, 2, ALL), isolated="16-31" if strategy == "isolated" else "")
    made = plan(here, "s", Request(strategy, guests=(name,)))
    assert placed(made) == {"g1"}
    assert made.skipped == ()
    assert 3 in made.roles.cpus
    assert plan(applied(here, made), "s", Request(strategy, guests=(name,))).changes == ()


def test_the_reason_names_live_pins_where_the_definition_has_none_and_only_the_first_few() -> None:
    here = host(pinned(1, "4", "5", "6", "7", "8", "9", written="live"))
    assert plan(here, "s", Request()).skipped[0].why == (
        "an operator pinned it through libvirt while it runs: vcpu 0 to 4, vcpu 1 to 5, vcpu 2 to 6, vcpu 3 to 7 and "
        "2 more; it owns CPUs 4-9; to place it, name it in guests (--guest)"
    )


def test_a_cpu_of_its_own_that_a_guest_gets_at_its_next_start_is_kept_free_and_shared_cpus_are_not() -> None:
    made = plan(host(pinned(1, "20", "8-11", live=False)), "s", Request())
    assert (str(made.roles.housekeeping), str(made.roles.vcpu)) == ("0-3", "8-19,21-31")


def test_an_offline_or_absent_cpu_of_a_pin_claims_nothing() -> None:
    top = plain(32, offline="20")
    made = plan(snapshot(top, [pinned(1, "20", "64", live=False)]), "s", Request())
    assert made.roles == plan(snapshot(top), "s", Request()).roles


def test_a_literal_set_on_the_cpu_of_a_pinned_guest_is_refused_with_its_name() -> None:
    with pytest.raises(Invalid, match="1 is in the restricted affinity of guest g1, which an operator pinned"):
        plan(host(pinned(1, "1")), "s", Request(housekeeping="0-3"))


def test_an_excluded_guest_and_one_that_nova_pinned_keep_their_own_reasons() -> None:
    guests = (replace(pinned(1, "20"), excluded=True), replace(pinned(2, "21"), dedicated=True), pinned(3, "22"))
    made = plan(host(*guests), "s", Request(excluded_guests=("g3",)))
    assert [left.why for left in made.skipped] == [
        "its metadata excludes it (pin-off); it owns CPUs 20",
        "Nova dedicates CPUs 21 to it",
        "the request excludes it (excluded_guests); it owns CPUs 22",
    ]


def test_a_recorded_guest_that_its_operator_pins_afterwards_is_no_drift() -> None:
    before = host(guest(1, 2, ALL), guest(2, 2, ALL))
    made = planner.plan_from_placement(before, "s", Request(), None)
    placement, now = record(made, before, None), applied(before, made)
    pins = (OperatorPin("vcpu", 0, cpus("20"), "definition"),)
    now = replace(now, guests=(replace(now.guests[0], operator_pins=pins), now.guests[1]))
    again = planner.plan_from_placement(now, "s", Request(), placement)
    assert [left.label for left in again.skipped] == ["guest g1"]
    assert {drift.target.name for drift in drifts(again, placement, now)} == {"g2"}
    settled = applied(now, again)
    assert planner.plan_from_placement(settled, "s", Request(), record(again, now, placement)).changes == ()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"excluded": True}, "its metadata excludes it"),
        ({"leaving": True}, "it is being migrated away"),
        ({"name": "other"}, "the plan's request is not for this guest"),
    ],
)
def test_the_agent_gives_the_reason_for_which_a_guest_must_not_be_changed(facts, why) -> None:
    free = host(guest(1, 2, ALL))
    made = plan(free, "s", Request(guests=("g1",)))
    now = replace(free, guests=(replace(free.guests[0], **facts),))
    known, _ = identified(made, now)
    with pytest.raises(Refused, match=why):
        require_permitted(known, now, Past(), migrate_memory=False)


def test_the_agent_refuses_a_change_of_a_guest_that_an_operator_pinned() -> None:
    free, now = host(guest(1, 2, ALL)), host(pinned(1, "20", "21"))
    made = plan(free, "s", Request())
    known, _ = identified(made, now)
    with pytest.raises(Refused, match="an operator pinned it in its definition: vcpu 0 to 20, vcpu 1 to 21"):
        require_permitted(known, now, Past(), migrate_memory=False)
    named = plan(now, "s", Request(guests=("g1",)))
    require_permitted(identified(named, now)[0], now, Past(), migrate_memory=False)
