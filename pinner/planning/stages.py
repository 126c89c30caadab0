"""The stages of a plan: each returns its result, or raises why there is no plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pinner.model.change import PlannedChange
from pinner.model.plan.objective import Objective
from pinner.model.plan.plan import GuestMemory, Move, Rebalance
from pinner.planning import curing, warnings
from pinner.planning.changes import changes, guests_memory
from pinner.planning.moves import Improver
from pinner.planning.objective import MeasuredAnswer, between, harmed, of_answer, of_plan
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.request.context import Context
from pinner.planning.strategies import per_flavor, rules
from pinner.planning.strategies.strategy import Answer, Strategy, asked_terms


@dataclass(frozen=True, slots=True)
class Choice:
    chosen: MeasuredAnswer
    staying: Answer
    """Leaves well placed guests where they are: the chosen answer, except for a rebalance."""
    rebalance: Rebalance | None


@dataclass(frozen=True, slots=True)
class Diff:
    changes: tuple[PlannedChange, ...]
    memory: tuple[GuestMemory, ...]
    objective: Objective


@dataclass(frozen=True, slots=True)
class Stages:
    context: Context
    strategies: Mapping[str, Strategy]
    measure: ObjectiveMeasure

    @classmethod
    def of(cls, context: Context, strategies: Mapping[str, Strategy]) -> "Stages":
        return cls(context, strategies, ObjectiveMeasure.of(context.snapshot, context.request.busy_threshold))

    @property
    def _asked(self) -> frozenset[str]:
        return asked_terms(self.strategies[self.context.request.strategy])

    def place(self) -> MeasuredAnswer:
        """Raises NoFit, and Invalid for an answer that breaks a rule."""
        return self._placed(self.context)

    def choose(self, anew: MeasuredAnswer) -> Choice:
        """A rebalance's answer counts only where it lowers the objective. No guest loses its place to an unplaced one:
        repeated rebalances would swap the two for ever."""
        context = self.context
        if not context.request.rebalance:
            return Choice(anew, anew.answer, None)
        as_now = self._placed(replace(context, request=replace(context.request, rebalance=False)))
        answer, stay = anew.answer, as_now.answer
        cpus_now = {want.target: want.cpus for want in stay.wanted}
        moved = [want.target for want in answer.wanted if cpus_now.get(want.target) != want.cpus]
        objective = between(context, self._asked, as_now, anew)
        unplaced, unplaced_if_staying = ({one.target for one in side.unplaced} for side in (answer, stay))
        taken = unplaced <= unplaced_if_staying and objective.gain > 0
        threads = sum(len(context.threads.get(target, ())) for target in moved)
        guests = len({target.owner for target in moved if target.kind == "vcpu"})
        terms = tuple(term for term in objective.decisive() if term.before != term.after)
        return Choice(anew if taken else as_now, stay, Rebalance(guests, threads, objective.gain, taken, terms))

    def improve(self, measured: MeasuredAnswer, *, repacks: bool) -> tuple[MeasuredAnswer, tuple[Move, ...]]:
        context = self.context
        if context.request.placement:
            return measured, ()  # nothing else moves
        improver = Improver(context, partial(per_flavor.place, strategies=self.strategies), self.measure, self._asked)
        better, moves = improver.repacked(measured) if repacks else improver.improved(measured)
        if moves:
            rules.check(context.request.strategy, better.answer, context)
        return better, moves

    def diff(self, measured: MeasuredAnswer, staying: Answer) -> Diff:
        context, wanted = self.context, measured.answer.wanted
        needed, memory = changes(context, wanted), guests_memory(context.snapshot, wanted)
        return Diff(needed, memory, of_plan(self.measure, context, self._asked, measured, staying, needed, memory))

    def is_harmful(self, placed: MeasuredAnswer | None = None) -> bool:
        """Of a plan in which no guest moves for another one: a judgement in half the time of such a plan."""
        choice = self.choose(placed or self.place())
        return bool(harmed(of_answer(self.measure, self.context, self._asked, choice.chosen, choice.staying)))

    def warn(self, measured: MeasuredAnswer, diff: Diff) -> tuple[str, ...]:
        about_host = warnings.of_host(self.context, self.strategies, measured.answer.roles)
        return (*about_host, *warnings.of_plan(self.context, measured, diff.objective, diff.changes))

    def block(self, answer: Answer) -> str:
        return self.context.allocatable.blocked or answer.blocked or curing.nova_unknown(self.context.snapshot)

    def _placed(self, context: Context) -> MeasuredAnswer:
        answer = per_flavor.place(context, self.strategies)
        rules.check(context.request.strategy, answer, context)
        return MeasuredAnswer.of(answer, self.measure, self.context)
