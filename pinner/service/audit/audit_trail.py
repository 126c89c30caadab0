"""Verifies, anchors and exports the audit trails of the centre and of the agents."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from pinner.agent.protocol import Agent
from pinner.agent.trail.trail import MAX_PAGE
from pinner.model.errors import Busy, HostUnreachable, Invalid, NotFound, StoreUnavailable
from pinner.model.run.agent_audit import AgentAction, AgentRecord, Anchor, ChainHead, SignedHead, head_of_record
from pinner.model.run.verification import FindingKind, TrailFinding, Verification, verification
from pinner.service.audit.audit_check import AgentCheck, CentreCheck
from pinner.service.audit.audit_export import export_lines
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.runs import RunManager
from pinner.store.audit.chain import START
from pinner.store.repositories import Store

RECHECK_SECONDS = 1.0
"""A run under way can cause what the first check has found."""
PASSING = frozenset({FindingKind.UNREPORTED, FindingKind.FORGED, FindingKind.HEAD_MISSING})
"""A run under way also causes these: the trails are read one after the other."""

ANCHOR_VERSION = 1
ATTEMPTS = 50
RETRY_SECONDS = 0.1
GOES_ON = frozenset({AgentAction.RUN_CHANGE, AgentAction.RUN_RECOVER, AgentAction.RUN_END, AgentAction.KEY_SET})
"""Records that begin no action. The trail of a run that ends later at the centre is no finding."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """Of an export: the trails between the records that were removed and the heads of the anchor."""

    centre_start: ChainHead
    centre_end: ChainHead
    agent_starts: dict[str, ChainHead]
    anchor: Anchor


class AuditTrail:
    """Several threads may use it."""

    def __init__(self, hosts: Hosts, runs: RunManager, store: Store) -> None:
        self._hosts = hosts
        self._runs = runs
        self._store = store

    def verify(self, anchor: Anchor | None = None) -> Verification:
        first = self._verify(anchor)
        if all(finding.kind not in PASSING for finding in first.findings):
            return first
        time.sleep(RECHECK_SECONDS)
        again = self._verify(anchor)
        known = {_place(finding) for finding in first.findings}
        lasting = [second for second in again.findings if second.kind not in PASSING or _place(second) in known]
        return verification(again.records, again.head, again.agents, lasting, again.without_trail)

    def anchor(self) -> Anchor:
        return self._anchor(self._store.audit.head())

    def _anchor(self, centre: ChainHead) -> Anchor:
        heads = []
        for host in self._hosts.names():
            try:
                head = self._hosts.agent(host).audit_head(centre)
            except NotFound:
                continue
            self._store.agent_heads.add(head)
            heads.append(head)
        if not heads:
            raise NotFound("audit trail", "of an agent")
        return Anchor(ANCHOR_VERSION, tuple(heads))

    def export(self) -> Iterator[str]:
        """Raises Busy where an action begins at each attempt; the iterator raises it where old records are removed
        while they are exported."""
        self._runs.catch_up()
        received = set(self._stored_heads(self._hosts.names()))
        extent = self._settled_extent()
        ends = {head.host: head.seq for head in extent.anchor.heads}
        # A head that came after the anchor vouches for records that are not in the export. One that came before it has
        # a larger number only where the agent's trail was cut off.
        heads = [head for head in self._stored_heads(ends) if head.seq <= ends[head.host] or head in received]
        agents = (
            (host, record)
            for host, start in extent.agent_starts.items()
            for record in _all_records(self._hosts.agent(host), start, ends[host])
        )
        stream = self._store.audit.stream(extent.centre_start)
        centre = (record for record in stream if record["seq"] <= extent.centre_end.seq)
        return export_lines(extent.anchor, heads, agents, centre)

    def _stored_heads(self, hosts: Iterable[str]) -> Iterator[SignedHead]:
        return (head for host in hosts for head in self._store.agent_heads.of(host))

    def _settled_extent(self) -> _Extent:
        """Raises Busy."""
        for _ in range(ATTEMPTS):
            before = self.anchor()
            starts = {head.host: _start(self._hosts.agent(head.host)) for head in before.heads}
            centre_start, centre_end = self._store.audit.start(), self._store.audit.head()
            after = self._anchor(centre_end)
            same_hosts = list(starts) == [head.host for head in after.heads]
            if same_hosts and all(map(partial(self._is_settled, centre_end), before.heads, after.heads)):
                return _Extent(centre_start, centre_end, starts, after)
            time.sleep(RETRY_SECONDS)
        raise Busy("the audit trail", f"an action began at each of {ATTEMPTS} attempts to export it", overdue=False)

    def _is_settled(self, centre: ChainHead, before: SignedHead, after: SignedHead) -> bool:
        """Whether each action of the agent up to ``after`` has begun at the centre up to ``centre``.

        The centre records that an action begins before it asks the agent, and ``centre`` was read after ``before`` was
        signed. So only what is between the two heads can be missing.
        """
        if after.seq < before.seq or (centre.seq and after.centre != centre):
            return False
        newer = _records(self._hosts.agent(after.host), before.seq)
        between = itertools.takewhile(lambda record: record.seq <= after.seq, newer)
        return all(record.action in GOES_ON or _is_head_up_to(centre.seq, record) for record in between)

    def _verify(self, anchor: Anchor | None) -> Verification:
        with suppress(StoreUnavailable):  # a table was dropped; the checks below say which
            self._runs.catch_up()
        agents, unreachable = self._read_agents(anchor)
        under_way = {run.id for run in self._store.runs.running()}
        centre = CentreCheck(agents.values())
        checked = self._store.audit.verify(centre.observe)
        findings = list(centre.findings(checked))
        for host, agent in agents.items():
            # What the agent added meanwhile: the centre may have its records already.
            unreachable += self._read(host, agent, _read_newer)
            findings += agent.findings(under_way, centre.purged, centre.export)
        summaries = [agent.trail() for agent in agents.values()]
        every = [*findings, *unreachable]
        return verification(checked.records, checked.head, summaries, every, centre.without_trail)

    def _read_agents(self, anchor: Anchor | None) -> tuple[dict[str, AgentCheck], list[TrailFinding]]:
        agents: dict[str, AgentCheck] = {}
        anchors = anchor.heads if anchor else ()
        unreachable = [_unknown(head) for head in anchors if head.host not in self._hosts.names()]
        for host in self._hosts.names():
            heads = self._store.agent_heads.of(host)
            check = AgentCheck(host, heads, [head for head in anchors if head.host == host])
            with suppress(NotFound):  # a captured machine has no trail
                unreachable += self._read(host, check, _read)
                agents[host] = check
        return agents, unreachable

    def _read(self, host: str, check: AgentCheck, read: Callable[[Agent, AgentCheck], None]) -> Iterator[TrailFinding]:
        try:
            if check.reachable:
                read(self._hosts.agent(host), check)
        except (Busy, HostUnreachable, StoreUnavailable, Invalid) as error:
            check.reachable = False
            text = f"the trail of the agent on {host} is not verified: {error}"
            yield TrailFinding(FindingKind.UNREACHABLE, "agent", host, 0, "", text)


def _read(agent: Agent, check: AgentCheck) -> None:
    check.add_head(agent.audit_head(None))
    check.add_agent(_all_records(agent, _start(agent)))
    check.match.end_of_first_part()


def _read_newer(agent: Agent, check: AgentCheck) -> None:
    check.add_agent(_records(agent, check.length))


def _start(agent: Agent) -> ChainHead:
    first = next(iter(agent.audit_records(0, 1)), None)
    return ChainHead(first.seq - 1, first.previous) if first else START


def _all_records(agent: Agent, start: ChainHead, end: float = inf) -> Iterator[AgentRecord]:
    """Those after ``start``, up to the number ``end``. Raises Busy, after them, where old records were removed
    meanwhile."""
    yield from itertools.takewhile(lambda record: record.seq <= end, _records(agent, 0))
    if _start(agent) != start:
        raise Busy("the agent's audit trail", "its old records were removed meanwhile", overdue=False)


def _records(agent: Agent, after: int) -> Iterator[AgentRecord]:
    while records := agent.audit_records(after, MAX_PAGE):
        yield from records
        after = records[-1].seq


def _is_head_up_to(seq: int, record: AgentRecord) -> bool:
    head = head_of_record(record) if record.action == AgentAction.CENTRE_HEAD else None
    return head is not None and head.seq <= seq


def _place(finding: TrailFinding) -> tuple[object, ...]:
    return finding.kind, finding.host, finding.record, finding.run


def _unknown(head: SignedHead) -> TrailFinding:
    text = f"the anchor has the trail of the agent on {head.host}, and this service has no such host"
    return TrailFinding(FindingKind.CUT, "agent", head.host, 0, "", text)
