"""The audit trail as a file of JSON lines (.gz: compressed), and its verification without a server.

{"export": 1, "heads": [SignedHead, ...]}      the present head of each agent
{"head": SignedHead}                           each head that the centre received
{"host": HOST, "agent": AgentRecord}           the trail of each agent
{"centre": {...}}                              the trail of the centre, with the fields of AuditRecord
"""

import gzip
import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pinner import codec
from pinner.model.errors import Invalid
from pinner.model.run.agent_audit import AgentRecord, Anchor, ChainHead, SignedHead
from pinner.model.run.audit import AuditRecord
from pinner.model.run.verification import FindingKind, TrailFinding, Verification, verification
from pinner.service.audit.audit_check import AgentCheck, CentreCheck
from pinner.store.audit import chain

EXPORT_VERSION = 1

_Line = tuple[int, dict[str, Any]]


def export_lines(
    anchor: Anchor,
    heads: Iterable[SignedHead],
    agents: Iterable[tuple[str, AgentRecord]],
    centre: Iterable[chain.Fields],
) -> Iterator[str]:
    """``centre`` has the records as they are stored."""
    parts: Iterable[dict[str, Any]] = itertools.chain(
        [{"export": EXPORT_VERSION, "heads": [codec.plain(head) for head in anchor.heads]}],
        ({"head": codec.plain(head)} for head in heads),
        ({"host": host, "agent": codec.plain(record)} for host, record in agents),
        ({"centre": dict(record)} for record in centre),
    )
    # A record that was changed may contain bytes. Its hash does not fit the text in their place either.
    return (json.dumps(part, ensure_ascii=False, default=str) + "\n" for part in parts)


def verify_file(path: Path, key: str, anchor: Anchor | None) -> Verification:
    """``key`` is the agent's public key, 32 bytes in base64, from a source that the caller trusts.

    Raises Invalid for a file that is no export.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            return _verify(_lines(file), key, anchor.heads if anchor else ())
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Invalid("--file", str(path), f"a file that `pinner audit export` wrote ({why})") from None
    except Invalid as error:
        raise Invalid(f"{path}, {error.details['field']}", error.details["value"], error.details["expected"]) from None


def _verify(lines: Iterator[_Line], key: str, anchors: tuple[SignedHead, ...]) -> Verification:
    number, header = next(lines, (1, {}))
    if header.get("export") != EXPORT_VERSION or header.keys() != {"export", "heads"}:
        raise Invalid(f"line {number}", _short(header), f'the first line of an export: {{"export": {EXPORT_VERSION}}}')
    present = codec.read(tuple[SignedHead, ...], header.get("heads"), f"line {number}: heads")
    if not present:
        raise Invalid(f"line {number}: heads", [], "at least one signed head")
    parts = _Parts(lines)
    stored = [codec.read(SignedHead, line["head"], f"line {at}: head") for at, line in parts.of("head")]
    agents = {head.host: _agent(head, stored, anchors, key) for head in present}
    for received in stored:
        _require_known(received.host, agents)
    for host, group in itertools.groupby(parts.of("agent", "host"), lambda line: str(line[1]["host"])):
        _require_known(host, agents)
        agents[host].add_agent(codec.read(AgentRecord, line["agent"], f"line {at}: agent") for at, line in group)
    centre = CentreCheck(agents.values())
    start, rows = _start(_centre(at, line) for at, line in parts.of("centre"))
    signed = [agent.signed_head for agent in agents.values() if agent.signed_head]
    seen = max((head.centre_seq for head in signed), default=0)
    checked = chain.check(rows, start, lambda: seen, centre.observe)
    parts.require_end()
    findings = list(centre.findings(checked))
    for agent in agents.values():
        findings += agent.findings(agent.match.open_runs, centre.purged, centre.export)
    if signed:  # without one, the findings say what is wrong with the heads
        findings += _uncovered("centre", "", centre.length, seen)
    for head in signed:
        findings += _uncovered("agent", head.host, agents[head.host].length, head.seq)
    findings += [_left_out(head) for head in anchors if head.host not in agents]
    trails = [agent.trail() for agent in agents.values()]
    return verification(checked.records, checked.head, trails, findings, centre.without_trail)


def _require_known(host: str, agents: Mapping[str, AgentCheck]) -> None:
    if host not in agents:
        raise Invalid("host", host, "a host whose signed head is in the first line")


def _uncovered(trail: Literal["centre", "agent"], host: str, length: int, signed: int) -> Iterator[TrailFinding]:
    """Anybody can add records after a trail's signed head."""
    if length > signed:
        name = f"the agent on {host}" if host else "the centre"
        text = f"no signed head covers the records of {name} from {signed + 1} to {length}: they were added to the file"
        yield TrailFinding(FindingKind.FORGED, trail, host, signed + 1, "", text)


def _left_out(head: SignedHead) -> TrailFinding:
    text = f"the anchor has the trail of the agent on {head.host}, and the file has not"
    return TrailFinding(FindingKind.CUT, "agent", head.host, 0, "", text)


def _agent(head: SignedHead, stored: list[SignedHead], anchors: tuple[SignedHead, ...], key: str) -> AgentCheck:
    received, kept = ([signed for signed in heads if signed.host == head.host] for heads in (stored, anchors))
    check = AgentCheck(head.host, received, kept, key)
    check.add_head(head)
    return check


class _Parts:
    def __init__(self, lines: Iterator[_Line]) -> None:
        self._lines = lines
        self._next = next(lines, None)

    def of(self, *names: str) -> Iterator[_Line]:
        """A line with more names is of no kind, so nothing goes unread."""
        while self._next is not None and self._next[1].keys() == set(names):
            yield self._next
            self._next = next(self._lines, None)

    def require_end(self) -> None:
        if self._next is not None:
            number, line = self._next
            raise Invalid(f"line {number}", _short(line), "head, agent and centre, in this order")


def _start(rows: Iterator[dict[str, Any]]) -> tuple[ChainHead, Iterator[dict[str, Any]]]:
    first = next(rows, None)
    if first is None or not isinstance(first["seq"], int) or not isinstance(first["previous"], str):
        return chain.START, rows if first is None else itertools.chain([first], rows)
    return ChainHead(first["seq"] - 1, first["previous"]), itertools.chain([first], rows)


def _centre(number: int, line: dict[str, Any]) -> dict[str, Any]:
    record = line["centre"]
    if isinstance(record, dict) and record.keys() == AuditRecord.__dataclass_fields__.keys():
        whole = not any(isinstance(value, (list, dict)) for value in record.values())
        if whole and type(record["seq"]) is int:
            return record
    raise Invalid(f"line {number}: centre", _short(record), "a record with the fields of the audit trail")


def _lines(file: Iterable[str]) -> Iterator[_Line]:
    for number, text in enumerate(file, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise Invalid(f"line {number}", text[:80], "a JSON object")
        yield number, line


def _short(value: object) -> str:
    return str(value)[:80]
