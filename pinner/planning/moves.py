"""Guests that move because of new guests, or for a re-pack; and the rule with hysteresis by which a policy proposes a
re-pack (docs/strategies.md).

Where each vCPU has its own CPU, moves are first estimated by a packing of these guests alone, because a whole answer
takes many times longer. Otherwise the guests that spread most are tried. Without a new guest none moves, so a second
plan changes nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations
from math import fsum
from typing import TYPE_CHECKING

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import COST, TERMS, Objective, value_of
from pinner.model.plan.plan import CpusByGuest, Move, Plan, vcpus_by_guest
from pinner.planning.changes import exchanging, valid_order
from pinner.planning.guest_spread import GuestSpread, guests_terms, shared_cores
from pinner.planning.objective import MeasuredAnswer, between
from pinner.planning.objective_terms import SPREAD, ObjectiveMeasure, weights
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer

if TYPE_CHECKING:
    from pinner.planning.strategies.allocator.free_cpus import FreeCpus, GuestAllocation

_TRIALS = 6
"""Each is a whole answer of the strategy."""
_ESTIMATED = 40
_PAIRED = 14
_REPACKED = 16

Movers = tuple[Guest, ...]


@dataclass(frozen=True, slots=True)
class Improver:
    context: Context
    place: Callable[[Context], Answer]
    measure: ObjectiveMeasure
    asked: frozenset[str]

    def improved(self, measured: MeasuredAnswer) -> tuple[MeasuredAnswer, tuple[Move, ...]]:
        current = {guest.uuid: own for guest in self.context.guests if (own := _current(self.context, guest))}
        if self.context.request.rebalance or not current:
            return measured, ()
        placed = vcpus_by_guest(measured.answer.wanted)
        # Guests that float beside those with CPUs of their own are new only where they get other CPUs.
        now = {guest.uuid: guest.vcpu_affinities for guest in self.context.guests}
        if all(uuid in current or vcpus == now[uuid] for uuid, vcpus in placed.items()):
            return measured, ()
        moved = self._moved(current, measured.answer)
        moves = {uuid: Move(self._guest(uuid).target) for uuid in moved}
        if not self.asked & SPREAD:
            return measured, tuple(moves.values())
        while (most := self.context.request.moves - len(moves)) > 0:
            best = self._best(measured, current, current.keys() - moves.keys(), frozenset(moves), most)
            if best is None:
                break
            movers, measured, objective = best
            moves |= {guest.uuid: _move(guest, objective) for guest in movers}
        moved = self._moved(current, measured.answer)
        return measured, tuple(move for uuid, move in moves.items() if uuid in moved)

    def repacked(self, measured: MeasuredAnswer) -> tuple[MeasuredAnswer, tuple[Move, ...]]:
        """No guest moves twice: so each has left its CPUs before another one gets them."""
        moves: dict[str, Move] = {}
        while self.asked & SPREAD and len(moves) < _REPACKED:
            places = {want.target.key: want.cpus for want in measured.answer.wanted if want.state is None}
            here = replace(self, context=replace(self.context, places={**self.context.places, **places}))
            current = vcpus_by_guest(measured.answer.wanted)
            best = here._best(measured, current, current.keys() - moves.keys(), frozenset(), 2)
            if best is None:
                break
            movers, measured, objective = best
            moves |= {guest.uuid: _move(guest, objective) for guest in movers}
        return measured, tuple(moves.values())

    def _best(
        self,
        measured: MeasuredAnswer,
        current: CpusByGuest,
        movable: Collection[str],
        replaced: frozenset[str],
        most: int,
    ) -> tuple[Movers, MeasuredAnswer, Objective] | None:
        best, least = None, measured
        candidates, estimated = self._candidates(measured, current, movable, replaced, most) if movable else ([], False)
        for movers in candidates[:_TRIALS]:
            moved = replaced.union(guest.uuid for guest in movers)
            trial = self._trial(moved)
            if trial is None or not self._is_comparable(measured.answer, trial, current, moved):
                continue
            after = MeasuredAnswer.of(trial, self.measure, self.context)
            if self._compared(least, after).gain > 0:
                best, least = (movers, after, self._compared(measured, after)), after
                if estimated:
                    break
        return best

    def _trial(self, replaced: frozenset[str]) -> Answer | None:
        with suppress(Invalid, NoFit):
            return self.place(replace(self.context, replaced=replaced))
        return None

    def _candidates(
        self,
        measured: MeasuredAnswer,
        current: CpusByGuest,
        movable: Collection[str],
        replaced: frozenset[str],
        most: int,
    ) -> tuple[list[Movers], bool]:
        """Most likely gain first where that can be estimated; and whether it can."""
        ranked = self._beside_spread(measured, movable)
        placed = vcpus_by_guest(measured.answer.wanted)
        try:
            estimates = MoveEstimates.of(self.context, self.measure, self.asked, measured, current)
        except NoFit:
            return [(guest,) for guest in ranked], False
        anew = [self._guest(uuid) for uuid in placed if uuid in replaced or uuid not in current]
        groups: list[Movers] = [(guest,) for guest in ranked[:_ESTIMATED]]
        groups += combinations(ranked[:_PAIRED], 2) if most > 1 else ()
        values = ((estimates.after([*anew, *movers]), movers) for movers in groups)
        now = estimates.now()
        likely = [(value, position, movers) for position, (value, movers) in enumerate(values) if value and value < now]
        return [movers for *_, movers in sorted(likely, key=lambda each: each[:2])], True

    def _beside_spread(self, measured: MeasuredAnswer, movable: Collection[str]) -> list[Guest]:
        every, placed = measured.measured.spreads, vcpus_by_guest(measured.answer.wanted)
        spreads = {guest.uuid: every[guest.uuid] for guest in self.context.guests if guest.uuid in placed}
        excess = self._excess(spreads)
        bad = [spreads[uuid] for uuid, far in excess.items() if far]
        ranked = [
            (-excess[uuid], len(self._guest(uuid).plugged), uuid)
            for uuid in movable
            if uuid in spreads and any(_are_beside(spreads[uuid], each) for each in bad)
        ]
        return [self._guest(uuid) for *_, uuid in sorted(ranked)]

    def _excess(self, spreads: Mapping[str, GuestSpread]) -> dict[str, int]:
        shared = shared_cores(spreads.values())
        needs = self.measure.needs
        return {
            uuid: max(len(spread.nodes) - needs[uuid].nodes, 0)
            + max(len(spread.l3) - needs[uuid].l3, 0)
            + len(spread.cores & shared)
            + bool(spread.remote_memory)
            for uuid, spread in spreads.items()
        }

    def _is_comparable(self, answer: Answer, trial: Answer, current: CpusByGuest, moved: frozenset[str]) -> bool:
        unplaced, before = ({left.target for left in each.unplaced} for each in (trial, answer))
        return trial.roles == answer.roles and unplaced <= before and moved.issuperset(self._moved(current, trial))

    def _moved(self, current: CpusByGuest, answer: Answer) -> list[str]:
        planned, possible = vcpus_by_guest(answer.wanted), answer.roles.vcpu
        return [
            uuid
            for uuid, own in current.items()
            for vcpus in (planned.get(uuid, {}),)
            if any(vcpu in vcpus and cpus <= possible and not cpus & vcpus[vcpu] for vcpu, cpus in own.items())
        ]

    def _compared(self, before: MeasuredAnswer, after: MeasuredAnswer) -> Objective:
        return between(self.context, self.asked, before, after)

    def _guest(self, uuid: str) -> Guest:
        return next(guest for guest in self.context.guests if guest.uuid == uuid)


def _move(guest: Guest, objective: Objective) -> Move:
    return Move(guest.target, tuple(term for term in objective.decisive() if term.before != term.after))


def _current(context: Context, guest: Guest) -> Mapping[int, CpuSet]:
    if context.placement is not None:
        return context.recorded(guest)
    current = context.current(guest)
    return current if all(cpus.bits.bit_count() == 1 for cpus in current.values()) else {}


def _are_beside(one: GuestSpread, other: GuestSpread) -> bool:
    return bool(one.l3 & other.l3 if one.l3 else one.nodes & other.nodes)


Estimate = tuple[float, ...]
"""Asked-for terms of each tier that follow from where vCPUs may run."""


@dataclass(frozen=True, slots=True)
class MoveEstimates:
    measure: ObjectiveMeasure
    weights: Mapping[str, float]
    free: "FreeCpus"
    places: Mapping[str, "GuestAllocation"]
    """Of guests that may have any CPUs of one node."""
    spreads: Mapping[str, GuestSpread]
    current: Mapping[str, CpuSet]

    @classmethod
    def of(
        cls,
        context: Context,
        measure: ObjectiveMeasure,
        asked: frozenset[str],
        measured: MeasuredAnswer,
        current: CpusByGuest,
    ) -> "MoveEstimates":
        """Raises NoFit where a vCPU has no CPU of its own, or a guest is unplaced: it would get the CPUs that another
        one leaves."""
        from pinner.planning.strategies.allocator.free_cpus import (
            FreeCpus,  # imports the packing, which most plans do not need
        )

        cpus = vcpus_by_guest(measured.answer.wanted)
        if measured.answer.unplaced:
            raise NoFit(len(measured.answer.unplaced), 0, "guests are unplaced")
        # A packing for a move is done by rules alone.
        free = FreeCpus(replace(context, replaced=frozenset(cpus)), measured.answer.roles.vcpu)
        guests = [guest for guest in context.guests if guest.uuid in cpus]
        places = {guest.uuid: free.take_pinned(guest, cpus[guest.uuid]) for guest in guests}
        packed = {guest.uuid: places[guest.uuid] for guest in guests if free.is_packed(guest)}
        every = weights(context.snapshot, context.request)
        own = {uuid: union(masks.values()) for uuid, masks in current.items()}
        return cls(
            measure, {name: every[name] for name in asked & SPREAD}, free, packed, measured.measured.spreads, own
        )

    def now(self) -> Estimate:
        return self._value(self.spreads)

    def after(self, guests: Sequence[Guest]) -> Estimate | None:
        """None where a guest does not fit, cannot be packed, or exchanges CPUs."""
        if any(guest.uuid not in self.places for guest in guests):
            return None
        packed = self.free.without(guests, self.places).pack(guests).cpus
        if len(packed) < len(guests) or self._exchanging(packed):
            return None
        moved = {guest.uuid: self._spread(guest, packed[guest.uuid]) for guest in guests}
        return self._value({**self.spreads, **moved})

    def _spread(self, guest: Guest, cpus: Sequence[int]) -> GuestSpread:
        return self.measure.places.spread(guest, [1 << cpu for cpu in cpus], [1.0] * len(cpus))

    def _exchanging(self, packed: Mapping[str, Sequence[int]]) -> bool:
        leaving = {uuid: self.current[uuid] for uuid in packed if uuid in self.current}
        getting = {uuid: CpuSet.of(cpus) for uuid, cpus in packed.items()}
        waits = {
            uuid: [other for other, cpus in leaving.items() if other != uuid and cpus & getting[uuid]]
            for uuid in packed
        }
        return bool(valid_order(waits)[1])

    def _value(self, spreads: Mapping[str, GuestSpread]) -> Estimate:
        terms = guests_terms(self.measure.needs, spreads)
        tiers: dict[int, float] = dict.fromkeys(range(1, COST), 0.0)
        for kind in TERMS:
            if kind.name in self.weights:
                tiers[kind.tier] += self.weights[kind.name] * terms[kind.name]
        return tuple(tiers.values())


_PRESSURE = ("extra_nodes", "shared_cores", "extra_l3")
_MIB_OF_GIB = 1024


@dataclass(frozen=True, slots=True)
class RepackRule:
    mark: float = 8.0
    after: timedelta = timedelta(minutes=15)
    """How long the pressure stays at the mark or above."""
    gain: float = 0.25
    """As a share of the decisive tier."""
    pause: timedelta = timedelta(days=1)


DEFAULT_RULE = RepackRule()


@dataclass(frozen=True, slots=True)
class RepackWatch:
    above_since: datetime | None = None
    paused_until: datetime | None = None

    def observed(self, rule: RepackRule, pressure: float, now: datetime) -> "RepackWatch":
        return replace(self, above_since=(self.above_since or now) if pressure >= rule.mark else None)

    def is_due(self, rule: RepackRule, now: datetime) -> bool:
        waited = self.above_since is not None and now - self.above_since >= rule.after
        return waited and (self.paused_until is None or now >= self.paused_until)

    def paused(self, rule: RepackRule, now: datetime) -> "RepackWatch":
        return replace(self, paused_until=now + rule.pause)


def pressure(objective: Objective) -> float:
    """By the terms' weights; remote_memory in GiB x distance."""
    terms = [term for term in objective.terms if term.asked]
    memory = fsum(term.weight * term.after for term in terms if term.name == "remote_memory")
    return fsum(term.weight * term.after for term in terms if term.name in _PRESSURE) + memory / _MIB_OF_GIB


def refusal(rule: RepackRule, plan: Plan) -> str:
    if plan.blocked:
        return plan.blocked
    if guests := exchanging(plan.changes):
        names = ", ".join(sorted(target.name for target in guests))
        return f"guests {names} exchange CPUs: there is no order in which each leaves its CPUs before another gets them"
    before, after = value_of(plan.objective.decisive())
    if before <= after:
        return "no move of a guest gains"
    if before - after < rule.gain * before:
        return f"it gains {before - after:g} of {before:g}, less than {rule.gain:.0%}"
    return ""
