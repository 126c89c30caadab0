"""The guests and processes that keep plans stale, from the refusals of these plans."""

from dataclasses import asdict

from support.fakes.in_memory_host import daemon, emulator

from pinner.model.change import Target, group_of
from pinner.model.errors import NovaConflict, Refused, StalePlan
from pinner.service.policy.stored_backoffs import moving_targets

FLIPS = [daemon(pid) for pid in (500, 600, 700)]
GUEST = emulator("g1")


def stale(*targets: Target) -> StalePlan:
    return StalePlan("plan-1", tuple(f"{target} moved" for target in targets), tuple(map(asdict, targets)))


def moving(*refusals: StalePlan | Refused | NovaConflict) -> set[object]:
    return set(moving_targets(refusals))


def test_one_stale_plan_names_nobody() -> None:
    assert not moving(stale(*FLIPS))
    assert not moving()


def test_processes_that_take_turns_are_all_found() -> None:
    assert moving(stale(FLIPS[0]), stale(FLIPS[1], FLIPS[2])) == {group_of(each) for each in FLIPS}


def test_a_guest_that_was_started_again_makes_one_plan_stale() -> None:
    assert not moving(stale(GUEST), Refused("x", "a pin", "no"))
    assert moving(stale(GUEST), stale(FLIPS[0]), stale(GUEST)) == {group_of(GUEST), group_of(FLIPS[0])}


def test_the_latest_reason_is_told() -> None:
    first, last = stale(FLIPS[0]), StalePlan("plan-2", (f"{FLIPS[0]} is on 3",), (asdict(FLIPS[0]),))
    ((_, (target, why)),) = moving_targets([first, last]).items()
    assert target == FLIPS[0]
    assert why.startswith(f"{FLIPS[0]} is on 3, after a new plan: ")
