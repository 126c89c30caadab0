"""Retention of an agent's audit trail: the agent exports its old records itself, because it trusts no caller."""

import itertools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pinner.agent.trail.trail import MAX_RECORDS, AgentTrailFile
from pinner.model.run.agent_audit import AgentRecord, Anchor
from pinner.service.audit.audit_export import export_lines
from pinner.service.upkeep.retention import Limits
from pinner.store.audit.agent_chain import AgentChain
from pinner.store.audit.durable_file import write_durably

AGES = 2
"""The agent keeps its records for this many times the age at which the centre may export. So every export of the centre
has the agent's records that belong to it."""


def cut_chain(chain: AgentChain, trail: AgentTrailFile, folder: Path, limits: Limits, now: datetime) -> Path | None:
    """Write the old records to a file in the agent's own folder, and remove them from the chain. None: no record is old
    enough. Raises StoreUnavailable."""
    last = chain.old(now - AGES * limits.audit, now)
    if last is None:
        return None
    records = itertools.takewhile(lambda record: record.seq <= last.seq, _records(chain))
    first = next(records)
    head = trail.head(None)
    path = folder / f"chain-{first.seq}-{last.seq}.jsonl.gz"
    due = ((head.host, record) for record in itertools.chain([first], records))
    write_durably(path, export_lines(Anchor(1, (head,)), (), due, ()))
    chain.cut(last.seq, now)
    return path


def _records(chain: AgentChain) -> Iterator[AgentRecord]:
    after = 0
    while records := chain.records(after, MAX_RECORDS):
        yield from records
        after = records[-1].seq
