"""A strategy's answer must place each guest, or list it as unplaced."""

from dataclasses import replace
from typing import ClassVar

import pytest
from support.hosts import cpus, process
from support.made_up.fixed_strategy import (
    EMULATOR,
    G1,
    G2,
    PARTS_OF_G1,
    ROLES,
    UUID,
    UUID_2,
    VCPU_0,
    WORK_HOST,
    Answers,
    Fixed,
    host,
    two_guests,
    with_state,
)

from pinner import codec
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.guest.guest import NovaIdentity
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import WORK
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer

ABSENT = Target("guest", UUID.replace("1", "9"), None, "g9")

PARTS_OF_G2 = (
    *(Target("vcpu", UUID_2, vcpu, "g2") for vcpu in (0, 1)),
    Target("emulator", UUID_2, None, "g2"),
    Target("iothread", UUID_2, 1, "g2"),
    Target("vhost", UUID_2, 12_600, "g2"),
)

COMPLETE = [
    pytest.param(Fixed(), id="both placed"),
    pytest.param(Fixed(forgets=PARTS_OF_G1, unplaced=[G1]), id="g1 unplaced"),
]


@pytest.mark.parametrize("strategy", COMPLETE)
def test_an_answer_that_places_each_guest_or_lists_it_as_unplaced_becomes_a_plan(strategy: Fixed) -> None:
    made = plan(two_guests(), "s", Request("fixed"), {"fixed": strategy})
    placed = {want.target.name for want in made.wanted}
    assert placed | {left.target.name for left in made.unplaced} == {"g1", "g2"}


INCOMPLETE = [
    pytest.param(Fixed(forgets=PARTS_OF_G1), "guest g1 is neither placed nor listed as unplaced", id="forgotten"),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[ABSENT]),
        "guest g9 is listed as unplaced, but is not among the guests to place",
        id="unplaced under an unknown name",
    ),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[replace(G1, name="g9")]),
        "guest g9 is listed as unplaced, but is not among the guests to place",
        id="unplaced under a wrong name",
    ),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[replace(G2, name="g1")]),
        "guest g1 is listed as unplaced, but is not among the guests to place",
        id="unplaced under a wrong UUID",
    ),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[G2]),
        "guest g1 is neither placed nor listed as unplaced",
        id="another guest is unplaced instead",
    ),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[EMULATOR]),
        "guest g1 emulator is listed as unplaced, but is not among the guests to place",
        id="a part instead of the guest is unplaced",
    ),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1, unplaced=[G1, G1]), "guest g1 is listed as unplaced 2 times", id="twice unplaced"
    ),
    pytest.param(Fixed(unplaced=[G1]), "guest g1 is both placed and listed as unplaced", id="placed and unplaced"),
    pytest.param(
        Fixed(forgets=PARTS_OF_G1[1:], unplaced=[G1]),
        "guest g1 is both placed and listed as unplaced",
        id="one vCPU placed and unplaced",
    ),
    pytest.param(Fixed((VCPU_0, "8"), (VCPU_0, "8")), "guest g1 vcpu 0 is placed 2 times", id="wanted twice"),
    *(
        pytest.param(
            Fixed(forgets=[target]), f"guest g1 is placed only in part: {target} has no place", id=f"no {target.kind}"
        )
        for target in PARTS_OF_G1[1:]
    ),
]


@pytest.mark.parametrize(("strategy", "wrong"), INCOMPLETE)
def test_an_answer_that_forgets_or_doubles_a_guest_gets_no_plan_and_the_guest_is_named(
    strategy: Fixed, wrong: str
) -> None:
    with pytest.raises(Invalid, match=wrong) as refused:
        plan(two_guests(), "s", Request("fixed"), {"fixed": strategy})
    assert (refused.value.details["field"], refused.value.details["value"]) == ("strategy", "fixed")


class Silent(Fixed):
    """Answers nothing."""

    def place(self, context: Context) -> Answer:
        return Answer(ROLES, ())


def test_an_answer_without_any_guest_is_no_plan_with_nothing_to_do() -> None:
    with pytest.raises(Invalid, match="guest g1 is neither placed nor listed as unplaced"):
        plan(two_guests(), "s", Request("fixed"), {"fixed": Silent()})


def test_an_answer_without_any_guest_is_a_plan_where_the_host_has_no_guest() -> None:
    assert plan(replace(host(), guests=()), "s", Request("fixed"), {"fixed": Silent()}).changes == ()


@pytest.mark.parametrize(
    "asked", [Request("fixed", excluded_guests=("g1",)), Request("fixed", guests=("g2",))], ids=["excluded", "others"]
)
@pytest.mark.parametrize(
    ("strategy", "wrong"),
    [
        (Fixed((VCPU_0, "8")), "guest g1 vcpu 0 is placed, but is not among the guests to place"),
        (Fixed(unplaced=[G1]), "guest g1 is listed as unplaced, but is not among the guests to place"),
    ],
    ids=["placed", "unplaced"],
)
def test_an_answer_that_names_a_skipped_guest_gets_no_plan(asked: Request, strategy: Fixed, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        plan(two_guests(), "s", asked, {"fixed": strategy})


def test_an_answer_of_iterators_is_read_once_and_whole() -> None:
    busy = replace(two_guests(), processes=(process(400, 9.0, "0-18"),))
    whole = plan(busy, "s", Request("fixed"), {"fixed": Answers(lambda answer: answer)})
    iterators = Answers(lambda answer: replace(answer, wanted=iter(answer.wanted), unplaced=iter(()), warnings=[]))
    assert plan(busy, "s", Request("fixed"), {"fixed": iterators}) == whole
    for host_ in (busy, replace(busy, guests=())):
        made = plan(host_, "s", Request("fixed"), {"fixed": iterators})
        assert "process" in {want.target.kind for want in made.wanted}
        assert codec.load(Plan, codec.dump(made)) == made


class ForFlavors(Fixed):
    """What flavors ask for beside the request's strategy."""

    name: ClassVar[str] = "for-flavors"


def flavored():
    """Guest g2's flavor asks for another strategy than the request's."""
    flavor = NovaIdentity("i", "p", "u", "f", {"pinner:strategy": "for-flavors"})
    one, two = two_guests().guests
    return replace(two_guests(), guests=(one, replace(two, nova=flavor)))


def test_a_guest_whose_flavor_asks_for_another_strategy_is_complete_with_both_answers() -> None:
    made = plan(flavored(), "s", Request("fixed"), {"fixed": Fixed(), "for-flavors": ForFlavors()})
    assert {want.target.name for want in made.wanted} == {"g1", "g2"}


def test_a_guest_whose_flavors_strategy_changes_states_gets_the_hosts_strategy() -> None:
    working = replace(flavored(), topology=WORK_HOST.topology)
    strategies = {"fixed": Fixed(), "for-flavors": with_state(WORK, "0-3", cpus("0-3"))}
    made = plan(working, "s", Request("fixed"), strategies)
    assert {want.target.name for want in made.wanted} == {"g1", "g2"}
    why = "only the host's strategy may change partitions and work queues"
    assert any(warning.endswith(why) for warning in made.warnings)


@pytest.mark.parametrize(
    ("strategies", "culprit", "wrong"),
    [
        (
            {"fixed": Fixed(), "for-flavors": ForFlavors(forgets=PARTS_OF_G2)},
            "for-flavors",
            "guest g2 is neither placed nor listed as unplaced",
        ),
        (
            {"fixed": Fixed(), "for-flavors": ForFlavors(forgets=PARTS_OF_G2, unplaced=[ABSENT])},
            "for-flavors",
            "guest g9 is listed as unplaced, but is not among the guests to place",
        ),
        (
            {"fixed": Fixed(), "for-flavors": ForFlavors((VCPU_0, "8"))},
            "for-flavors",
            "guest g1 vcpu 0 is placed, but is not among the guests to place",
        ),
        (
            {"fixed": Fixed(forgets=PARTS_OF_G1), "for-flavors": ForFlavors()},
            "fixed",
            "guest g1 is neither placed nor listed as unplaced",
        ),
        (
            {"fixed": Fixed((PARTS_OF_G2[0], "8")), "for-flavors": ForFlavors()},
            "fixed",
            "guest g2 vcpu 0 is placed, but is not among the guests to place",
        ),
        (
            {"fixed": Fixed(), "for-flavors": ForFlavors((PARTS_OF_G2[0], "19"))},
            "for-flavors",
            "guest g2 vcpu 0 is placed on CPUs that pinner may not allocate: 19 is offline",
        ),
        (
            {"fixed": Fixed(), "for-flavors": ForFlavors((PARTS_OF_G2[0], ""))},
            "for-flavors",
            "guest g2 vcpu 0 has no CPU",
        ),
    ],
    ids=["forgets", "mislabels", "places another's", "host's forgets", "host's places another's", "offline", "no CPU"],
)
def test_of_several_strategies_the_one_that_forgets_or_doubles_a_guest_is_named(
    strategies: dict[str, Fixed], culprit: str, wrong: str
) -> None:
    with pytest.raises(Invalid, match=wrong) as refused:
        plan(flavored(), "s", Request("fixed"), strategies)
    assert refused.value.details["value"] == culprit
