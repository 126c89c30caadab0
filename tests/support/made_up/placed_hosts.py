"""Hosts with a placement: which guests a plan moves."""

from collections.abc import Iterable
from dataclasses import replace

from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Process
from pinner.model.plan.plan import Plan
from pinner.model.snapshot import Snapshot


def moved(made: Plan) -> set[str]:
    return {change.target.name for change in made.changes}


def with_guests(host: Snapshot, guests: Iterable[Guest]) -> Snapshot:
    return replace(host, guests=tuple(guests))


def idle(host: Snapshot, *others: Process) -> Snapshot:
    """The same host without measured loads, with the processes ``others`` if given."""
    processes = others or tuple(replace(each, load=0.0) for each in host.processes)
    return replace(host, sample_seconds=0.0, processes=processes)
