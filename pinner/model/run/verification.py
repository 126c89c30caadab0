"""The check of the centre's chain against the agents' chains and an anchor."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pinner.model.run.agent_audit import SignedHead


class FindingKind(StrEnum):
    """What is wrong with a trail.

    changed        a record was changed, lost or moved
    rewritten      a consistent chain is not the one from before
    cut            the last records are missing, or an older copy was put back
    forged         the centre has a record of an action that the agent never did, or that pinner never writes
    unreported     the centre has no record of an action of the agent
    head_missing   a signed head that the centre received is missing
    bad_signature  a signed head does not fit its signature or its key
    key_replaced   the agent signs with another key than before
    unreachable    an agent does not answer"""

    CHANGED = "changed"
    REWRITTEN = "rewritten"
    CUT = "cut"
    FORGED = "forged"
    UNREPORTED = "unreported"
    HEAD_MISSING = "head_missing"
    BAD_SIGNATURE = "bad_signature"
    KEY_REPLACED = "key_replaced"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class TrailFinding:
    """A place where the audit trails are wrong or contradict each other."""

    kind: FindingKind
    trail: Literal["centre", "agent"]
    """The wrong or incomplete trail."""
    host: str
    """The agent's; empty: only the centre is concerned."""
    record: int
    """Number of the record in that trail, or of the first wrong one; 0: no single record."""
    run: str
    """The record's; may be empty."""
    message: str
    """What is wrong, in one sentence."""


@dataclass(frozen=True, slots=True)
class AgentTrail:
    """The result of reading one agent's audit trail."""

    host: str
    records: int
    """Number of records that are correct."""
    head: SignedHead | None
    """The agent's present head; null: not known."""


VerificationResult = Literal["intact", "broken", "incomplete"]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking all audit trails."""

    result: VerificationResult
    """intact; broken: something is wrong; incomplete: an agent did not answer."""
    ok: bool
    """Whether it is ``intact``."""
    records: int
    """Number of the centre's records that are correct."""
    head: str
    """Hash of the centre's last correct record."""
    agents: tuple[AgentTrail, ...]
    """Each agent's part."""
    findings: tuple[TrailFinding, ...]
    """What is wrong, at most MAX_FINDINGS of each kind."""
    without_trail: int = 0
    """Number of the centre's records of runs and exclusions on hosts without an agent's trail: nothing proves them."""


MAX_FINDINGS = 20
"""Of one kind; the last counts the others."""


def verification(
    records: int, head: str, agents: Sequence[AgentTrail], findings: Sequence[TrailFinding], without_trail: int = 0
) -> Verification:
    result: VerificationResult = "intact"
    if findings:
        silent = all(finding.kind is FindingKind.UNREACHABLE for finding in findings)
        result = "incomplete" if silent else "broken"
    return Verification(result, result == "intact", records, head, tuple(agents), tuple(findings), without_trail)
