"""Checks the centre's audit trail and the agents' trails against each other. First each agent's trail is read, then the
centre's, then what the agents have added: so the centre must have everything of the first part, and the agent
everything of the centre."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pinner.agent.trail.signing import is_signed
from pinner.model.errors import PinnerError, WorsePlan, shown
from pinner.model.run.agent_audit import (
    AgentAction,
    AgentRecord,
    ChainHead,
    SignedHead,
    head_of_record,
    named_head,
    named_purge,
)
from pinner.model.run.audit import AuditAction, ChainCheck
from pinner.model.run.verification import MAX_FINDINGS, AgentTrail, FindingKind, TrailFinding
from pinner.service.audit.audit_match import BEGINS, EXPORTED_AGE, RUN_ACTIONS, TrailMatch
from pinner.store.audit import chain

_CODE = "|".join({PinnerError.code, *(kind.code for kind in PinnerError.__subclasses__())})
_ANY = re.compile(".*", re.DOTALL)
_RESULTS = (
    dict.fromkeys((action.value for action in AuditAction), _ANY)
    | dict.fromkeys(BEGINS, re.compile(f"started|refused: ({_CODE})"))
    | {AuditAction.GUEST_EXCLUDE.value: re.compile(f"(excluded|included)(: started|: failed, ({_CODE}))?")}
)
"""The results that pinner writes, by action; beside them _ALLOWED, where the subject is a plan alone."""
_ALLOWED = (AuditAction.RUN_APPLY, f"allowed: {WorsePlan.code}")


@dataclass(frozen=True, slots=True)
class Claim:
    head: ChainHead
    source: str


class AgentCheck:
    def __init__(self, host: str, heads: Iterable[SignedHead], anchors: Iterable[SignedHead], key: str = "") -> None:
        """The centre received ``heads``; the caller kept ``anchors``, and perhaps the agent's ``key``."""
        self.host = host
        self._heads = list(heads)
        self._anchors = list(anchors)
        self._key = key
        self.match = TrailMatch(host)
        self._hashes = {head.seq: "" for head in (*self._heads, *self._anchors)}
        self._end = chain.START
        self.length = 0
        self._start: ChainHead | None = None
        self._checks: list[ChainCheck] = []
        self._keys: list[tuple[str, int]] = []
        self._cuts: set[ChainHead] = set()
        self._named: list[tuple[ChainHead, int]] = []
        self.reachable = True
        self.head: SignedHead | None = None

    def add_agent(self, records: Iterable[AgentRecord]) -> None:
        records = iter(records)
        first = next(records, None)
        if first is None:
            return
        if self._start is None:
            self._start = self._end = ChainHead(first.seq - 1, first.previous)
        rows = (_row(record) for record in itertools.chain([first], records))
        newest = self.signed_head
        checked = chain.check(rows, self._end, lambda: newest.seq if newest else 0, self._observe)
        self._checks.append(checked)
        self._end = ChainHead(self._end.seq + checked.records, checked.head)

    def add_head(self, head: SignedHead) -> None:
        self.head = head
        self._heads.append(head)
        self._hashes.setdefault(head.seq, "")

    @property
    def signed_head(self) -> SignedHead | None:
        """None for a wrong signature or key, too."""
        head = self.head
        return head if head and self._key in ("", head.key) and is_signed(head) else None

    def add_centre(self, record: Mapping[str, Any]) -> None:
        if record["action"] == AuditAction.RUN_END and (head := named_head(str(record["after"]))):
            self._named.append((head, record["seq"]))
        self.match.add_centre(record)

    def trail(self) -> AgentTrail:
        return AgentTrail(self.host, sum(check.records for check in self._checks), self.head)

    def claims(self) -> Iterator[Claim]:
        for number, (digest, seq) in self.match.seen.items():
            yield Claim(ChainHead(number, digest), f"record {seq} of the agent on {self.host}")
        for head in self._heads:
            if head.centre_seq and is_signed(head):
                yield Claim(head.centre, f"the signed head {head.seq} of the agent on {self.host}")
        for head in self._anchors:
            if head.centre_seq:
                yield Claim(head.centre, "the anchor")

    def findings(self, under_way: Collection[str], purged: int, export: int) -> Iterator[TrailFinding]:
        """See TrailMatch.findings. A kind has at most MAX_FINDINGS findings."""
        yield from self._of_keys()
        yield from self._of_heads()
        if self.reachable:
            yield from self._of_chain()
            yield from _limited(self.match.findings(under_way, purged, export, self._now))

    def young_head(self, purged: int, export: int) -> int:
        """See TrailMatch; 0 also where the trail was not read to its end."""
        return self.match.young_head(purged, export, self._now) if self.reachable else 0

    @property
    def _now(self) -> str:
        return self.head.at if self.head else ""

    def _observe(self, row: chain.Fields) -> None:
        record = AgentRecord(**row)
        self.length = record.seq
        if record.seq in self._hashes:
            self._hashes[record.seq] = record.hash
        if record.action == AgentAction.KEY_SET:
            self._keys.append((record.after, record.seq))
        if record.action == AgentAction.CHAIN_CUT and (head := head_of_record(record)):
            self._cuts.add(head)
        self.match.add_agent(record)

    def _of_chain(self) -> Iterator[TrailFinding]:
        start = self._start or chain.START
        for check in self._checks:
            if not check.ok:
                yield self._finding(FindingKind.CHANGED, check.broken, f"the trail of the agent: {check.why}")
                break
        if start.seq and start not in self._cuts:
            text = f"the trail of the agent begins at record {start.seq + 1}, and no record says who removed the others"
            yield self._finding(FindingKind.CUT, start.seq, text)
        claims = [Claim(ChainHead(head.seq, head.hash), "a signed head in the centre") for head in self._heads]
        claims += [Claim(ChainHead(head.seq, head.hash), "the anchor") for head in self._anchors]
        kept = [claim for claim in claims if claim.head.seq > start.seq]
        for kind, seq, text in contradictions(
            kept, self.length, self._hashes, f"the trail of the agent on {self.host}"
        ):
            yield self._finding(kind, seq, text)
        for first, second in self.match.contradictions[:1]:
            text = f"records {first} and {second} of the agent have two hashes for one record of the centre"
            yield TrailFinding(FindingKind.REWRITTEN, "centre", self.host, 0, "", f"the trail was rewritten: {text}")

    def _of_keys(self) -> Iterator[TrailFinding]:
        keys = [*self._keys, *((head.key, head.seq) for head in (*self._anchors, *self._heads))]
        present = self._key or (self.head.key if self.head else keys[-1][0] if keys else "")
        other = next((pair for pair in keys if pair[0] != present), None)
        if other is not None:
            text = (
                f"the agent on {self.host} signed record {other[1]} with the key {other[0]}, but its key is {present}"
            )
            yield self._finding(FindingKind.KEY_REPLACED, other[1], text)

    def _of_heads(self) -> Iterator[TrailFinding]:
        for head in (*self._anchors, *self._heads):
            if head.host != self.host or not is_signed(head):
                text = f"the signed head {head.seq} of the agent on {self.host} does not fit its signature"
                yield self._finding(FindingKind.BAD_SIGNATURE, head.seq, text)
                break
        stored = {(head.seq, head.hash) for head in self._heads}
        for named, seq in self._named:
            if (named.seq, named.hash) not in stored:
                text = f"record {seq} of the centre names the signed head {named.seq} of the agent, which is missing"
                yield TrailFinding(FindingKind.HEAD_MISSING, "centre", self.host, seq, "", text)
                break

    def _finding(self, kind: FindingKind, seq: int, text: str) -> TrailFinding:
        return TrailFinding(kind, "agent", self.host, seq, "", text)


class CentreCheck:
    def __init__(self, agents: Iterable[AgentCheck]) -> None:
        self._agents = {agent.host: agent for agent in agents}
        self._claims: list[Claim] = [claim for agent in self._agents.values() for claim in agent.claims()]
        self._hashes = {claim.head.seq: "" for claim in self._claims}
        self.length = 0
        self.without_trail = 0
        """The number of records of actions that an agent records, on hosts without an agent."""
        self._start = chain.START
        self._exports: dict[ChainHead, int] = {}
        """The last deleted record of each export, with the number of the record that names it."""
        self._invented: tuple[int, str] | None = None
        """The first record that pinner never writes, and what it says."""

    def observe(self, record: Mapping[str, Any]) -> None:
        seq = record["seq"]
        if not self.length:
            self._start = ChainHead(seq - 1, record["previous"])
        if self._invented is None and not _is_written(record["action"], record["subject"], record["result"]):
            self._invented = seq, f"{shown(record['action'])!a} with the result {shown(record['result'])!a}"
        if record["action"] == AuditAction.AUDIT_EXPORT and (last := named_purge(str(record["after"]))):
            self._exports.setdefault(last, seq)
        self.length = seq
        if seq in self._hashes:
            self._hashes[seq] = record["hash"]
        if agent := self._agents.get(record["host"]):
            agent.add_centre(record)
        elif record["action"] in (*RUN_ACTIONS, AuditAction.GUEST_EXCLUDE):
            self.without_trail += 1

    @property
    def purged(self) -> int:
        return self._start.seq

    @property
    def export(self) -> int:
        """The number of the record that names the last removed one; 0: none does."""
        return self._exports.get(self._start, 0)

    def _why_cut(self) -> str:
        """Only records of a day's age or more are exported. An agent may lack later heads: it was off."""
        export = self.export
        if not export:
            return "no record names the export before it"
        for agent in self._agents.values():
            if seen := agent.young_head(self.purged, export):
                return (
                    f"record {export} says that it was exported, but the agent on {agent.host} had seen no head after "
                    f"record {seen} until less than {EXPORTED_AGE // timedelta(hours=1)} hours before that"
                )
        return ""

    def findings(self, check: ChainCheck) -> Iterator[TrailFinding]:
        if not check.ok:
            yield TrailFinding(FindingKind.CHANGED, "centre", "", check.broken, "", check.why)
        elif self.purged and (why := self._why_cut()):
            text = f"the trail of the centre begins at record {self.purged + 1}, and {why}"
            yield TrailFinding(FindingKind.CUT, "centre", "", self.purged, "", text)
        if self._invented:
            seq, what = self._invented
            text = f"record {seq} was forged or changed: pinner never writes {what}"
            yield TrailFinding(FindingKind.FORGED, "centre", "", seq, "", text)
        kept = [claim for claim in self._claims if claim.head.seq > self.purged]
        for kind, seq, text in contradictions(kept, self.length, self._hashes, "the trail of the centre"):
            yield TrailFinding(kind, "centre", "", seq, "", text)


def _is_written(action: object, subject: object, result: object) -> bool:
    """True also where one is no text: it was changed, and the check of its hash says so."""
    if not (isinstance(action, str) and isinstance(subject, str) and isinstance(result, str)):
        return True
    if (action, result) == _ALLOWED:
        return " of " not in subject
    return action in _RESULTS and _RESULTS[action].fullmatch(result) is not None


def contradictions(
    claims: Iterable[Claim], length: int, hashes: Mapping[int, str], trail: str
) -> Iterator[tuple[FindingKind, int, str]]:
    """At most one finding of each kind. ``hashes`` is empty for a record that the chain lacks."""
    cut = max((claim for claim in claims if claim.head.seq > length), key=lambda claim: claim.head.seq, default=None)
    if cut is not None:
        now = f"ends at record {length}" if length else "is empty"
        why = "its last records were cut off, it was replaced, or an older copy of it was put back"
        yield FindingKind.CUT, length + 1, f"{trail} {now}, but {cut.source} shows that it had {cut.head.seq}: {why}"
    other = [claim for claim in claims if claim.head.seq <= length and hashes.get(claim.head.seq) != claim.head.hash]
    if other:
        first = min(other, key=lambda claim: claim.head.seq)
        seq = first.head.seq
        text = f"record {seq} of {trail} is not the one that {first.source} shows: it was rewritten there or before"
        yield FindingKind.REWRITTEN, seq, text


def _limited(findings: Iterable[TrailFinding]) -> Iterator[TrailFinding]:
    by_kind: dict[FindingKind, list[TrailFinding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind, of_kind in by_kind.items():
        yield from of_kind[:MAX_FINDINGS]
        if len(of_kind) > MAX_FINDINGS:
            first = of_kind[0]
            text = f"and {len(of_kind) - MAX_FINDINGS} more findings of the kind {kind.value}"
            yield TrailFinding(kind, first.trail, first.host, 0, "", text)


def _row(record: AgentRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in AgentRecord.__dataclass_fields__}
