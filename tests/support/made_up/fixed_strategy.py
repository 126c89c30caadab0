"""A strategy with a fixed answer, and the host that it is for."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from support.hosts import KERNEL, cpus, guest, process, snapshot, topology
from support.values import MEMBER

from pinner.model.change import Target
from pinner.model.guest.guest import Cgroup
from pinner.model.plan.plan import LeftOut, Roles, Wanted
from pinner.model.states import State
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer

UUID, UUID_2 = (f"00000000-0000-4000-8000-{number:012d}" for number in (1, 2))

VCPU_0, VCPU_1 = Target("vcpu", UUID, 0, "g1"), Target("vcpu", UUID, 1, "g1")

EMULATOR = Target("emulator", UUID, None, "g1")

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


G1, G2 = Target("guest", UUID, None, "g1"), Target("guest", UUID_2, None, "g2")

PARTS_OF_G1 = (VCPU_0, VCPU_1, EMULATOR, Target("iothread", UUID, 1, "g1"), Target("vhost", UUID, 11_600, "g1"))


def two_guests():
    """Guest g1 has one part of each kind, and a vCPU that is not plugged in; of g2's it is the same."""
    guests = [guest(n, 2, cpus("0-18"), iothreads=1, vhost_threads=1, unplugged=1) for n in (1, 2)]
    return replace(host(), guests=tuple(guests))


class Answers(Fixed):
    """Places everything correctly, then answers what ``make`` makes of that answer."""

    def __init__(self, make: Callable[[Answer], object], forgets: Collection[Target] = ()) -> None:
        super().__init__(forgets=forgets)
        self._make = make

    def place(self, context: Context) -> Any:
        answer = super().place(context)
        busy = (Wanted(move.target, self._roles.housekeeping, "busy") for move in context.moving)
        return self._make(replace(answer, wanted=(*answer.wanted, *busy)))


WORK_HOST = replace(host(), topology=replace(host().topology, kernel=replace(KERNEL, unbound=cpus("0-18"))))


def with_state(target: Target, text: str, state: State) -> Answers:
    return Answers(lambda answer: replace(answer, wanted=(*answer.wanted, Wanted(target, cpus(text), "so", state))))
