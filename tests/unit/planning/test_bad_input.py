"""Every refusal of the planner names the field, the value and the CPUs."""

import math
import re
from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, process, snapshot, topology

from pinner import codec
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict, PinnerError
from pinner.model.guest.guest import InactiveGuest
from pinner.model.plan.request import Request
from pinner.planning.planner import plan, require_possible


def host():
    """CPUs 0-15: 11 of a PMD thread, 12 offline, 13 isolated, 14 Nova's, 15 of a guest that Nova pinned."""
    top = topology({0: [[c] for c in range(16)]}, offline="12", isolated="13")
    return snapshot(
        top,
        [guest(1, 1, top.online, pins=["15"], dedicated=True), guest(2, 2, top.online)],
        [process(300, 100.0, "11", name="ovs", reasons=["restricted"])],
        dedicated=cpus("14"),
    )


@pytest.mark.parametrize("field", ["housekeeping", "emulator"])
@pytest.mark.parametrize(
    ("value", "named", "why"),
    [
        ("0,64-65", "64-65", "64-65 are absent"),
        ("0,12", "12", "12 is offline"),
        ("0,13", "13", "13 is isolated from the kernel's scheduler"),
        (
            "0,11",
            "11",
            "11 is in the restricted affinity of process ovs (300) "
            "(more than 2 % of one CPU, and running for 60 s or as long as its service); "
            "to free a process's CPUs, name it in processes (--process)",
        ),
        ("10-15", "11-15", "12 is offline; 13 is isolated"),
    ],
)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_a_literal_set_with_cpus_that_pinner_may_not_allocate_is_refused(
    field: str, value: str, named: str, why: str, strategy: str
) -> None:
    with pytest.raises(Invalid) as refused:
        plan(host(), "s", Request(strategy, **{field: value}))
    assert (refused.value.details["field"], refused.value.details["value"]) == (field, value)
    assert refused.value.details["cpus"] == named
    assert why in refused.value.message


@pytest.mark.fault(15)
@pytest.mark.parametrize("field", ["housekeeping", "emulator"])
@pytest.mark.parametrize(
    ("value", "theirs", "both"),
    [
        ("0,14", "Nova's cpu_dedicated_set 14", "14"),
        ("14-15", "Nova's cpu_dedicated_set 14", "14"),
        ("1,15", "guest g1, to which Nova dedicates CPUs 15", "15"),
    ],
)
@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_a_literal_set_with_cpus_of_nova_is_refused_and_both_owners_are_named(
    field: str, value: str, theirs: str, both: str, strategy: str
) -> None:
    with pytest.raises(NovaConflict) as refused:
        plan(host(), "s", Request(strategy, **{field: value}))
    assert refused.value.details == {"ours": f"{field} {value}", "theirs": theirs, "cpus": both}


def test_no_advice_about_processes_is_given_for_a_cpu_of_an_excluded_guest() -> None:
    excluded = snapshot(topology({0: [[c] for c in range(4)]}), [guest(1, 1, cpus("0-3"), pins=["2"], excluded=True)])
    with pytest.raises(Invalid) as refused:
        plan(excluded, "s", Request(housekeeping="2"))
    assert refused.value.message.endswith("2 is in the restricted affinity of guest g1, which is excluded")


def test_a_cpu_of_a_restricted_process_is_free_when_the_request_names_the_process() -> None:
    made = plan(host(), "s", Request(housekeeping="0,11", processes=("ovs",)))
    assert [(str(want.target), str(want.cpus)) for want in made.wanted if want.target.kind == "process"] == [
        ("process ovs (300)", "0,11")
    ]


@pytest.mark.parametrize(
    ("request_", "kind", "code", "words"),
    [
        (Request("fastest"), NotFound, "not_found", "known: exclusive, isolated, manual, numa-local, optimal, "),
        (Request(guests=("g9",)), NotFound, "not_found", "guest: there is no 'g9'; known: g1, g2"),
        (Request(processes=("nosuchd",)), NotFound, "not_found", "process: there is no 'nosuchd'"),
        (Request(housekeeping="0-3", emulator="2-5"), Invalid, "invalid", "emulator: '2-5' is not valid"),
        (Request(housekeeping="0-5", emulator="6-10"), NoFit, "no_fit", "no CPU is left for vCPUs: the 15 online CPUs"),
    ],
)
def test_a_request_that_the_host_cannot_have_is_refused_with_the_reason(
    request_: Request, kind: type[PinnerError], code: str, words: str
) -> None:
    with pytest.raises(kind) as refused:
        plan(host(), "s", request_)
    assert refused.value.code == code
    assert words in refused.value.message


@pytest.mark.parametrize("value", [-1.0, 819200.1, 1e20, math.inf, math.nan])
def test_a_threshold_above_that_of_the_largest_host_is_refused_before_it_is_stored(value: float) -> None:
    """The reader of stored values refused it, so a policy with it could neither be read nor deleted."""
    with pytest.raises(Invalid, match="a number of per cent from 0 to 819200"):
        Request(busy_threshold=value)
    assert codec.load(Request, codec.dump(Request(busy_threshold=819200.0))).busy_threshold == 819200.0


@pytest.mark.parametrize("value", [1600.1, 800_000.0])
def test_a_threshold_that_no_process_can_exceed_is_refused_with_the_number_of_cpus(value: float) -> None:
    assert plan(host(), "s", Request(busy_threshold=1600.0)).blocked == ""
    for call in (lambda asked: plan(host(), "s", asked), lambda asked: require_possible(host(), asked)):
        with pytest.raises(Invalid) as refused:
            call(Request(busy_threshold=value))
        assert refused.value.message == (
            f"busy_threshold: {value!r} is not valid: a number of per cent of one CPU from 0 to 1600: "
            "the host has 16 CPUs"
        )


def test_a_plan_for_a_guest_that_is_shut_off_is_refused_but_a_policy_may_name_it() -> None:
    off = replace(host(), inactive=(InactiveGuest("web", "00000000-0000-4000-8000-000000000077"),))
    for name in ("web", "00000000-0000-4000-8000-000000000077"):
        with pytest.raises(Invalid, match="guests: 'web' is not valid: a running guest; this one is shut off"):
            plan(off, "s", Request(guests=(name,)))
        require_possible(off, Request(guests=(name,)))


def test_a_policy_for_a_guest_that_libvirt_does_not_know_is_refused() -> None:
    off = replace(host(), inactive=(InactiveGuest("web", "00000000-0000-4000-8000-000000000077"),))
    with pytest.raises(NotFound, match="guest: there is no 'g9'; known: g1, g2, web"):
        require_possible(off, Request(guests=("g2", "g9"), excluded_guests=("g8",)))


def test_a_policy_names_a_guest_that_comes_later_by_its_uuid() -> None:
    later = "8d1c7ba2-0000-4000-8000-000000000001"
    require_possible(host(), Request(guests=(later,)))
    with pytest.raises(NotFound):
        plan(host(), "s", Request(guests=(later,)))
    for other in (later.replace("-", ""), later.upper()):  # no guest is ever found by these
        with pytest.raises(NotFound):
            require_possible(host(), Request(guests=(other,)))


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"housekeeping": "0,64-65"}, "housekeeping: '0,64-65' is not valid: CPUs that pinner may allocate; 64-65 are"),
        ({"emulator": "1,12"}, "emulator: '1,12' is not valid: CPUs that pinner may allocate; 12 is offline"),
        ({"housekeeping": "0-3", "emulator": "3"}, "emulator: '3' is not valid: CPUs outside housekeeping; CPUs 3 are"),
    ],
)
def test_a_policy_with_cpus_that_the_host_lacks_is_refused(strategy: str, sets: dict[str, str], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        require_possible(host(), Request(strategy, **sets))
    assert refused.value.message.startswith(words)


def test_a_refusal_of_overlapping_sets_names_the_shared_cpus() -> None:
    with pytest.raises(Invalid) as refused:
        plan(host(), "s", Request(housekeeping="0-3", emulator="2-5"))
    assert refused.value.details["cpus"] == "2-3"


def test_a_refusal_for_lack_of_cpus_says_how_each_cpu_is_used() -> None:
    with pytest.raises(NoFit) as refused:
        plan(host(), "s", Request(housekeeping="0-5", emulator="6-10"))
    why = refused.value.details["why"]
    for part in ("housekeeping 0-5", "emulator 6-10", "isolated 13", "Nova 14-15", "affinity of process ovs (300) 11"):
        assert part in why


@pytest.mark.parametrize("strategy", ["shared-pool", "numa-local", "isolated"])
def test_the_plan_of_a_host_with_only_restricted_cpus_is_blocked_and_names_their_owners(strategy: str) -> None:
    masks = process(300, 9.0, "0-1", "2-3", reasons=["restricted", "restricted"], reserves="privileged")
    made = plan(snapshot(plain(4), [], [masks]), "s", Request(strategy))
    assert made.blocked.startswith(
        "restricted affinities leave a role fewer than 1 core of a node: process daemon (300)"
    )


@pytest.mark.parametrize("field", ["housekeeping", "emulator"])
def test_a_literal_set_below_the_minimum_is_refused_with_the_numbers(field: str) -> None:
    with pytest.raises(Invalid) as refused:
        plan(snapshot(plain(32, 2)), "s", Request(minimum_cores=2, **{field: "0,30-31"}))
    expected = "at least 2 cores of each node that it uses (minimum_cores); it has 1 of node 0"
    assert refused.value.message == f"{field}: '0,30-31' is not valid: {expected}"
    assert refused.value.details["cpus"] == "0"
    with pytest.raises(Invalid, match="it has 1 of node 0"):
        plan(snapshot(plain(32, 2), minimum_cores=2), "s", Request(**{field: "0,30-31"}))


@pytest.mark.parametrize("value", [0, -1, 8193])
def test_a_minimum_that_no_host_has_is_refused(value: int) -> None:
    with pytest.raises(Invalid, match=f"minimum_cores: {value} is not valid: a number of cores from 1 to 8192"):
        Request(minimum_cores=value)


def test_a_minimum_that_this_host_cannot_give_is_refused_with_the_numbers() -> None:
    why = "6 is not valid: at most 5 on this host: housekeeping, emulators, vCPUs divide the 16 free cores"
    with pytest.raises(Invalid, match=f"^minimum_cores: {why}"):
        plan(snapshot(plain(32, 2)), "s", Request(minimum_cores=6))
    with pytest.raises(Invalid, match="^" + re.escape(f"[host] minimum_cores: {why}")):
        plan(snapshot(plain(32, 2), minimum_cores=6), "s", Request())


def test_isolated_needs_another_cpu_than_those_of_housekeeping() -> None:
    with pytest.raises(NoFit, match="no CPU is left for vCPUs: the 1 online CPUs"):
        plan(snapshot(plain(1)), "s", Request("isolated"))
