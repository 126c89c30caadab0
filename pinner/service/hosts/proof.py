"""Leaves a plan out of a finding's remedies unless, in memory, it ends the finding and brings none that is as bad."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from shlex import split

from pinner.model.change import AffinityChange
from pinner.model.outcome.check import RANKS, CheckFinding, Remedy, Severity, Subject
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot, with_affinities

PLAN = "pinner plan"

Found = Mapping[tuple[str, Subject], Severity]
Check = Callable[[Snapshot], Iterable[CheckFinding]]


def proven(findings: Iterable[CheckFinding], snapshot: Snapshot, check: Check) -> list[CheckFinding]:
    """``check`` finds what a snapshot alone shows. A plan for other faults must change something, and bring none."""

    @cache
    def found() -> Found:
        return _by_subject(check(snapshot))

    @cache
    def after(line: str) -> Found | None:
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


def _by_subject(findings: Iterable[CheckFinding]) -> Found:
    return {(each.code, each.subject): each.severity for each in findings}


def _is_worse(finding: CheckFinding, before: Found, then: tuple[tuple[str, Subject], Severity]) -> bool:
    """Whether it is new, or more severe than before, and as bad as the finding."""
    key, severity = then
    rank = RANKS.index(severity)
    return rank <= RANKS.index(finding.severity) and (key not in before or rank < RANKS.index(before[key]))


def _planned(snapshot: Snapshot, line: str) -> Snapshot | None:
    """The host after the plan; None where pinner does not apply it, or it changes nothing."""
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
    """The options that checks use: each has one value."""
    words = split(line)[2:]
    given = list(zip(words[::2], words[1::2], strict=True))
    options = dict(given)
    return Request(
        strategy=options.get("--strategy", "shared-pool"),
        smt=options.get("--smt", "prefer"),  # type: ignore[arg-type]
        minimum_cores=int(options["--minimum-cores"]) if "--minimum-cores" in options else None,
        processes=tuple(value for option, value in given if option == "--process"),
    )
