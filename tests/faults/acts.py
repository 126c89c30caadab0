"""What can happen in a story: each public method of Acts is one kind of step. Its arguments are drawn by their names
(see stories), whatever the host is like then; it returns whether there was anybody to do it to."""

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
import private_libvirt
from faults.stage import PATIENCE, Part, Stage, Unsound
from support.keeping import Daemon

NEVER_BUSY = 1e6
"""Per cent of a CPU: whoever is not named stays where he is."""


class Acts:
    """``told`` counts what was killed, and how runs ended."""

    def __init__(self, stage: Stage, told: Counter[str]) -> None:
        self.stage = stage
        self.told = told
        self._plan = ""

    # Guests and daemons come and go.

    def a_guest_starts(self, which: int) -> bool:
        """From where it was saved, if it was."""
        off = [name for name in self.stage.guests if name not in self.stage.qemus()]
        if off:
            self.stage.virsh("start", off[which % len(off)], "--paused")
        return bool(off)

    def a_guest_is_destroyed(self, which: int) -> bool:
        return self._guest_ends(which, "destroy")

    def a_guest_is_saved(self, which: int) -> bool:
        return self._guest_ends(which, "managedsave")

    def a_guest_is_saved_and_restored(self, which: int) -> bool:
        return self._guest_ends(which, "managedsave", again=True)

    def a_guest_is_stopped_and_started(self, which: int) -> bool:
        return self._guest_ends(which, "destroy", again=True)

    def a_guest_is_reset(self, which: int) -> bool:
        return self._virsh(which, "reset")

    def a_guest_is_paused(self, which: int) -> bool:
        return self._virsh(which, "suspend")

    def a_guest_goes_on(self, which: int) -> bool:
        return self._virsh(which, "resume")

    def a_qemu_is_killed(self, which: int) -> bool:
        if name := self._guest(which):
            self.stage.disturb()
            self._kill_qemu(name)
        return bool(name)

    def a_daemon_restarts(self, which: int) -> bool:
        daemon = self.stage.daemons[which % len(self.stage.daemons)]
        self.stage.disturb()
        daemon.stop()
        daemon.start()
        daemon.wait_ready()
        return True

    def a_daemon_ends(self, which: int) -> bool:
        if daemon := self._daemon(which):
            self.stage.disturb()
            daemon.stop()
        return daemon is not None

    def a_thread_is_born(self, which: int) -> bool:
        if daemon := self._daemon(which):
            daemon.bear()
        return daemon is not None

    # Somebody else moves threads.

    def somebody_pins_a_guest(self, which: int, part: int, cpu: int) -> bool:
        """As virsh does."""
        name = self._guest(which)
        kinds = sorted({what for (whose, what), _ in self.stage.threads() if whose == name})
        if not kinds:
            return False
        what, _, number = kinds[part % len(kinds)].partition(" ")
        verb = {"vcpu": "vcpupin", "iothread": "iothreadpin", "emulator": "emulatorpin"}[what]
        pin = [verb, name, *([number] if number else []), str(cpu), "--live"]
        moved = self._threads((name, kinds[part % len(kinds)]))
        return self.stage.somebody_moves(moved, str(cpu), lambda: self.stage.virsh(*pin))

    def somebody_moves_a_thread_of_a_guest(self, which: int, part: int, cpu: int) -> bool:
        """As taskset does."""
        return self._taskset(self._guest(which), part, cpu)

    def somebody_moves_a_thread_of_a_daemon(self, which: int, part: int, cpu: int) -> bool:
        daemon = self._daemon(which)
        return self._taskset(daemon.name if daemon else "", part, cpu)

    def a_guest_is_to_be_left_alone(self, which: int, alone: bool) -> bool:
        name = list(self.stage.guests)[which % len(self.stage.guests)]
        if name not in self.stage.qemus():
            return False
        path = f"/hosts/{self.stage.kept.host}/guests/{name}/exempt"
        answer = self.stage.kept.http.put(path, json={"exempt": alone})
        assert answer.status_code == 200, answer.text
        return True

    # Plans, applies, rollbacks, policies.

    def a_plan_is_made(self, strategy: str, housekeeping: str) -> bool:
        self._plan = self._make(strategy, housekeeping)
        return bool(self._plan)

    def that_plan_is_applied(self, persist: bool) -> bool:
        """Whatever became of the host since."""
        if self._plan:
            self._apply(self._plan, persist)
        return bool(self._plan)

    def a_plan_is_applied(self, strategy: str, housekeeping: str, persist: bool) -> bool:
        """And again, which changes nothing."""
        plan = self._make(strategy, housekeeping)
        if not plan:
            return False
        run = self._apply(plan, persist)
        if self.stage.mode == "enforce":
            return True
        if run.get("state") != "applied":
            raise Unsound("refused", f"a fresh plan is not applied: {run}")
        again = self._apply(plan, persist=False)
        if again.get("state") != "applied" or self.stage.kept.changes(again["id"]):
            raise Unsound("second apply", f"a plan that is in place is applied with changes: {again}")
        return True

    def two_plans_are_applied_at_once(self, strategy: str, housekeeping: str) -> bool:
        plans = [self._make(strategy, housekeeping), self._make("shared-pool", "auto")]
        with ThreadPoolExecutor(2) as both:
            for end in list(both.map(lambda plan: self._apply(plan, persist=False) if plan else {}, plans)):
                assert end.get("state", "applied") in ("applied", "undone"), end
        return any(plans)

    def the_last_run_is_taken_back(self) -> bool:
        standing = [run for run in self.stage.applies() if run["state"] == "applied"]
        for run in standing[:1]:
            self.stage.take_back(run, self.told)
        return bool(standing)

    def a_policy_is_set(self, mode: str, strategy: str, housekeeping: str) -> bool:
        self.stage.put_policy(mode, strategy, housekeeping)
        return True

    # Faults.

    def pinner_restarts(self) -> bool:
        self.stage.stop_pinner()
        self.stage.serve()
        return True

    def pinner_is_killed(self, who: str) -> bool:
        self._kill_pinner(who)
        return True

    def pinner_is_killed_while_it_applies(self, strategy: str, housekeeping: str, who: str, milliseconds: int) -> bool:
        plan = self._make(strategy, housekeeping)
        with self._meanwhile(lambda: self._post("plans", plan, "apply")):
            time.sleep(milliseconds / 1000)
            self._kill_pinner(who)
        return True

    def pinner_is_killed_while_it_takes_back(self, who: str, milliseconds: int) -> bool:
        standing = [run for run in self.stage.applies() if run["state"] == "applied"]
        if standing:
            with self._meanwhile(lambda: self._post("runs", standing[0]["id"], "rollback")):
                time.sleep(milliseconds / 1000)
                self._kill_pinner(who)
        return bool(standing)

    def libvirtd_is_killed(self, milliseconds: int) -> bool:
        self.told["kills of libvirtd"] += 1
        with private_libvirt.killed(self.stage.uri):
            time.sleep(milliseconds / 1000)
        return True

    def libvirtd_is_killed_while_a_plan_is_applied(self, strategy: str, housekeeping: str, milliseconds: int) -> bool:
        plan = self._make(strategy, housekeeping)
        with self._meanwhile(lambda: self._post("plans", plan, "apply")):
            time.sleep(milliseconds / 1000)
            self.libvirtd_is_killed(milliseconds)
        return True

    def a_qemu_is_killed_while_a_plan_is_applied(self, which: int, strategy: str, milliseconds: int) -> bool:
        name = self._guest(which)
        if name:
            plan = self._make(strategy, "auto")
            self.stage.disturb()
            with self._meanwhile(lambda: self._post("plans", plan, "apply")):
                time.sleep(milliseconds / 1000)
                self._kill_qemu(name)
        return bool(name)

    def a_guest_hangs_while_a_plan_is_applied(self, which: int, strategy: str, housekeeping: str) -> bool:
        """Its QEMU is stopped, and a job waits for it."""
        name = self._guest(which)
        plan = self._make(strategy, housekeeping)
        if not (name and plan):
            return False
        with self._hung(name):
            self._apply(plan, persist=False)
        return True

    # How.

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
            self.stage.disturb()
            self.stage.virsh(verb, name)
            if again:
                self.stage.virsh("start", name, "--paused")
        return bool(name)

    def _kill_qemu(self, name: str) -> None:
        self.told["kills of a QEMU"] += 1
        if pid := self.stage.qemus().get(name):
            os.kill(pid, signal.SIGKILL)
        ends = time.monotonic() + PATIENCE
        while self.stage.virsh("domstate", name).strip() != "shut off":
            assert time.monotonic() < ends, f"libvirtd does not see the end of {name}"
            time.sleep(0.02)

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
            done.result(PATIENCE)

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
