"""What steps of a story are made of: choosing a guest or daemon, plans, kills."""

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
from support.policy_host import Daemon

NEVER_BUSY = 1e6
"""Per cent of a CPU: whoever is not named stays where he is."""


class Helpers:
    """``told`` counts what was killed, and how runs ended."""

    def __init__(self, stage: Environment, told: Counter[str]) -> None:
        self.stage = stage
        self.told = told

    def _guest(self, which: int) -> str:
        on = sorted(self.stage.qemus())
        return on[which % len(on)] if on else ""

    def _daemon(self, which: int) -> Daemon | None:
        on = self.stage.running()
        return on[which % len(on)] if on else None

    def _virsh(self, which: int, verb: str) -> bool:
        if name := self._guest(which):
            with suppress(subprocess.CalledProcessError):
                self.stage.virsh(verb, name)
        return bool(name)

    def _guest_ends(self, which: int, verb: str, *, again: bool = False) -> bool:
        if name := self._guest(which):
            self.stage.virsh(verb, name)
            if again:
                self.stage.virsh("start", name, "--paused")
            self.stage.disturb()
        return bool(name)

    def _kill_qemu(self, name: str) -> None:
        self.told["kills of a QEMU"] += 1
        if pid := self.stage.qemus().get(name):
            os.kill(pid, signal.SIGKILL)
        ends = time.monotonic() + DEADLINE
        while self.stage.virsh("domstate", name).strip() != "shut off":
            assert time.monotonic() < ends, f"libvirtd does not see the end of {name}"
            time.sleep(0.02)
        self.stage.disturb()

    def _threads(self, part: Part) -> Mapping[int, Part]:
        return {tid: whose for whose, tid in self.stage.threads() if whose == part}

    def _taskset(self, name: str, number: int, cpu: int) -> bool:
        threads = {tid: part for part, tid in sorted(self.stage.threads()) if part[0] == name}
        if not threads:
            return False
        tid = list(threads)[number % len(threads)]
        return self.stage.somebody_moves({tid: threads[tid]}, str(cpu), lambda: os.sched_setaffinity(tid, [cpu]))

    def _make(self, strategy: str, housekeeping: str) -> str:
        """A plan for all who are there; its id, empty where it cannot be."""
        request = {
            "strategy": strategy,
            "housekeeping": housekeeping,
            "guests": sorted(self.stage.qemus()),
            "processes": [daemon.name for daemon in self.stage.running()],
            "busy_threshold": NEVER_BUSY,
            "sample_seconds": 0.0,
        }
        status, made = self.stage.post("hosts", self.stage.kept.host, "plans", **request)
        return str(made["id"]) if status == 201 and not made["blocked"] else ""

    def _apply(self, plan: str, persist: bool) -> dict[str, Any]:
        """How it ended; empty: refused."""
        status, run = self.stage.post("plans", plan, "apply", persist=persist)
        if status == 409:
            self.told["refused"] += 1
            return {}
        ended = self.stage.ended(run["id"])
        self.told[f"applies {ended['state']}"] += 1
        return ended

    def _post(self, *path: str) -> None:
        """What is answered does not matter: somebody is killed meanwhile."""
        with suppress(httpx.TransportError):
            self.stage.kept.http.post("/".join(("", *path)), json={})

    @contextmanager
    def _meanwhile(self, work: Callable[[], None]) -> Iterator["Future[None]"]:
        with ThreadPoolExecutor(1) as worker:
            done = worker.submit(work)
            yield done
            done.result(DEADLINE)

    def _kill_pinner(self, who: str) -> None:
        self.told["kills of pinner"] += 1
        self.stage.kill_pinner(who)
        self.stage.serve()

    @contextmanager
    def _hung(self, name: str) -> Iterator[None]:
        pid = self.stage.qemus()[name]
        os.kill(pid, signal.SIGSTOP)
        job = ["virsh", "-c", self.stage.uri, "qemu-monitor-command", name, '{"execute": "query-status"}']
        with subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            try:
                time.sleep(0.3)
                yield
            finally:
                os.kill(pid, signal.SIGCONT)
