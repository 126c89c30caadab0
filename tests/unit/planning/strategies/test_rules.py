"""A strategy plug-in whose answer breaks a rule gets no plan."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from support.hosts import KERNEL, cpus, guest, process, snapshot, topology
from support.values import MEMBER, isolated

from pinner import codec
from pinner.model.change import Target
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.guest.guest import Cgroup, NovaIdentity
from pinner.model.kinds import PartitionState, State
from pinner.model.plan.plan import LeftOut, Plan, Roles, Wanted
from pinner.model.plan.request import Request
from pinner.model.snapshot import WORK
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer

UUID, UUID_2 = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2))
VCPU_0, VCPU_1 = Target("vcpu", UUID, 0, "g1"), Target("vcpu", UUID, 1, "g1")
EMULATOR = Target("emulator", UUID, None, "g1")
SLICE = Target("partition", "machine.slice", None, "machine.slice")
ROLES = Roles(cpus("0-3"), cpus("4-7"), cpus("8-31"))


class Fixed:
    """Answers the targets that it was given, and places all other targets of its guests correctly."""

    name: ClassVar[str] = "fixed"
    summary: ClassVar[str] = "Always the same."
    parameters: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *wanted: tuple[Target, str],
        roles: Roles = ROLES,
        forgets: Collection[Target] = (),
        unplaced: Iterable[Target] = (),
        state: State | None = None,
    ) -> None:
        self._roles = roles
        self._wanted = tuple(Wanted(target, cpus(text), "because", state) for target, text in wanted)
        self._forgets = {*forgets, *(want.target for want in self._wanted)}
        self._unplaced = tuple(LeftOut(target, "no room") for target in unplaced)

    def place(self, context: Context) -> Answer:
        rest = (target for each in context.guests for target in each.threads_by_target if target not in self._forgets)
        pool = self._roles.vcpu & context.allocatable.shared
        placed = (Wanted(target, pool if target.kind == "vcpu" else self._roles.emulator, "rest") for target in rest)
        return Answer(self._roles, (*self._wanted, *placed), self._unplaced)


def host():
    """CPUs 0-31: process 300 has 10 for itself, 11 is Nova's, 19 is offline, 20-31 are isolated."""
    return snapshot(
        topology({0: [[c] for c in range(32)]}, offline="19", isolated="20-31"),
        [guest(1, 2, cpus("0-18"), cgroups=(Cgroup("machine.slice", MEMBER),))],
        [process(300, 9.0, "10", reasons=["restricted"]), process(400, 0.0, "0-18")],
        dedicated=cpus("11"),
    )


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


G1, G2 = Target("guest", UUID, None, "g1"), Target("guest", UUID_2, None, "g2")
ABSENT = Target("guest", UUID.replace("1", "9"), None, "g9")
PARTS_OF_G1 = (VCPU_0, VCPU_1, EMULATOR, Target("iothread", UUID, 1, "g1"), Target("vhost", UUID, 11_600, "g1"))
PARTS_OF_G2 = (
    *(Target("vcpu", UUID_2, vcpu, "g2") for vcpu in (0, 1)),
    Target("emulator", UUID_2, None, "g2"),
    Target("iothread", UUID_2, 1, "g2"),
    Target("vhost", UUID_2, 12_600, "g2"),
)


def two_guests():
    """Guest g1 has one part of each kind, and a vCPU that is not plugged in; of g2's it is the same."""
    guests = [guest(n, 2, cpus("0-18"), iothreads=1, vhost_threads=1, unplugged=1) for n in (1, 2)]
    return replace(host(), guests=tuple(guests))


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


class Answers(Fixed):
    """Places everything correctly, then answers what ``make`` makes of that answer."""

    def __init__(self, make: Callable[[Answer], object], forgets: Collection[Target] = ()) -> None:
        super().__init__(forgets=forgets)
        self._make = make

    def place(self, context: Context) -> Any:
        answer = super().place(context)
        busy = (Wanted(move.target, self._roles.housekeeping, "busy") for move in context.moving)
        return self._make(replace(answer, wanted=(*answer.wanted, *busy)))


def test_an_answer_of_iterators_is_read_once_and_whole() -> None:
    busy = replace(two_guests(), processes=(process(400, 9.0, "0-18"),))
    whole = plan(busy, "s", Request("fixed"), {"fixed": Answers(lambda answer: answer)})
    iterators = Answers(lambda answer: replace(answer, wanted=iter(answer.wanted), unplaced=iter(()), warnings=[]))
    assert plan(busy, "s", Request("fixed"), {"fixed": iterators}) == whole
    for host_ in (busy, replace(busy, guests=())):
        made = plan(host_, "s", Request("fixed"), {"fixed": iterators})
        assert "process" in {want.target.kind for want in made.wanted}
        assert codec.load(Plan, codec.dump(made)) == made


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


WORK_HOST = replace(host(), topology=replace(host().topology, kernel=replace(KERNEL, unbound=cpus("0-18"))))


def with_state(target: Target, text: str, state: State) -> Answers:
    return Answers(lambda answer: replace(answer, wanted=(*answer.wanted, Wanted(target, cpus(text), "so", state))))


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
