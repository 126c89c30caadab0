"""Why a plan gives a guest its CPUs: each other place is planned, with this guest only there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.questions import Alternative, AlternativeKind, Explanation
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.questions.whatif import difference, moved_guests, planned
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Strategy, installed, require_known

_UNPLACED = "unplaced_guests"
_MOST = 64


def explain_placement(snapshot: Snapshot, request: Request, name: str) -> Explanation:
    """``name`` may be a UUID. Raises like Snapshot.running_guest and planner.plan."""
    if request.placement:
        raise Invalid("plan", request.strategy, "a plan of a strategy; a placement by hand says itself where guests go")
    guest = snapshot.running_guest(name)
    require_known(request.strategy, known := installed())
    context = Context.of(snapshot, request)
    question = _Question(guest, *planner.settled(known, context, planner.make), known)
    if not (cpus := _vcpus(question.plan, guest)):
        return Explanation(guest.target, cpus, (), tuple(question.reasons()), planned(question.plan))
    nodes = tuple(node.id for node in snapshot.topology.nodes if node.cpus & cpus)
    others = (*question.elsewhere(cpus), question.as_now())
    return Explanation(guest.target, cpus, nodes, tuple(question.reasons()), planned(question.plan), others)


@dataclass(frozen=True, slots=True)
class _Question:
    guest: Guest
    context: Context
    plan: Plan
    strategies: Mapping[str, Strategy]

    def reasons(self) -> Iterator[str]:
        target = self.guest.target
        why_not = [each.why for each in (*self.plan.unplaced, *self.plan.skipped) if each.target == target]
        wanted = [want.reason for want in self.plan.wanted if _is_vcpu(want.target, self.guest)]
        outside = [] if wanted or why_not else ["the request does not name the guest"]
        yield from dict.fromkeys((*wanted, *why_not, *outside))

    def elsewhere(self, cpus: CpuSet) -> Iterator[Alternative]:
        """Places where the guest is not, or not alone, if it now uses these CPUs."""
        topology = self.context.snapshot.topology
        places: list[tuple[AlternativeKind, int | None, CpuSet]] = [
            *(("node", node, here) for node, here in self.context.allocatable.nodes.items() if len(topology.nodes) > 1),
            *(("l3", None, domain) for domain in topology.l3_domains if len(topology.l3_domains) > 1 and domain),
        ]
        known: set[CpuSet] = set()
        for kind, node, here in places[:_MOST]:
            if not cpus <= here and here not in known:
                known.add(here)
                yield self._at(kind, node, here)

    def _at(self, kind: AlternativeKind, node: int | None, here: CpuSet) -> Alternative:
        context = replace(self.context, cores={**self.context.cores, self.guest.uuid: here})
        target = self.guest.target
        if not here & self.plan.roles.vcpu:
            return Alternative(kind, node, here, impossible=f"the vCPU set ({self.plan.roles.vcpu}) has no CPU there")
        try:
            other = planner.make(self.strategies, context)
        except (Invalid, NoFit, NovaConflict) as error:
            return Alternative(kind, node, here, impossible=str(error))
        why = next((left.why for left in other.unplaced if left.target == target), "")
        used = _vcpus(other, self.guest)
        if why or not used or not used <= here:
            return Alternative(kind, node, here, impossible=why or "the strategy places the guest elsewhere")
        unplaced = {left.target for left in self.plan.unplaced}
        return Alternative(
            kind,
            node,
            used,
            difference(planned(other), planned(self.plan)),
            tuple(each for each in moved_guests(self.plan, other) if each != target),
            tuple(left for left in other.unplaced if left.target not in unplaced),
        )

    def as_now(self) -> Alternative:
        masks_of_plan = {
            thread.tid: want.cpus
            for want in self.plan.wanted
            if want.target.owner != self.guest.uuid
            for thread in self.context.threads.get(want.target, ())
        }
        staying = {thread.tid for threads in self.guest.threads_by_target.values() for thread in threads}
        masks = {tid: cpus for tid, cpus in masks_of_plan.items() if tid not in staying}
        planned_terms = planned(self.plan)
        measure = ObjectiveMeasure.of(self.context.snapshot, self.context.request.busy_threshold)
        terms_now = {_UNPLACED: planned_terms[_UNPLACED], **measure.values(masks)}
        cpus = union(self.guest.vcpu_affinities.values())
        return Alternative("now", None, cpus, difference(terms_now, planned_terms))


def _is_vcpu(target: Target, guest: Guest) -> bool:
    return target.kind == "vcpu" and target.owner == guest.uuid


def _vcpus(plan: Plan, guest: Guest) -> CpuSet:
    return union(want.cpus for want in plan.wanted if _is_vcpu(want.target, guest))
