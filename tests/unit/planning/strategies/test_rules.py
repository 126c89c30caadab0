"""A strategy plug-in whose answer breaks a rule gets no plan."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.hosts import cpus, guest
from support.made_up.fixed_strategy import (
    EMULATOR,
    G1,
    PARTS_OF_G1,
    UUID,
    VCPU_0,
    VCPU_1,
    WORK_HOST,
    Answers,
    Fixed,
    host,
    two_guests,
    with_state,
)
from support.values import isolated

from pinner.model.change import Target
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.plan.plan import LeftOut, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import WORK
from pinner.model.states import PartitionState, State
from pinner.planning.planner import plan
from pinner.planning.strategies.strategy import Answer

SLICE = Target("partition", "machine.slice", None, "machine.slice")


@pytest.mark.parametrize(
    ("strategy", "wrong"),
    [
        (Fixed((VCPU_0, "8-10")), "10 is in the restricted affinity of process daemon \\(300\\)"),
        (Fixed((VCPU_0, "19")), "19 is offline"),
        (Fixed((VCPU_0, "8"), roles=Roles(cpus("0"), cpus("1"), cpus("2"))), "outside the set of its role \\(2\\)"),
        (Fixed((VCPU_0, "40"), roles=Roles(cpus("0"), cpus("1"), cpus("40"))), "40 is absent"),
        (Fixed((VCPU_0, "")), "guest g1 vcpu 0 has no CPU"),
        (Fixed((VCPU_0, "4")), "outside the set of its role \\(8-31\\)"),
        (Fixed((EMULATOR, "8")), "outside the set of its role \\(4-7\\)"),
        (Fixed((VCPU_0, "20-21")), "20-21 are isolated"),
        (Fixed((VCPU_0, "20"), (VCPU_1, "20")), "isolated CPUs 20 get several threads"),
        (Fixed((VCPU_0, "8"), (VCPU_0, "9")), "guest g1 vcpu 0 is placed 2 times"),
        (Fixed((VCPU_0, "11"), state=isolated("11")), "guest g1 vcpu 0 has a state, but its kind has threads instead"),
        (Fixed((SLICE, "4")), "partition machine.slice has no state, but its kind has one instead of threads"),
        (Fixed((Target("vcpu", UUID, 7, "g1"), "8")), "guest g1 vcpu 7 is not on the host"),
        (
            Fixed((Target("process", "400", 5, "daemon"), "0")),
            "process daemon \\(400\\) is not on the host, or not to be",
        ),
        (
            Fixed(roles=Roles(cpus("0-3"), cpus("3-4"), cpus("5"))),
            "housekeeping and emulator share CPUs 3, and no note",
        ),
    ],
)
def test_an_answer_that_breaks_a_rule_gets_no_plan(strategy: Fixed, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong) as refused:
        plan(host(), "s", Request("fixed"), {"fixed": strategy})
    assert (refused.value.details["field"], refused.value.details["value"]) == ("strategy", "fixed")


def first(answer: Answer, **fields: object) -> Answer:
    return replace(answer, wanted=(replace(answer.wanted[0], **fields), *answer.wanted[1:]))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda answer: None, "not with None"),
        (lambda answer: replace(answer, wanted=None), "has a tuple as wanted, not None"),
        (lambda answer: replace(answer, unplaced=("guest g1",)), "unplaced has 'guest g1'"),
        (lambda answer: replace(answer, unplaced=(LeftOut("guest g1", "no room"),)), "unplaced has LeftOut.*guest g1"),
        (lambda answer: replace(answer, warnings=(1,)), "warnings has 1"),
        (lambda answer: replace(answer, roles=None), "roles is None"),
        (lambda answer: replace(answer, wanted=("guest g1",)), "wanted has 'guest g1'"),
        (lambda answer: first(answer, target=replace(VCPU_0, kind="cpu")), "wanted has Wanted.*kind='cpu'"),
        (lambda answer: first(answer, cpus="8"), "guest g1 emulator has '8' for cpus"),
        (lambda answer: first(answer, reason=None), "guest g1 emulator has None for reason"),
        (lambda answer: first(answer, state="isolated 8"), "guest g1 emulator has 'isolated 8' for state"),
    ],
)
def test_an_answer_with_values_of_other_types_gets_no_plan(make: Callable[[Answer], object], wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong) as refused:
        plan(two_guests(), "s", Request("fixed"), {"fixed": Answers(make)})
    assert refused.value.details["value"] == "fixed"


def test_a_guest_is_unplaced_as_a_whole_not_only_with_threads() -> None:
    left = LeftOut(G1, "no room", (11_000,))
    threads = Answers(lambda answer: replace(answer, unplaced=(left,)), forgets=PARTS_OF_G1)
    with pytest.raises(Invalid, match="guest g1 is listed as unplaced, but only with threads 11000"):
        plan(two_guests(), "s", Request("fixed"), {"fixed": threads})


@pytest.mark.parametrize(
    ("target", "text", "state", "wrong"),
    [
        (SLICE, "8", isolated("0-7"), "partition machine.slice gets the state 'isolated 0-7', but is placed on CPUs 8"),
        (WORK, "4-8", cpus("0-3"), "workqueue unbound kernel work gets the state '0-3', but is placed on CPUs 4-8"),
        (SLICE, "4-8", cpus("4-8"), "partition machine.slice gets the state '4-8', which is of another kind"),
        (WORK, "8", isolated("8"), "workqueue unbound kernel work gets the state 'isolated 8', which is of another"),
        (
            SLICE,
            "8",
            isolated("8", "full"),
            "gets the state 'isolated invalid .full. 8', which cannot be set",
        ),
        (SLICE, "8", replace(isolated("8"), kind="shared"), "gets the state 'shared 8', which cannot be set"),
        (SLICE, "", isolated(""), "partition machine.slice has no CPU"),
        (WORK, "", cpus(""), "workqueue unbound kernel work has no CPU"),
        (SLICE, "8,19", isolated("8,19"), "partition machine.slice takes CPUs that .* not allocate: 19 is offline"),
        (SLICE, "8,40", isolated("8,40"), "partition machine.slice takes CPUs that .* not allocate: 40 is absent"),
        (SLICE, "8,10", isolated("8,10"), "10 is in the restricted affinity of process daemon"),
        (SLICE, "8,11", isolated("8,11"), "partition machine.slice takes .* not allocate: Nova dedicates 11"),
        (SLICE, "0,8", isolated("0,8"), "partition machine.slice takes CPUs 0 from housekeeping"),
    ],
)
def test_a_state_that_breaks_a_rule_gets_no_plan(target: Target, text: str, state: State, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        plan(WORK_HOST, "s", Request("fixed"), {"fixed": with_state(target, text, state)})


@pytest.mark.parametrize(
    ("target", "text", "state"),
    [
        (SLICE, "8-9", isolated("8-9")),
        (SLICE, "8,11", PartitionState("root", cpus("8,11"))),
        (WORK, "0-3", cpus("0-3")),
    ],
)
def test_a_state_that_breaks_no_rule_becomes_a_change(target: Target, text: str, state: State) -> None:
    made = plan(WORK_HOST, "s", Request("fixed"), {"fixed": with_state(target, text, state)})
    assert [change.after for change in made.changes if change.target == target] == [state]


def test_an_answer_that_breaks_no_rule_becomes_a_plan() -> None:
    made = plan(host(), "s", Request("fixed"), {"fixed": Fixed((VCPU_0, "20"), (VCPU_1, "8-9"), (EMULATOR, "4-7"))})
    assert [str(change.target) for change in made.changes] == [
        "guest g1 emulator",
        "guest g1 vcpu 0",
        "guest g1 vcpu 1",
    ]


def test_roles_may_share_cpus_where_a_note_says_why() -> None:
    roles = Roles(cpus("0-3"), cpus("0-3"), cpus("8-9"), ("a small host",))
    assert plan(host(), "s", Request("fixed"), {"fixed": Fixed(roles=roles)}).roles == roles


@pytest.mark.parametrize(
    ("wanted", "theirs"),
    [
        ((VCPU_0, "8-9,11"), "Nova's cpu_dedicated_set 11"),
        ((EMULATOR, "4-7,11"), "Nova's cpu_dedicated_set 11"),
        ((VCPU_0, "8-9,17"), "Nova's cpu_shared_set 8-16"),
        ((Target("vcpu", UUID.replace("1", "2"), 0, "g2"), "8"), "guest g2, to which Nova dedicates CPUs 12"),
    ],
)
def test_an_answer_that_uses_what_nova_owns_gets_no_plan(wanted: tuple[Target, str], theirs: str) -> None:
    novas = guest(2, 1, cpus("0-18"), pins=["12"], dedicated=True)
    crossed = replace(host(), guests=(*host().guests, novas), shared=cpus("8-16"))
    with pytest.raises(NovaConflict) as refused:
        plan(crossed, "s", Request("fixed"), {"fixed": Fixed(wanted)})
    assert refused.value.details["theirs"] == theirs
    assert refused.value.details["ours"] == f"{wanted[0]} on CPUs {wanted[1]}"
