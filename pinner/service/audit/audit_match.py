"""Compares the centre's audit trail with that of one agent. Pure. Both have a record of every action of a run, with the
same text (``pinner.model.run.agent_audit``). The agent's also has earlier heads of the centre's."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any

from pinner.codec import utc_text
from pinner.model.errors import HostUnreachable, StoreUnavailable
from pinner.model.run.agent_audit import AgentAction, AgentRecord, head_of_record
from pinner.model.run.verification import FindingKind, TrailFinding

Key = tuple[str, ...]
"""What the two records of one action have in common."""

BEGINS = (AgentAction.RUN_APPLY.value, AgentAction.RUN_ROLLBACK.value, AgentAction.RUN_RELEASE.value)
RUN_ACTIONS = (*BEGINS, AgentAction.RUN_CHANGE.value, AgentAction.RUN_RECOVER.value, AgentAction.RUN_END.value)
_UNKNOWN = (HostUnreachable.code, StoreUnavailable.code)
"""After these errors an exclusion may be made or not: the agent's answer, or its second record, is missing."""
EXPORTED_AGE = timedelta(hours=23)
"""Records that retention removes are a day old at least ([retention] audit_days); clocks differ."""
_END_STORED = timedelta(minutes=5)
"""The age at which the centre has stored a run's end, by the agent's clock."""
_TEXTS = ("at", "actor", "action", "host", "subject", "before", "after", "result")


@dataclass(slots=True)
class _AgentRun:
    ended: str = ""
    """The result; empty: the run has not ended."""
    end: int = 0
    """The number of the record of its end."""
    begun: bool = False
    """False also for a run that the agent refused."""
    recovered: bool = False
    changed: bool = False
    latest: dict[str, tuple[Key, int]] = field(default_factory=dict)
    """The last change and its record's number, by target."""


@dataclass(frozen=True, slots=True)
class _Unmatched:
    key: Key
    seq: int
    action: str
    run: str
    subject: str
    result: str
    has_ended: bool
    """Whether the run had ended at the centre."""


class TrailMatch:
    """First add the agent's records, then the centre's, then the agent's newer ones."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: Counter[Key] = Counter()
        """The agent's records of which the centre's is not read yet."""
        self._required: dict[Key, tuple[int, str]] = {}
        """The number and the run of each agent's record that the centre must have."""
        self._runs: dict[str, _AgentRun] = {}
        self._excluded: Counter[Key] = Counter()
        self._excluded_first: defaultdict[Key, list[int]] = defaultdict(list)
        """The numbers of the exclusions in the first part of the agent's records."""
        self._requested: defaultdict[Key, list[int]] = defaultdict(list)
        """The numbers of the centre's records of exclusions without a result."""
        self._unrequested: defaultdict[Key, list[int]] = defaultdict(list)
        """The numbers of the centre's records of exclusions whose request is missing."""
        self._excluded_at_centre: defaultdict[Key, list[int]] = defaultdict(list)
        """The numbers of the centre's records of exclusions, also of those that the agent may lack."""
        self._excluded_since: Counter[Key] = Counter()
        """The exclusions that began after ``_base``."""
        self._started: set[str] = set()
        self._failed: set[str] = set()  # or refused
        self._ended: set[str] = set()
        self._open_at_base: set[str] = set()
        """The runs that had begun, and had not ended, at ``_base``."""
        self._first_at: dict[str, int] = {}
        """The number of the centre's first record of each run; 0: it is a request."""
        self._unmatched: list[_Unmatched] = []
        self.seen: dict[int, tuple[str, int]] = {}
        """Hashes of the centre's heads, with the numbers of the agent's records."""
        self._times: dict[int, str] = {}
        """Of the agent's records, by number."""
        self.contradictions: list[tuple[int, int]] = []
        """The agent's records with two hashes for one record of the centre."""
        self._first_head = inf
        """The number of the centre's first head that the agent saw. Records up to it may predate the agent's trail."""
        self._base = inf
        """The same number. Where old records were removed, that of the next head: the first one was read at the centre
        before the agent got it, and actions between have records after it."""
        self._complete = False
        self._first = 0
        """The number of the agent's first record."""

    def add_agent(self, record: AgentRecord) -> None:
        self._first = self._first or record.seq
        if not self._complete:
            self._times[record.seq] = record.at
        match record.action:
            case AgentAction.CENTRE_HEAD:
                self._add_head(record)
            case AgentAction.GUEST_EXCLUDE:
                key, state = _exclusion(record.target, record.result)
                if state:  # an older trail may have had the record that the guest is excluded
                    self._excluded[key] = max(self._excluded[key] - 1, 0)
                    del self._excluded_first[key][-1:]
                else:
                    self._excluded[key] += 1
                    self._excluded_first[key] += [] if self._complete else [record.seq]
            case AgentAction.KEY_SET | AgentAction.CHAIN_CUT:
                pass
            case _:
                self._add_run_record(record)

    def end_of_first_part(self) -> None:
        """The centre must have all records so far: they were made before the centre's are read."""
        self._complete = True

    def add_centre(self, record: Mapping[str, Any]) -> None:
        """They were made before the centre's are read, so it must have all."""
        if not all(isinstance(record[name], str) for name in _TEXTS):
            return  # it was changed, and the check of its hash says so
        action, result, subject = record["action"], record["result"], record["subject"]
        if action == AgentAction.GUEST_EXCLUDE:
            self._add_exclusion(record["seq"], *_exclusion(subject.rpartition("(")[2].rstrip(")"), result))
        if action not in RUN_ACTIONS:
            return
        key = _centre_key(record)
        run = subject.partition(": " if action == AgentAction.RUN_CHANGE else " of ")[0]
        has_ended = run in self._ended
        self._note_state(action, run, result)
        self._first_at.setdefault(run, 0 if action in BEGINS and result == "started" else record["seq"])
        self._required.pop(key, None)
        if record["seq"] <= self._base:
            (self._open_at_base.discard if run in self._ended else self._open_at_base.add)(run)
        if self._known[key]:
            self._known[key] -= 1
        elif record["seq"] > self._first_head:
            self._unmatched.append(_Unmatched(key, record["seq"], action, run, subject, result, has_ended))

    def _add_exclusion(self, seq: int, key: Key, state: str) -> None:
        if state == "started":
            self._requested[key].append(seq)
        elif state in _UNKNOWN:
            # Of several under way, a later result may belong to the oldest one, which the agent's trail may lack.
            if self._requested[key]:
                self._requested[key].pop()
                self._excluded_at_centre[key].append(seq)
        else:
            if not self._requested[key]:
                self._unrequested[key].append(seq)
            begin = self._requested[key].pop(0) if self._requested[key] else seq
            self._excluded_at_centre[key] += [] if state else [seq]
            self._excluded_since[key] += not state and begin > self._base

    @property
    def open_runs(self) -> frozenset[str]:
        return frozenset(self._started - self._ended)

    def young_head(self, purged: int, export: int, now: str) -> int:
        below = {seq: number for number, (_, seq) in self.seen.items() if number < purged}
        last = max(below, default=0)
        return below[last] if last > self._last_old(export, now) else 0

    def _last_old(self, export: int, now: str) -> int:
        """The number of the agent's last record that is EXPORTED_AGE older than the head which shows the record
        ``export``, or than ``now``. No record before it is younger: a clock may have been behind for a while. All times
        are the agent's: the owner of the database can set those of the centre."""
        heard = min((seq for number, (_, seq) in self.seen.items() if number >= export), default=0)
        at_export = self._times.get(heard, now)
        try:
            before = utc_text(datetime.fromisoformat(at_export) - EXPORTED_AGE)
        except (ValueError, OverflowError):
            return 0  # it was changed, and the check of its hash says so
        young = min((seq for seq, at in self._times.items() if before < at <= at_export), default=inf)
        return max((seq for seq, at in self._times.items() if at <= before and seq < young), default=0)

    def findings(self, under_way: Collection[str], purged: int, export: int, now: str) -> Iterator[TrailFinding]:
        """Call it once, at the end.

        ``under_way`` are runs whose end the centre had not stored when its records were read. The owner of its database
        can forge that, so it excuses no run that the agent ended earlier. ``purged`` is the number of the centre's last
        record that retention removed, and ``export`` that of the record that names it. An action whose request was
        removed goes on before that record, which is days younger. ``now``: the time of the agent's present head.
        """
        open_at_purge = {run for run, first in self._first_at.items() if purged and 0 < first < export}
        old = self._last_old(export, now) if purged else 0
        yield from self._forged(under_way, open_at_purge, old)
        ending = {run for run in under_way if run in self._runs and self._is_fresh(self._runs[run], now)}
        removed = min(old + 1, self._first_seen_after(purged))
        yield from self._unreported(ending, removed, old, open_at_purge)
        yield from self._unreported_exclusions(export if purged else 0, old)

    def _note_state(self, action: str, run: str, result: str) -> None:
        state = result.partition(":")[0]
        if action in BEGINS and state == "started":
            self._started.add(run)
        elif action in BEGINS or action == AgentAction.RUN_END:
            self._ended.add(run)
            if state in ("failed", "refused"):
                self._failed.add(run)

    def _add_head(self, record: AgentRecord) -> None:
        head = head_of_record(record)
        if self._complete or head is None:
            return
        if self._first_head == inf:
            self._first_head = self._base = head.seq
        elif self._first > 1 and self._base == self._first_head < head.seq:
            self._base = head.seq
        known = self.seen.setdefault(head.seq, (head.hash, record.seq))
        if known[0] != head.hash:
            self.contradictions.append((known[1], record.seq))

    def _add_run_record(self, record: AgentRecord) -> None:
        key = _agent_key(record)
        self._known[key] += 1
        run = self._runs.setdefault(record.run, _AgentRun())
        if record.action == AgentAction.RUN_CHANGE:
            run.changed = True
            run.latest[record.target] = (key, record.seq)
            return
        if record.action in BEGINS and record.result == "started":
            run.begun = True
        if record.action == AgentAction.RUN_RECOVER:
            run.recovered = True
        if record.action == AgentAction.RUN_END:
            run.ended, run.end = record.result, record.seq
            for change, seq in run.latest.values():
                self._require(change, seq, record.run)
            run.latest.clear()
        self._require(key, record.seq, record.run)

    def _require(self, key: Key, seq: int, run: str) -> None:
        if not self._complete:
            self._required[key] = (seq, run)

    def _forged(self, under_way: Collection[str], open_at_purge: set[str], old: int) -> Iterator[TrailFinding]:
        for record in self._unmatched:
            if self._known[record.key]:
                self._known[record.key] -= 1  # the agent did it while the trails were read
            elif not self._may_lack_counterpart(record, under_way, open_at_purge):
                text = f"record {record.seq} ({record.action} {record.subject}: {record.result}) was forged or changed"
                yield self._finding(FindingKind.FORGED, record.seq, record.run, f"{text}: the agent has no such record")
        old_at_centre = max((number for number, (_, seq) in self.seen.items() if seq <= old), default=0)
        for key, count in self._excluded_since.items():
            removed = sum(seq <= old_at_centre for seq in self._unrequested[key]) if self._first > 1 else 0
            if count - removed > self._excluded[key]:
                yield self._finding(FindingKind.FORGED, 0, "", f"{_shown(key)}: the agent did it fewer times")

    def _may_lack_counterpart(self, record: _Unmatched, under_way: Collection[str], open_at_purge: set[str]) -> bool:
        run = self._runs.get(record.run)
        if record.has_ended and record.action not in BEGINS and record.seq > self._base:
            return False
        goes_on = self._first > 1 and run is not None and record.run in open_at_purge
        was_open = record.run in self._open_at_base or goes_on
        if (was_open or record.seq <= self._base) and self._may_be_removed(record.action, run):
            return True
        if record.action in BEGINS:
            # The centre records the request before it asks the agent, and also refusals of its own. A centre that was
            # killed before it heard of the agent's refusal has the request alone.
            began = run is not None and run.begun
            return record.result != "started" or (not began and record.run in {*self._failed, *under_way})
        if record.action == AgentAction.RUN_END:
            # The centre closes a run as failed also where it never reached the agent.
            never_ended = record.result.startswith("failed") and not (run and run.ended)
            return never_ended and record.run in {*self._started, *open_at_purge}
        # The agent's process died before it wrote its last notes, or has not written them yet.
        return record.action == AgentAction.RUN_CHANGE and run is not None and (run.recovered or not run.ended)

    @staticmethod
    def _may_be_removed(action: str, run: _AgentRun | None) -> bool:
        """Whether the agent's trail may begin after such an action of a run that had begun earlier."""
        return run is None or not (run.begun or (action == AgentAction.RUN_END and run.ended))

    def _is_fresh(self, run: _AgentRun, now: str) -> bool:
        try:
            age = datetime.fromisoformat(now) - datetime.fromisoformat(self._times.get(run.end, now))
        except (TypeError, ValueError):
            return False  # it was changed, and the check of its hash says so
        return abs(age) < _END_STORED

    def _unreported(
        self, ending: Collection[str], before: int, old: int, open_at_purge: set[str]
    ) -> Iterator[TrailFinding]:
        """``ending``: runs whose end the centre may not have stored yet. ``before``: the number of the agent's record
        before which the centre's may have been removed; of a run that went on, those up to ``old``."""
        for key, (seq, run) in self._required.items():
            known = self._runs[run]
            went_on = run in open_at_purge and key[0] != AgentAction.RUN_END
            if run in ending or seq < before or (went_on and seq <= old):
                continue
            refused = run in self._failed and known.ended.startswith(("failed", "undone")) and not known.changed
            if key[0] == AgentAction.RUN_END and refused:
                continue
            text = f"the centre has no record of what the agent did in its record {seq} ({_shown(key)})"
            yield self._finding(FindingKind.UNREPORTED, seq, run, text)

    def _unreported_exclusions(self, export: int, old: int) -> Iterator[TrailFinding]:
        """Of the exclusions after the agent saw ``export``, or after its record ``old``, retention has removed no
        record."""
        heard = min((seq for number, (_, seq) in self.seen.items() if number >= export), default=inf) if export else 0
        for key, made in self._excluded_first.items():
            at_centre = [*self._excluded_at_centre[key], *[inf] * len(self._requested[key])]
            known = sum(seq > export for seq in at_centre)
            if sum(seq > heard for seq in made) > known or sum(seq > old for seq in made) > len(at_centre):
                text = f"the centre has no record of what the agent did ({_shown(key)})"
                yield self._finding(FindingKind.UNREPORTED, 0, "", text)

    def _first_seen_after(self, purged: int) -> int:
        last = max((seq for _, seq in self.seen.values()), default=0)
        return min((seq for number, (_, seq) in self.seen.items() if number > purged), default=last)

    def _finding(self, kind: FindingKind, seq: int, run: str, message: str) -> TrailFinding:
        trail = "agent" if kind is FindingKind.UNREPORTED else "centre"
        return TrailFinding(kind, "centre", self._host, seq if trail == "centre" else 0, run, message)


def _agent_key(record: AgentRecord) -> Key:
    match record.action:
        case AgentAction.RUN_CHANGE:
            subject, at = f"{record.run}: {record.target}", record.at
        case AgentAction.RUN_RECOVER | AgentAction.RUN_END:
            subject, at = record.run, ""
        case _:
            subject, at = f"{record.run} of {record.target}", ""
    return (record.action, subject, record.before, record.after, record.result, record.actor, at)


def _centre_key(record: Mapping[str, Any]) -> Key:
    action = record["action"]
    # The record of a run's end has the agent's head in ``after``. Only an agent knows the time of a change.
    after = "" if action == AgentAction.RUN_END else record["after"]
    at = record["at"] if action == AgentAction.RUN_CHANGE else ""
    return (action, record["subject"], record["before"], after, record["result"], record["actor"], at)


def _exclusion(guest: str, result: str) -> tuple[Key, str]:
    """The key, and "started", the code of a failure, or empty. The agent records an exclusion before the change, and
    again if it was not made; the centre before and after it."""
    done, _, state = result.partition(": ")
    return (AgentAction.GUEST_EXCLUDE.value, guest, done), state.removeprefix("failed, ")


def _shown(key: Key) -> str:
    result = key[2] if key[0] == AgentAction.GUEST_EXCLUDE else key[4]
    return f"{key[0]} {key[1]}: {result}"
