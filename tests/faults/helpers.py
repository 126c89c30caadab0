"""Helpers of the steps of a scenario: choose a guest or daemon, create and apply plans, kill processes."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from faults.environment import DEADLINE, Environment, Part
from support.server.policy_host import NEVER_BUSY, Daemon


class Helpers:
    """The shared part of all actions; ``counts`` has the number of kills, and of runs by their final state."""

    def __init__(self, environment: Environment, counts: Counter[str]) -> None:
        self.environment = environment
        self.counts = counts

    def _guest(self, which: int) -> str:
        running = sorted(self.environment.qemus())
        return running[which % len(running)] if running else ""

    def _daemon(self, which: int) -> Daemon | None:
        running = self.environment.running()
        return running[which % len(running)] if running else None

    def _virsh(self, which: int, verb: str) -> bool:
        if name := self._guest(which):
            with suppress(subprocess.CalledProcessError):
                self.environment.virsh(verb, name)
        return bool(name)

    def _guest_ends(self, which: int, verb: str, *, again: bool = False) -> bool:
        if name := self._guest(which):
            self.environment.virsh(verb, name)
            if again:
                self.environment.virsh("start", name, "--paused")
            self.environment.mark_disturbed()
        return bool(name)

    def _kill_qemu(self, name: str) -> None:
        self.counts["kills of a QEMU"] += 1
        if pid := self.environment.qemus().get(name):
            os.kill(pid, signal.SIGKILL)
        ends = time.monotonic() + DEADLINE
        while self.environment.virsh("domstate", name).strip() != "shut off":
            assert time.monotonic() < ends, f"libvirtd does not see the end of {name}"
            time.sleep(0.02)
        self.environment.mark_disturbed()

    def _threads(self, part: Part) -> Mapping[int, Part]:
        return {tid: owner for owner, tid in self.environment.threads() if owner == part}

    def _taskset(self, name: str, number: int, cpu: int) -> bool:
        threads = {tid: part for part, tid in sorted(self.environment.threads()) if part[0] == name}
        if not threads:
            return False
        tid = list(threads)[number % len(threads)]
        return self.environment.move_from_outside(
            {tid: threads[tid]}, str(cpu), lambda: os.sched_setaffinity(tid, [cpu])
        )

    def _create_plan(self, strategy: str, housekeeping: str) -> str:
        """Create a plan for all running guests and daemons; its id, or an empty string without a plan to apply."""
        request = {
            "strategy": strategy,
            "housekeeping": housekeeping,
            "guests": sorted(self.environment.qemus()),
            "processes": [daemon.name for daemon in self.environment.running()],
            "busy_threshold": NEVER_BUSY,
            "sample_seconds": 0.0,
        }
        status, plan = self.environment.post("hosts", self.environment.server.host, "plans", **request)
        return str(plan["id"]) if status == 201 and not plan["blocked"] else ""

    def _apply(self, plan: str, persist: bool) -> dict[str, Any]:
        """Apply a plan; the run once it has ended, or an empty dictionary where the apply was refused."""
        status, run = self.environment.post("plans", plan, "apply", persist=persist)
        if status == 409:
            self.counts["refused"] += 1
            return {}
        ended = self.environment.wait_ended(run["id"])
        self.counts[f"applies {ended['state']}"] += 1
        return ended

    def _post(self, *path: str) -> None:
        """POST without checking the answer, because the server may be killed during the request."""
        with suppress(httpx.TransportError):
            self.environment.server.http.post("/".join(("", *path)), json={})

    @contextmanager
    def _in_background(self, work: Callable[[], None]) -> Iterator["Future[None]"]:
        with ThreadPoolExecutor(1) as worker:
            done = worker.submit(work)
            yield done
            done.result(DEADLINE)

    def _kill_pinner(self, processes: str) -> None:
        self.counts["kills of pinner"] += 1
        self.environment.kill_pinner(processes)
        self.environment.start_pinner()

    @contextmanager
    def _hung(self, name: str) -> Iterator[None]:
        pid = self.environment.qemus()[name]
        os.kill(pid, signal.SIGSTOP)
        job = ["virsh", "-c", self.environment.uri, "qemu-monitor-command", name, '{"execute": "query-status"}']
        with subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            try:
                time.sleep(0.3)
                yield
            finally:
                os.kill(pid, signal.SIGCONT)
