"""The agent's audit trail: its runs' events in a chain of records beside its journal, and its signed heads."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from pinner.model.change import Change
from pinner.model.run.audit import RECOVERY
from pinner.model.run.journal import Entry, Run, RunKind
from pinner.model.text import before_and_after


class AgentAction(StrEnum):
    """Every action that an agent writes to its chain. AuditAction has those of a run.

    guest.exclude   a guest is excluded from placement, or included again; or that failed
    centre.head     the central database reported the head of its audit trail
    key.set         the agent signs with its first key, or with another one than before
    chain.cut       the records before this part were exported and removed
    """

    RUN_APPLY = "run.apply"
    RUN_ROLLBACK = "run.rollback"
    RUN_RELEASE = "run.release"
    RUN_CHANGE = "run.change"
    RUN_RECOVER = "run.recover"
    RUN_END = "run.end"
    GUEST_EXCLUDE = "guest.exclude"
    CENTRE_HEAD = "centre.head"
    KEY_SET = "key.set"
    CHAIN_CUT = "chain.cut"


@dataclass(frozen=True, slots=True)
class AgentEvent:
    at: datetime
    run: str
    action: AgentAction
    target: str
    before: str
    after: str
    result: str
    actor: str
    peer: str


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """``hash`` covers every other field, ``previous`` included."""

    seq: int
    at: str
    """The agent's clock, ISO 8601. Records stand in the order of ``seq``, never of time."""
    run: str
    action: str
    target: str
    """run.change: the target; the begin of a run: its plan, the run that it undoes, or "all runs"; guest.exclude: the
    guest's UUID; centre.head, chain.cut: the number of the centre's last or the last removed record."""
    before: str
    after: str
    """centre.head, chain.cut: the hash of that record; key.set: the public key."""
    result: str
    actor: str
    """As the caller claimed."""
    peer: str
    """The caller as the kernel names it (SO_PEERCRED)."""
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Number and hash of the last record; 0 and empty: none."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The head of an agent's chain, signed by the agent (Ed25519, RFC 8032). The chain contains the centre's head, so
    the signature vouches for both trails."""

    host: str
    seq: int
    """Number of the chain's last record."""
    hash: str
    """The hash of that record."""
    centre_seq: int
    """Number of the centre's record that the agent saw last; 0: none."""
    centre_hash: str
    """The hash of that record."""
    at: str
    """The agent's clock, ISO 8601."""
    key: str
    """The public key's 32 bytes in base64."""
    signature: str
    """The signature in base64 of the canonical JSON (RFC 8785) of the other fields and ``"type": "pinner agent head
    1"``."""

    @property
    def centre(self) -> ChainHead:
        return ChainHead(self.centre_seq, self.centre_hash)


_NUMBER = re.compile("[0-9]{1,18}")


def head_of_record(record: AgentRecord) -> ChainHead | None:
    """None if the record was changed and names no number."""
    return ChainHead(int(record.target), record.after) if _NUMBER.fullmatch(record.target) else None


_HEAD = re.compile("agent ([0-9]{1,18}) ([0-9a-f]{64})")
_PURGED = re.compile("through ([0-9]{1,18}) ([0-9a-f]{64})")


def head_text(head: SignedHead) -> str:
    """In the centre's record of a run's end."""
    return f"agent {head.seq} {head.hash}"


def named_head(text: str) -> ChainHead | None:
    match = _HEAD.fullmatch(text)
    return ChainHead(int(match[1]), match[2]) if match else None


def purged_text(last: ChainHead) -> str:
    """The last exported and deleted record, in the centre's record audit.export."""
    return f"through {last.seq} {last.hash}"


def named_purge(text: str) -> ChainHead | None:
    match = _PURGED.fullmatch(text)
    return ChainHead(int(match[1]), match[2]) if match else None


@dataclass(frozen=True, slots=True)
class Anchor:
    """The signed heads of all hosts at one moment, to be kept elsewhere. A later trail must still contain them."""

    version: int
    """The version of this format."""
    heads: tuple[SignedHead, ...]
    """The signed head of each host."""


ALL_RUNS = "all runs"
"""Target of a rollback of all runs, in both trails."""

_BEGIN: dict[RunKind, AgentAction] = {
    "apply": AgentAction.RUN_APPLY,
    "rollback": AgentAction.RUN_ROLLBACK,
    "release": AgentAction.RUN_RELEASE,
}


def begun(run: Run) -> AgentEvent:
    return _begin(run, "started", run.started_at)


def refused(run: Run, code: str, at: datetime) -> AgentEvent:
    return _begin(run, f"refused: {code}", at)


def change_text(change: Change, kind: RunKind) -> tuple[str, str]:
    """Before and after, for the trails of the centre and the agent, which are compared, so that only here a trail has
    the number of threads. A rollback makes the change in reverse."""
    before, after = before_and_after(change, always_counted=True)
    return (after, before) if kind == "rollback" else (before, after)


def changed(run: Run, entry: Entry) -> AgentEvent:
    before, after = change_text(entry.change, run.kind)
    target, result = str(entry.change.target), entry.result
    return _event(run, entry.at, AgentAction.RUN_CHANGE, target, result, before=before, after=after)


def ended(run: Run) -> list[AgentEvent]:
    """If its process had died, a recovery ended it."""
    at = run.ended_at or run.started_at
    recovered = [_event(replace(run, actor=RECOVERY, peer=""), at, AgentAction.RUN_RECOVER, "", run.recovered)]
    return [*(recovered if run.recovered else ()), _event(run, at, AgentAction.RUN_END, "", run.result)]


def _begin(run: Run, result: str, at: datetime) -> AgentEvent:
    after = "" if run.kind == "rollback" else run.options
    target = ALL_RUNS if run.undoes_all else run.undoes or run.plan
    return _event(run, at, _BEGIN[run.kind], target, result, after=after)


def _event(
    run: Run, at: datetime, action: AgentAction, target: str, result: str, *, before: str = "", after: str = ""
) -> AgentEvent:
    return AgentEvent(at, run.id, action, target, before, after, result, run.actor, run.peer)
