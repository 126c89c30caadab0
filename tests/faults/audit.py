"""What must hold after every step of a story, and at its end."""

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from faults.environment import DEADLINE, Environment, Part, Unsound
from support.kernel import masks, started

from pinner.model.cpuset import CpuSet

STILL = 0.3
"""Seconds between two looks that must be alike."""

Thread = tuple[int, int]
"""Its id and start time."""


class Event(NamedTuple):
    """What a part's threads were given; a thread that is not named was given what nobody says, if anything."""

    at: datetime
    part: Part
    masks: dict[Thread, str]
    who: str


class Audit:
    """Of one stage."""

    def __init__(self, stage: Environment) -> None:
        self._stage = stage
        self._entries: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """By run and its state: what has ended changes no more."""
        self._bystander = masks(stage.bystander.pid)

    def check(self) -> None:
        """Raises Unsound."""
        report = self._rest()
        verified = self._stage.get("audit", "verify")
        if not verified["ok"]:
            raise Unsound("audit trail", str(verified))
        if (now := masks(self._stage.bystander.pid)) != self._bystander:
            raise Unsound("bystander", f"who was not asked for was moved: {self._bystander} -> {now}")
        self._the_journal_matches_the_kernel()
        if report["placement"] and not report["error"]:
            self._nobody_is_astray_unreported(report)
        self._nobody_is_reported_in_vain(report)
        self._the_log_tells_no_exception()

    def end(self, told: Counter[str]) -> None:
        """Everything is taken back, the last run first: every mask is that of the start, or one that somebody else
        gave to that part. Raises Unsound."""
        stage = self._stage
        if stage.mode:
            stage.put_policy("observe")
            self._rest()
        for run in stage.applies():
            if run["state"] in ("applied", "rolled_back_partly") or (run["state"] == "failed" and self._of(run)):
                stage.undo(run, told)
        for (part, tid), mask in stage.threads().items():
            theirs = {moved.cpus for moved in stage.moved if moved.part == part}
            if mask != stage.first[part] and mask not in theirs:
                what = f"{' '.join(part)}, thread {tid}, is on {mask}; it was on {stage.first[part]}"
                raise Unsound("not as at the start", f"{what}, and others put it on {sorted(theirs)}")
        if (now := stage.pins_defined()) != stage.definitions:
            raise Unsound("definitions", f"{stage.definitions} -> {now}")

    def _rest(self) -> dict[str, Any]:
        """The drift report when no run is under way any more, and the policy has done what it can."""
        deadline = time.monotonic() + DEADLINE
        seen: list[object] = []
        while True:
            states = [(run["id"], run["state"]) for run in self._stage.kept.runs()]
            report = self._stage.kept.drift()
            loose = [drift for drift in report["drifts"] if not drift["backoff_until"]]
            busy = any(state == "running" for _, state in states) or (self._stage.mode == "enforce" and loose)
            if states == seen and not busy:
                return report
            if time.monotonic() > deadline:
                raise Unsound("no rest", f"{states[:3]} {loose} {report['error']}")
            seen = list(states)
            time.sleep(STILL)

    def _the_journal_matches_the_kernel(self) -> None:
        moved = (
            Event(each.at, each.part, {(each.tid, each.started): each.cpus}, "others") for each in self._stage.moved
        )
        events = sorted([*self._journaled(), *moved], key=lambda event: event.at)
        for (part, tid), mask in self._stage.threads().items():
            try:
                thread = tid, started(tid)
            except OSError:
                continue  # it has ended
            said = [
                event for event in events if event.part == part and (thread in event.masks or event.who != "others")
            ]
            wanted = said[-1].masks.get(thread, "") if said else ""
            if wanted and mask != wanted:
                what = f"{' '.join(part)}, thread {tid}, is on {mask}; the journal says {wanted}"
                past = [f"{event.at:%T.%f} {event.masks.get(thread)} by {event.who}" for event in said]
                raise Unsound("journal", "\n    ".join([what, *past]))

    def _journaled(self) -> Iterator[Event]:
        """What the runs say that they did to each thread."""
        for run in self._stage.applies():
            for entry in self._of(run):
                change, at = entry["change"], datetime.fromisoformat(entry["at"])
                threads = {
                    (each["tid"], each["started"]): each["cpus"] for each in (*change["before"], *entry["found"])
                }
                if entry["state"] == "done":
                    threads = dict.fromkeys(threads, change["after"])
                elif entry["state"] not in ("undone", "failed"):
                    threads = {}
                yield Event(at, _named(change["target"]), threads, f"{run['id']}: {entry['state']} {entry['error']}")

    def _of(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        key = run["id"], run["state"]
        if key not in self._entries:
            self._entries[key] = self._stage.get("runs", run["id"])["entries"]
        return self._entries[key]

    def _nobody_is_astray_unreported(self, report: dict[str, Any]) -> None:
        """Whoever has a place in what stands is in it, or is in the drift report; but for the guests that were marked
        since, who have none any more."""
        placement = self._stage.get("plans", report["placement"])
        drifted = {_named(drift["target"]) for drift in report["drifts"]}
        wanted = {
            part: want["cpus"]
            for want in placement["wanted"]
            if (part := _named(want["target"]))[0] not in self._stage.alone
        }
        placed = {part: mask for (part, _), mask in self._stage.threads().items() if part in wanted}
        for (part, tid), mask in self._stage.threads().items():
            if part in wanted and mask != wanted[part] and part not in drifted:
                what = f"{' '.join(part)}, thread {tid}, is on {mask} and not on {wanted[part]}"
                raise Unsound("astray", f"{what}; the drift report does not tell it: {report}")
        if placement["request"]["strategy"] == "isolated":
            _no_cpu_is_shared({part: CpuSet.parse(mask) for part, mask in placed.items() if part not in drifted})

    def _nobody_is_reported_in_vain(self, report: dict[str, Any]) -> None:
        for drift in report["drifts"]:
            part, expected = _named(drift["target"]), drift["expected"]
            there = {mask for (whose, _), mask in self._stage.threads().items() if whose == part}
            if there == {expected}:
                raise Unsound("false alarm", f"{' '.join(part)} is on {expected} alone: {drift}")

    def _the_log_tells_no_exception(self) -> None:
        log = self._stage.logs[-1].read_text()
        if "Traceback" in log:
            raise Unsound("exception", log[log.index("Traceback") :][-3000:])


def _named(target: dict[str, Any]) -> Part:
    """A target as the stage names it."""
    if target["kind"] == "process":
        return str(target["name"]), "thread"
    part = "" if target["part"] is None else f" {target['part']}"
    return str(target["name"]), f"{target['kind']}{part}"


def _no_cpu_is_shared(placed: dict[Part, CpuSet]) -> None:
    """Of those that vCPUs have each to itself."""
    owners = {cpu: part for part, cpus in placed.items() if part[1].startswith("vcpu") for cpu in cpus}
    for part, cpus in placed.items():
        if others := {owners[cpu] for cpu in cpus if owners.get(cpu, part) != part}:
            raise Unsound("shared", f"{' '.join(part)} may run on {cpus}, which belongs to {sorted(others)}")
