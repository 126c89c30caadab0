"""A plan for the whole host, and its apply."""

from dataclasses import replace

from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu, vhost
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.run.journal import Run
from pinner.store.journal.journal import StoredJournal


def the_plan(host: InMemoryHost) -> Plan:
    wanted = {emulator(): "1", vcpu(0): "2-7", vcpu(1): "2-7", vhost(400): "1", daemon(500): "0"}
    return host.plan(*(host.change(target, after) for target, after in wanted.items()))


def wanted(plan: Plan) -> Plan:
    """The plan whose wanted affinities are those of its changes."""
    return replace(plan, wanted=tuple(Wanted(change.target, change.after, "so") for change in plan.changes))


def apply(plan: Plan, host: InMemoryHost, journal: StoredJournal, run: Run | None = None) -> Run:
    return executor.apply(plan, run or make_run(), host, journal, lambda: NOON, lambda entry, total: None)


def states(journal: StoredJournal, run: str = "run-1") -> list[str]:
    return [entry.state for entry in journal.entries(run)]
