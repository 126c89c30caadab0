"""Verifies, anchors and exports the audit trails of the centre and of the agents."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from pinner.agent.protocol import Agent
from pinner.agent.trail.trail import MAX_PAGE
from pinner.model.errors import Busy, HostUnreachable, Invalid, NotFound, StoreUnavailable
from pinner.model.run.agent_audit import AgentAction, AgentRecord, Anchor, SignedHead, head_of_record
from pinner.model.run.verification import FindingKind, TrailFinding, Verification, verification
from pinner.service.audit.audit_check import AgentCheck, CentreCheck
from pinner.service.audit.audit_export import export_lines
from pinner.service.hosts.hosts import Hosts
from pinner.service.runs.runs import RunManager
from pinner.store.repositories import Store

RECHECK_SECONDS = 1.0
"""A run under way can cause what the first check has found."""
PASSING = frozenset({FindingKind.UNREPORTED, FindingKind.FORGED, FindingKind.HEAD_MISSING})
"""A run under way also causes these: the trails are read one after the other."""

ANCHOR_VERSION = 1
QUIET_ATTEMPTS = 50
QUIET_SECONDS = 0.1


class AuditTrail:
    """Several threads may use it."""

    def __init__(self, hosts: Hosts, runs: RunManager, store: Store) -> None:
        self._hosts = hosts
        self._runs = runs
        self._store = store

    def verify(self, anchor: Anchor | None) -> Verification:
        first = self._verify(anchor)
        if all(finding.kind not in PASSING for finding in first.findings):
            return first
        time.sleep(RECHECK_SECONDS)
        again = self._verify(anchor)
        known = {_place(finding) for finding in first.findings}
        lasting = [second for second in again.findings if second.kind not in PASSING or _place(second) in known]
        return verification(again.records, again.head, again.agents, lasting)

    def anchor(self) -> Anchor:
        centre = self._store.audit.head()
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
        anchor = self._quiet_anchor()
        # A head that came after the anchor vouches for records that are not in the export.
        heads = [
            stored
            for head in anchor.heads
            for stored in self._store.agent_heads.of(head.host)
            if stored.seq <= head.seq
        ]
        agents = ((head.host, record) for head in anchor.heads for record in self._up_to(head))
        last = max(head.centre_seq for head in anchor.heads)
        centre = (record for record in self._store.audit.stream() if record["seq"] <= last)
        return export_lines(anchor, heads, agents, centre)

    def _quiet_anchor(self) -> Anchor:
        """Both trails have the same actions where no agent did anything meanwhile; after some attempts, any anchor will
        do."""
        for _ in range(QUIET_ATTEMPTS):
            before, after = self.anchor(), self.anchor()
            if all(map(self._is_quiet, before.heads, after.heads)):
                break
            time.sleep(QUIET_SECONDS)
        return after

    def _is_quiet(self, before: SignedHead, after: SignedHead) -> bool:
        """Whether the agent has only heads of the centre between the two, none of them younger than the one that it got
        with the second."""
        between = self._hosts.agent(after.host).audit_records(before.seq, MAX_PAGE)
        return all(_is_head_up_to(after.centre_seq, record) for record in between if record.seq <= after.seq)

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
            findings += agent.findings(under_way, centre.purged)
        summaries = [agent.trail() for agent in agents.values()]
        return verification(checked.records, checked.head, summaries, [*findings, *unreachable])

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

    def _up_to(self, head: SignedHead) -> Iterator[AgentRecord]:
        for record in _records(self._hosts.agent(head.host), 0):
            if record.seq > head.seq:
                return
            yield record


def _read(agent: Agent, check: AgentCheck) -> None:
    check.add_head(agent.audit_head(None))
    check.add_agent(_records(agent, 0))
    check.match.end_of_first_part()


def _read_newer(agent: Agent, check: AgentCheck) -> None:
    check.add_agent(_records(agent, check.length))


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
