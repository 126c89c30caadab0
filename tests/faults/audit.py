"""The checks of the host after every step of a scenario and at its end."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from faults.environment import DEADLINE, Environment, Part, Violation
from faults.undo import check_as_at_start, undo, undo_all
from support.system.kernel import masks, masks_of_host, started

from pinner.model.cpuset import CpuSet

POLL_SECONDS = 0.3
"""Between two observations that must be equal."""

OLD_SECONDS = 600
"""The age from which a process belongs to the host, not to another test."""

LONGEST_BACKOFF = timedelta(hours=1)
"""The longest time for which pinner leaves a drift, whatever the clock does (docs/policies.md)."""

Thread = tuple[int, int]
"""A thread's id and start time."""

EXTERNAL = "external"
"""The origin of an event that another program caused."""


class Event(NamedTuple):
    """The affinity masks that one change gave to threads of a part; the mask of any other thread is unknown."""

    at: datetime
    part: Part
    masks: dict[Thread, str]
    origin: str


class Audit:
    """The checks of one environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._entries: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """The entries by run and state; the entries of a run that has ended never change."""
        self._unmanaged_masks = masks(environment.unmanaged.pid)
        self._host_masks = masks_of_host()
        self._old = (time.monotonic() - OLD_SECONDS) * os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """Check the host, the journal, the drift report, the audit trail and the log; raises Violation."""
        report = self._wait_converged()
        verified = self._environment.get("audit", "verify")
        if not verified["ok"]:
            raise Violation("audit trail", str(verified))
        if (now := masks(self._environment.unmanaged.pid)) != self._unmanaged_masks:
            raise Violation("unmanaged", f"a daemon that no request names was moved: {self._unmanaged_masks} -> {now}")
        for moved in self._environment.bystanders.moved_claims():
            raise Violation("unmanaged", moved)
        self._check_journal_matches_kernel()
        if report["placement"] and not report["error"]:
            self._check_misplaced_threads_are_reported(report)
        self._check_reported_drift_is_real(report)
        self._check_log_has_no_exception()

    def end(self, counts: Counter[str]) -> None:
        """Roll back every run, the last one first, and compare the host with its start; raises Violation.

        Every mask must be the initial one, or one that another program gave to that part.
        """
        environment = self._environment
        if environment.mode:
            environment.put_policy("observe")
            self._wait_converged()
        runs = [
            run
            for run in environment.applies()
            if run["state"] in ("applied", "applied_partly", "rolled_back_partly")
            or (run["state"] == "failed" and self._entries_of(run))
        ]
        undone = [undo(environment, run, counts) for run in runs]
        if not all(undone):
            undo_all(environment, counts)
        check_as_at_start(environment)
        self._check_no_mask_is_left_on_the_host()
        if (now := environment.pins_defined()) != environment.definitions:
            raise Violation("definitions", f"{environment.definitions} -> {now}")

    def _check_no_mask_is_left_on_the_host(self) -> None:
        """Check that no thread of the host has got a mask that a run gave to any thread.

        Young processes do not count: other tests on this host move theirs.
        """
        runs = self._environment.applies()
        given = {str(entry["change"].get("after")) for run in runs for entry in self._entries_of(run)}
        now = masks_of_host()
        for (tid, since), before in self._host_masks.items():
            if since > self._old:
                continue
            mask = now.get((tid, since), before)
            if mask != before and mask in given:
                name = Path(f"/proc/{tid}/comm").read_text().strip()
                raise Violation("left behind", f"thread {tid} ({name}) was on {before} and is on {mask}")

    def _wait_converged(self) -> dict[str, Any]:
        """The drift report, once no run is running and the policy has nothing more to do."""
        deadline = time.monotonic() + DEADLINE
        previous: list[object] = []
        while True:
            states = [(run["id"], run["state"]) for run in self._environment.server.runs()]
            report = self._environment.server.drift()
            pending = [drift for drift in report["drifts"] if not drift["backoff_until"]]
            busy = any(state == "running" for _, state in states) or (self._environment.mode == "enforce" and pending)
            if states == previous and not busy:
                return report
            if time.monotonic() > deadline:
                raise Violation("no convergence", f"{states[:3]} {pending} {report['error']}")
            previous = list(states)
            time.sleep(POLL_SECONDS)

    def _check_journal_matches_kernel(self) -> None:
        external = (
            Event(move.at, move.part, {(move.tid, move.started): move.cpus}, EXTERNAL)
            for move in self._environment.external_moves
        )
        events = sorted([*self._journaled(), *external], key=lambda event: event.at)
        for (part, tid), mask in self._environment.threads().items():
            try:
                thread = tid, started(tid)
            except OSError:
                continue  # it has ended
            history = [
                event for event in events if event.part == part and (thread in event.masks or event.origin != EXTERNAL)
            ]
            wanted = history[-1].masks.get(thread, "") if history else ""
            if wanted and mask != wanted:
                what = f"{' '.join(part)}, thread {tid}, is on {mask}; the journal says {wanted}"
                past = [f"{event.at:%T.%f} {event.masks.get(thread)} by {event.origin}" for event in history]
                raise Violation("journal", "\n    ".join([what, *past]))

    def _journaled(self) -> Iterator[Event]:
        """The changes of affinity in the journals of all runs."""
        for run in (*self._environment.applies(), *self._environment.whole_rollbacks()):
            for entry in self._entries_of(run):
                change, at = entry["change"], self._environment.clock.real(entry["at"])
                if change["kind"] != "affinity":
                    continue
                threads = {
                    (each["tid"], each["started"]): each["cpus"] for each in (*change["before"], *entry["found"])
                }
                if entry["state"] == "done":
                    threads = dict.fromkeys(threads, change["after"])
                elif entry["state"] not in ("undone", "failed"):
                    threads = {}
                yield Event(at, _part_of(change["target"]), threads, f"{run['id']}: {entry['state']} {entry['error']}")

    def _entries_of(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        key = run["id"], run["state"]
        if key not in self._entries:
            self._entries[key] = self._environment.get("runs", run["id"])["entries"]
        return self._entries[key]

    def _check_misplaced_threads_are_reported(self, report: dict[str, Any]) -> None:
        """Check that every thread of the placement has its planned mask or is in the drift report.

        Guests that were excluded since then have no place in the placement any more.
        """
        placement = self._environment.get("plans", report["placement"])
        drifted = {_part_of(drift["target"]) for drift in report["drifts"]}
        wanted = {
            part: want["cpus"]
            for want in placement["wanted"]
            if (part := _part_of(want["target"]))[0] not in self._environment.excluded
        }
        placed = {part: mask for (part, _), mask in self._environment.threads().items() if part in wanted}
        for (part, tid), mask in self._environment.threads().items():
            if part in wanted and mask != wanted[part] and part not in drifted:
                what = f"{' '.join(part)}, thread {tid}, is on {mask} and not on {wanted[part]}"
                raise Violation("misplaced", f"{what}; the drift report does not contain it: {report}")
        if placement["request"]["strategy"] == "isolated":
            _no_cpu_is_shared({part: CpuSet.parse(mask) for part, mask in placed.items() if part not in drifted})

    def _check_reported_drift_is_real(self, report: dict[str, Any]) -> None:
        for drift in report["drifts"]:
            if drift["backoff_until"]:
                wait = datetime.fromisoformat(drift["backoff_until"]) - datetime.fromisoformat(report["at"])
                if wait > LONGEST_BACKOFF:
                    raise Violation("backoff", f"pinner waits for {wait}: {drift}")
            part, expected = _part_of(drift["target"]), drift["expected"]
            actual = {mask for (owner, _), mask in self._environment.threads().items() if owner == part}
            if actual == {expected}:
                raise Violation("false alarm", f"{' '.join(part)} is on {expected} alone: {drift}")

    def _check_log_has_no_exception(self) -> None:
        log = self._environment.logs[-1].read_text()
        if "Traceback" in log:
            raise Violation("exception", log[log.index("Traceback") :][-3000:])


def _part_of(target: dict[str, Any]) -> Part:
    """The part that a target of the API names."""
    if target["kind"] == "process":
        return str(target["name"]), "thread"
    part = "" if target["part"] is None else f" {target['part']}"
    return str(target["name"]), f"{target['kind']}{part}"


def _no_cpu_is_shared(placed: dict[Part, CpuSet]) -> None:
    """Check that no other part may run on the CPU of a vCPU; raises Violation."""
    owners = {cpu: part for part, cpus in placed.items() if part[1].startswith("vcpu") for cpu in cpus}
    for part, cpus in placed.items():
        if others := {owners[cpu] for cpu in cpus if owners.get(cpu, part) != part}:
            raise Violation("shared", f"{' '.join(part)} may run on {cpus}, which is exclusive to {sorted(others)}")
