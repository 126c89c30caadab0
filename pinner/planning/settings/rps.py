"""Receive packet steering (RPS): no queue names CPUs of guests. Where none is left, RPS is off, and the CPU of the
interrupt processes the packets."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.settings.cards import RpsQueue
from pinner.model.states import State, cpus_of
from pinner.planning.request.context import Context
from pinner.planning.settings.irqs import guest_cpus, role_cpus
from pinner.planning.settings.row import Additions, PlanRow


def _additions(plan: Plan, context: Context) -> Additions:
    return Additions(tuple(_wanted(context.snapshot.rps or (), guest_cpus(context, plan))))


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    after = cpus_of(change.after)
    if added := after - cpus_of(change.before):
        return f"CPUs {added} were not among its CPUs before, and a plan only takes CPUs away"
    # A vCPU that stays had these CPUs with RPS before, so the change makes nothing worse.
    if theirs := after & role_cpus(context, plan.roles):
        return f"CPUs {theirs} are for guests"
    return ""


def _wanted(queues: tuple[RpsQueue, ...], guests: CpuSet) -> Iterator[Wanted]:
    for queue in queues:
        remaining = queue.cpus - guests
        why = f"takes the CPUs of guests ({queue.cpus & guests}) out of RPS" if remaining != queue.cpus else "in place"
        yield Wanted(queue.target, remaining, why, remaining)


def _commands(target: Target, state: State) -> Iterator[str]:
    mask = cpus_of(state).mask()
    yield f"echo {mask} > /sys/class/net/{quote(target.name)}/queues/rx-{target.part}/rps_cpus"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "RPS",
    "a host whose RPS is known; this snapshot does not have it, so take a new one",
)
