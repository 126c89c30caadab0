"""A strategy from elsewhere that breaks a rule gets no plan."""

from dataclasses import replace
from typing import ClassVar

import pytest
from support.hosts import cpus, guest, process, snapshot, topology

from pinner.model.change import Target
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.plan import Roles, Wanted
from pinner.model.request import Request
from pinner.planning.context import Context
from pinner.planning.planner import plan
from pinner.planning.strategy import Answer

UUID = "00000000-0000-4000-8000-000000000001"
VCPU_0, VCPU_1 = Target("vcpu", UUID, 0, "g1"), Target("vcpu", UUID, 1, "g1")
EMULATOR = Target("emulator", UUID, None, "g1")
ROLES = Roles(cpus("0-3"), cpus("4-7"), cpus("8-31"))


class Fixed:
    """Answers what it was given."""

    name: ClassVar[str] = "fixed"
    summary: ClassVar[str] = "Always the same."
    parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *wanted: tuple[Target, str], roles: Roles = ROLES) -> None:
        self._answer = Answer(roles, tuple(Wanted(target, cpus(text), "because") for target, text in wanted))

    def place(self, context: Context) -> Answer:
        return self._answer


def host():
    """CPUs 0-31: 10 is claimed, 11 Nova's, 19 offline, 20-31 isolated."""
    return snapshot(
        topology({0: [[c] for c in range(32)]}, offline="19", isolated="20-31"),
        [guest(1, 2, cpus("0-18"))],
        [process(300, 9.0, "10", holds=["restricted"]), process(400, 0.0, "0-18")],
        dedicated=cpus("11"),
    )


@pytest.mark.parametrize(
    ("strategy", "wrong"),
    [
        (Fixed((VCPU_0, "8-10")), "10 is claimed by process daemon \\(300\\)"),
        (Fixed((VCPU_0, "19")), "19 is offline"),
        (Fixed((VCPU_0, "8"), roles=Roles(cpus("0"), cpus("1"), cpus("2"))), "outside the set of its role \\(2\\)"),
        (Fixed((VCPU_0, "40"), roles=Roles(cpus("0"), cpus("1"), cpus("40"))), "40 is absent"),
        (Fixed((VCPU_0, "")), "guest g1 vcpu 0 has no CPU"),
        (Fixed((VCPU_0, "4")), "outside the set of its role \\(8-31\\)"),
        (Fixed((EMULATOR, "8")), "outside the set of its role \\(4-7\\)"),
        (Fixed((VCPU_0, "20-21")), "20-21 are isolated"),
        (Fixed((VCPU_0, "20"), (VCPU_1, "20")), "isolated CPUs 20 get several threads"),
        (Fixed((VCPU_0, "8"), (VCPU_0, "9")), "guest g1 vcpu 0 is placed 2 times"),
        (Fixed((Target("vcpu", UUID, 7, "g1"), "8")), "guest g1 vcpu 7 is not there"),
        (Fixed((Target("process", "400", 5, "daemon"), "0")), "process daemon \\(400\\) is not there, or not to be"),
        (
            Fixed(roles=Roles(cpus("0-3"), cpus("3-4"), cpus("5"))),
            "housekeeping and emulator share CPUs 3, and no note",
        ),
    ],
)
def test_broken_rules(strategy: Fixed, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong) as refused:
        plan(host(), "s", Request("fixed"), {"fixed": strategy})
    assert (refused.value.details["field"], refused.value.details["value"]) == ("strategy", "fixed")


def test_an_answer_that_keeps_the_rules_becomes_a_plan() -> None:
    made = plan(host(), "s", Request("fixed"), {"fixed": Fixed((VCPU_0, "20"), (VCPU_1, "8-9"), (EMULATOR, "4-7"))})
    assert [str(change.target) for change in made.changes] == [
        "guest g1 emulator",
        "guest g1 vcpu 0",
        "guest g1 vcpu 1",
    ]


def test_roles_may_merge_where_a_note_says_why() -> None:
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
def test_what_crosses_nova(wanted: tuple[Target, str], theirs: str) -> None:
    novas = guest(2, 1, cpus("0-18"), pins=["12"], dedicated=True)
    crossed = replace(host(), guests=(*host().guests, novas), shared=cpus("8-16"))
    with pytest.raises(NovaConflict) as refused:
        plan(crossed, "s", Request("fixed"), {"fixed": Fixed(wanted)})
    assert refused.value.details["theirs"] == theirs
    assert refused.value.details["ours"] == f"{wanted[0]} on CPUs {wanted[1]}"
