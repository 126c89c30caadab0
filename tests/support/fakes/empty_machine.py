"""The agent of a machine in memory, which is empty at first, and the records of its trail."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from support.fakes.in_memory_host import InMemoryHost
from support.values import NOON, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile, CallLimit
from pinner.model.plan.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.store.journal.journal import StoredJournal


def agent_of(
    journal: StoredJournal,
    host: InMemoryHost,
    take: Callable[[float], Snapshot] = lambda _: make_snapshot(),
    clock: Callable[[], datetime] = lambda: NOON,
    idle_limit: CallLimit | None = None,
) -> LocalAgent:
    with tempfile.TemporaryDirectory() as folder:
        trail = AgentTrailFile("h1", journal.chain, SigningKey(Path(folder) / "signing.key"), clock)
    return LocalAgent(take, host, journal, clock, HostEventQueue(clock), trail, name="h1", idle_limit=idle_limit)


def results(journal: StoredJournal) -> list[tuple[str, str]]:
    """The action and the result of each record in the agent's trail after its first, which names the key."""
    return [(record.action, record.result) for record in journal.chain.records(1, 1000)]


def current(plan: Plan) -> Plan:
    return replace(plan, basis=replace(plan.basis, fingerprint=InMemoryHost().fingerprint()))
