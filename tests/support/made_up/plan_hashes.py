"""One hash for all plans of a generated host: a change of any byte of any plan changes it.

The solver is not asked: another version of it may find another placement.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from support.hosts import applied
from support.made_up.generated_hosts import GeneratedHost, generated
from support.made_up.planned_hosts import host_of, newcomers

from pinner import codec
from pinner.model.errors import PinnerError
from pinner.model.plan.request import FIXES, Request
from pinner.model.snapshot import Snapshot
from pinner.planning.packing import program
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement, repack

SEEDS = range(280)
"""Each has a host with guests of friendly sizes, and one with guests of any size."""
REMEDIES = ("coalescing", "governors", "guest-rps", "irqbalance", "irqs", "queues", "rings", "rps", "sysctls")


def hosts() -> Iterator[tuple[str, GeneratedHost]]:
    """All 560 hosts by name."""
    for seed in SEEDS:
        for friendly in (True, False):
            yield f"{seed}{'f' if friendly else 'a'}", generated(seed, friendly=friendly)


def hash_of(made_up: GeneratedHost) -> str:
    """The hash of the host's plans with every strategy."""
    host, found = host_of(made_up), hashlib.sha256()
    with patch.object(program, "installed", return_value=None):
        for request in _requests(made_up, host):
            for text in _texts(made_up, host, request):
                found.update(text)
    return found.hexdigest()[:10]


def _requests(made_up: GeneratedHost, host: Snapshot) -> Iterator[Request]:
    """A request for each strategy, and one that only cures findings."""
    seed = made_up.seed
    remedies = REMEDIES if host.rings is not None and seed % 3 == 0 else ()
    for strategy in ("shared-pool", "numa-local", "isolated"):
        yield Request(
            strategy,
            remedies=remedies,
            isolation="live" if seed % 2 else "boot",
            smt=("prefer", "isolate", "require")[seed % 3],
            nova_emulators=seed % 5 == 0,
            excluded_guests=("g1",) if seed % 7 == 0 else (),
            guests=("g0", "g2") if seed % 11 == 0 and len(host.guests) > 2 else (),
            with_processes=seed % 22 == 0,
            moves=(2, 0, 5)[seed % 3],
        )
    yield Request("optimal")
    if host.rings is not None:
        yield Request(fix=tuple(FIXES))


def _texts(made_up: GeneratedHost, host: Snapshot, request: Request) -> Iterator[bytes]:
    """The plans of one request: first, second, after guests came and went, as a rebalance, and as a re-pack."""
    try:
        first = plan(host, "snapshot-1", request)
        yield codec.dump(first)
        after = applied(host, first)
        yield codec.dump(plan(after, "snapshot-2", request))
        if request.fix:
            return
        kept = tuple(guest for number, guest in enumerate(after.guests) if number % 4 != 3)
        later = replace(after, guests=(*kept, *newcomers(made_up, host, 2)))
        placement = record(first, host, None)
        yield codec.dump(plan_from_placement(later, "snapshot-3", request, placement))
        yield codec.dump(plan(later, "snapshot-3", replace(request, rebalance=True)))
        yield codec.dump(repack(replace(later, guests=kept), "snapshot-4", request, placement))
    except PinnerError as error:
        yield f"{error.code} {error}".encode()
