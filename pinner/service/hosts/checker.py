"""Makes all installed checks of a host, and survives those that fail or hang."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import fields, replace
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from shlex import split

from pinner import codec
from pinner.model.change import AffinityChange, TargetKey
from pinner.model.errors import PinnerError
from pinner.model.guest.nova import Finding, Listening, NovaReport
from pinner.model.outcome.check import (
    RANKS,
    CheckFinding,
    CheckReport,
    Evidence,
    Found,
    HostCheck,
    Remedy,
    Severity,
    Subject,
    finding,
    not_known,
    report,
)
from pinner.model.plan.request import FIXES, Request
from pinner.model.reading import HostReading, HostSample
from pinner.model.snapshot import Snapshot, with_affinities
from pinner.planning.questions import nova_check
from pinner.planning.request.processes import remedy_roles

LOG = logging.getLogger(__name__)
GROUP = "pinner.checks"
SECONDS = 10.0
"""The time for all checks, which are pure and take milliseconds; a plug-in may hang."""
MAX_FINDINGS = 200
"""The findings of one check."""
MAX_COUNTED = 10_000
"""A check may yield findings without end."""
MAX_BYTES = 256 * 1024
"""The size of one finding as JSON."""
_MAX_ERROR = 500

_Answer = Future[tuple[CheckFinding, ...]]


class HostChecker:
    """Several threads may use it."""

    def __init__(self, checks: Callable[[], tuple[HostCheck, ...]] | None = None, seconds: float = SECONDS) -> None:
        self._checks = checks or installed
        self._seconds = seconds
        self._running: dict[tuple[str, int], tuple[HostCheck, float, _Answer]] = {}
        """Checks that did not end in time are not begun again before they end. The key has the identity of a plug-in's
        function, which may have no hash."""
        self._lock = threading.Lock()

    def check(self, reading: HostReading) -> CheckReport:
        """A check that raises, hangs or answers nonsense becomes a finding."""
        checks = self._checks()
        findings = self._findings(checks, reading)
        return report(reading, proven(findings, reading.snapshot, partial(self._now, checks, reading)), len(checks))

    def _now(self, checks: Iterable[HostCheck], reading: HostReading, snapshot: Snapshot) -> list[CheckFinding]:
        """Interrupts stay where they are; what else grew between the samples is over."""
        samples = tuple(HostSample(irqs=sample.irqs, spare_ms=sample.spare_ms) for sample in reading.samples)
        return self._findings(checks, HostReading(snapshot, samples, reading.seconds), is_trial=True)

    def _findings(
        self, checks: Iterable[HostCheck], reading: HostReading, *, is_trial: bool = False
    ) -> list[CheckFinding]:
        """``is_trial``: whether a plan can cure them is not asked."""
        reading = replace(reading, roles=remedy_roles(reading.snapshot))
        answers = [(check, self._begin(check, reading, is_trial=is_trial)) for check in checks]
        wait([answer for _, answer in answers], self._seconds)
        return [result for check, answer in answers for result in self._answer(check, answer)]

    def _begin(self, check: HostCheck, reading: HostReading, *, is_trial: bool) -> _Answer:
        answer = _Answer()
        with self._lock:
            if (hung := self._running.get(_key(check))) is not None and not hung[2].done():
                # Its findings, when it ends, are those of another reading, perhaps of another host.
                seconds = time.monotonic() - hung[1] + self._seconds
                answer.set_result((_failed(check, f"an earlier call of the check has not ended for {seconds:.0f} s"),))
                return answer
            self._running.pop(_key(check), None)
        make = partial(_make, answer, check, reading, is_trial=is_trial)
        thread = threading.Thread(target=make, name=f"check-{check.code}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            answer.set_exception(error)
        return answer

    def _answer(self, check: HostCheck, answer: _Answer) -> tuple[CheckFinding, ...]:
        if not answer.done():
            with self._lock:
                self._running.setdefault(_key(check), (check, time.monotonic(), answer))
            LOG.warning("check %s has not ended for %g s", check.code, self._seconds)
            return (_failed(check, f"the check did not end within {self._seconds:g} s"),)
        if (error := answer.exception()) is not None:
            return (_failed(check, f"the check failed: {_words(error)}"),)
        return answer.result()


def _key(check: HostCheck) -> tuple[str, int]:
    return check.code, id(check.find)


def _make(answer: _Answer, check: HostCheck, reading: HostReading, *, is_trial: bool) -> None:
    try:
        answer.set_result(tuple(_findings(check, reading, is_trial=is_trial)))
    except BaseException as error:  # a plug-in may raise anything, and must not end without an answer
        LOG.warning("check %s failed: %s", check.code, _words(error))
        answer.set_exception(error)


def _findings(check: HostCheck, reading: HostReading, *, is_trial: bool) -> Iterator[CheckFinding]:
    faults = iter(check.find(reading))
    changed = cache(partial(_changed, reading.snapshot, "" if is_trial else check.code))
    for fault in islice(faults, MAX_FINDINGS):
        yield _sound(check, fault, changed)
    if more := sum(1 for _ in islice(faults, MAX_COUNTED)):
        yield _failed(check, f"{more}{' or more' if more == MAX_COUNTED else ''} further findings are left out")


def _changed(snapshot: Snapshot, code: str) -> frozenset[TargetKey]:
    if code not in FIXES:
        return frozenset()
    # Imported here: most hosts have no such finding.
    from pinner.planning import planner

    try:
        plan = planner.plan(snapshot, "", Request(fix=(code,)))
    except PinnerError:
        return frozenset()
    return frozenset(change.target.key for change in plan.changes)


def _sound(check: HostCheck, fault: Found, changed: Callable[[], frozenset[TargetKey]]) -> CheckFinding:
    """A finding that cannot be sent or has no evidence becomes one that says so: mypy does not check a plug-in."""
    try:
        cured = bool(fault.targets) and not changed().isdisjoint(target.key for target in fault.targets)
        result = finding(check, fault, is_fixable=cured)
        text = codec.adapter(CheckFinding).dump_json(result, warnings="error")
        if len(text) > MAX_BYTES:
            return _failed(check, f"one of its findings has {len(text)} bytes, and at most {MAX_BYTES} are shown")
        result = codec.load(CheckFinding, text, "finding")
    except Exception as error:
        return _failed(check, f"one of its findings is nonsense: {_words(error)}")
    if not result.evidence:
        return not_known(check, result.subject, f"the check gave no evidence for: {result.message}")
    return result


def _failed(check: HostCheck, why: str) -> CheckFinding:
    return not_known(check, Subject("check", check.code), why)


def _words(error: BaseException) -> str:
    """A plug-in's error may have any length, or no text."""
    try:
        text = repr(error)
    except Exception:
        text = type(error).__name__
    return text if len(text) <= _MAX_ERROR else f"{text[: _MAX_ERROR - 3]}..."


@cache
def installed() -> tuple[HostCheck, ...]:
    """A plug-in that does not load is a check that says so."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(sorted((check for point in points for check in _loaded(point)), key=lambda check: check.code))


def _loaded(point: EntryPoint) -> Iterator[HostCheck]:
    try:
        yield from tuple(map(_required, point.load()))
    except (Exception, SystemExit) as error:
        why = f"the plug-in {point.name} ({point.value}) does not load: {_words(error)}"
        LOG.warning("%s", why)

        def refuse(_: HostReading, why: str = why) -> Iterator[Found]:
            yield Found(Subject("check", point.name), f"not known, because {why}", (Evidence("reason", why),))

        yield HostCheck(
            f"plugin-{point.name}", "unknown", "a plug-in does not load", "its checks are missing", "pinner", refuse
        )


def _required(given: object) -> HostCheck:
    if not isinstance(given, HostCheck) or not callable(given.find) or given.severity not in RANKS:
        raise TypeError(f"{given!r} is no check")
    for field in fields(HostCheck):
        if field.name != "find" and not isinstance(value := getattr(given, field.name), str):
            raise TypeError(f"{field.name} of a check is {value!r}, and no text")
    return given


PLAN = "pinner plan"
NOVA_EMULATORS = "--nova-emulators"

Severities = Mapping[tuple[str, Subject], Severity]
Check = Callable[[Snapshot], Iterable[CheckFinding]]


def proven(findings: Iterable[CheckFinding], snapshot: Snapshot, check: Check) -> list[CheckFinding]:
    """``check`` finds what snapshot and interrupts show. A plan for other faults must change something, bring none."""

    @cache
    def found() -> Severities:
        return _by_subject(check(snapshot))

    @cache
    def after(line: str) -> Severities | None:
        planned = _planned(snapshot, line)
        return None if planned is None else _by_subject(check(planned))

    def is_proven(finding: CheckFinding, remedy: Remedy) -> bool:
        if not remedy.line.startswith(PLAN):
            return True
        key, then = (finding.code, finding.subject), after(remedy.line)
        return then is not None and key not in then and not any(map(partial(_is_worse, finding, found()), then.items()))

    return [
        replace(finding, remedies=tuple(each for each in finding.remedies if is_proven(finding, each)))
        for finding in findings
    ]


def _by_subject(findings: Iterable[CheckFinding]) -> Severities:
    return {(each.code, each.subject): each.severity for each in findings}


def _is_worse(finding: CheckFinding, before: Severities, then: tuple[tuple[str, Subject], Severity]) -> bool:
    key, severity = then
    rank = RANKS.index(severity)
    return rank <= RANKS.index(finding.severity) and (key not in before or rank < RANKS.index(before[key]))


def _planned(snapshot: Snapshot, line: str) -> Snapshot | None:
    """None where pinner does not apply it, or it changes nothing."""
    # Imported here: most hosts have no such finding.
    from pinner.planning import planner

    try:
        plan = planner.plan(snapshot, "", _request(line))
    except Exception:  # a saved snapshot may hold nonsense
        return None
    if not plan.changes or plan.blocked or plan.worse:
        return None
    changes = (change for change in plan.changes if isinstance(change, AffinityChange))
    return with_affinities(snapshot, {thread.tid: change.after for change in changes for thread in change.before})


def _request(line: str) -> Request:
    """The options that checks use: each but --nova-emulators has one value."""
    words = [word for word in split(line)[2:] if word != NOVA_EMULATORS]
    given = list(zip(words[::2], words[1::2], strict=True))
    options = dict(given)
    return Request(
        strategy=options.get("--strategy", "shared-pool"),
        smt=options.get("--smt", "prefer"),  # type: ignore[arg-type]
        minimum_cores=int(options["--minimum-cores"]) if "--minimum-cores" in options else None,
        processes=tuple(value for option, value in given if option == "--process"),
        nova_emulators=NOVA_EMULATORS in line,
    )


CODES = ("floating-guest-on-isolated", "nova-guest-outside-shared", "nova-shared-isolated")
"""Of findings about Nova's guests and sets that are no conflict in Nova's own eyes."""


def nova_report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    """With what `pinner check` calls critical on the same host."""
    report = nova_check.report(snapshot, listening)
    return replace(report, findings=(*report.findings, *_critical(snapshot)))


def _critical(snapshot: Snapshot) -> Iterator[Finding]:
    novas = {guest.name for guest in snapshot.guests if guest.nova}
    for each in HostChecker().check(HostReading(snapshot)).findings:
        of_guest = each.subject.kind == "guest"
        if each.severity == "critical" and each.code in CODES and (not of_guest or each.subject.name in novas):
            lines = [(remedy.line, remedy.where) for remedy in each.remedies] or [("", "")]
            for line, where in lines[:1] if of_guest else lines:
                option = line.partition(" ")[0].lstrip("#") or "cpu_shared_set"
                yield Finding(str(each.subject) if of_guest else option, each.message, line, where)
