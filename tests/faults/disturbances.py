"""Steps of a scenario in which one part of the host misbehaves; each public method of Disturbances is one kind of step.

Each of them asserts its own promise at once, in addition to the checks after every step.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from faults.environment import DEADLINE, Violation
from faults.helpers import NEVER_BUSY, Helpers
from support.server.policy_host import wait_until
from support.server.unix_http import http_client


class Disturbances(Helpers):
    """Hung guests, processes that resist, forks, idle claims, steps of the clock, second services."""

    def a_process_forks(self, which: int) -> bool:
        """Have a daemon start a child, which inherits the daemon's present mask and is no target of any request."""
        daemon = self._daemon(which)
        if daemon is not None:
            self.environment.bystanders.add_child(daemon)
        return daemon is not None

    def a_guest_hangs(self, which: int) -> bool:
        """Start a guest anew and stop its QEMU at once, while a libvirt job waits for it; restart another guest."""
        name = self._guest(which)
        others = [other for other in sorted(self.environment.qemus()) if other != name]
        if not others:
            return False
        with self._no_other_is_undone(name):
            self._restart(name)
            with self._hung(name):
                self._restart(others[0])
                self._wait_others_placed(name)
        return True

    def a_process_resets_its_affinity(self, which: int) -> bool:
        """Let a daemon resist, and restart a guest."""
        daemon, guest = self._daemon(which), self._guest(which)
        if daemon is None or not guest:
            return False
        with self._no_other_is_undone(daemon.name), self._resisting(daemon.name):
            self._restart(guest)
            self._wait_others_placed(daemon.name)
        return True

    def a_plan_is_applied_while_a_process_resets_its_affinity(
        self, which: int, strategy: str, housekeeping: str
    ) -> bool:
        """Apply a plan while a daemon resists: the other targets are placed, and the run's error names the daemon."""
        daemon = self._daemon(which)
        plan = self._create_plan(strategy, housekeeping) if daemon else ""
        if daemon is None or not plan:
            return False
        with self._resisting(daemon.name):
            run = self._apply(plan, persist=False)
        state = run.get("state", "applied")
        # Under an enforced policy, a reconcile may make the plan stale.
        stale = state == "failed" and self.environment.mode == "enforce"
        if state not in ("applied", "applied_partly") and not stale:
            raise Violation("dependent", f"a process that resists had other targets undone: {run}")
        if state == "applied_partly" and daemon.name not in run["error"]:
            raise Violation("wrong cause", f"the error does not name {daemon.name}: {run}")
        return True

    def idle_processes_claim_cpus(self, cpu: int) -> bool:
        """An unprivileged user pins an idle process to a CPU: the sets of a new plan stay as they are."""
        before = self._sets()
        if not before:
            return False
        self.environment.bystanders.add_claim(cpu)
        if (after := self._sets()) != before:
            raise Violation("starved", f"an idle process of an unprivileged user on CPU {cpu}: {before} -> {after}")
        return True

    def the_clock_steps(self, hours: int) -> bool:
        """Step the wall clock of pinner to this difference from the real one."""
        self.environment.clock.step(hours)
        at = datetime.fromisoformat(self.environment.server.drift()["at"])
        assert abs(at - datetime.now(UTC) - timedelta(hours=hours)) < timedelta(minutes=1), f"pinner's clock says {at}"
        return True

    def a_second_service_starts(self) -> bool:
        """Start a second service on the same state: it ends with an error, and the first one goes on."""
        status = self.environment.run_second_pinner()
        if status in (0, None):
            what = "ended with status 0" if status == 0 else "still runs"
            raise Violation("second service", f"a second pinner serve on the same state {what}")
        try:
            # A new connection: those that are open do not need the path of the socket.
            with http_client(self.environment.server.url, timeout=DEADLINE, path="/v1") as http:
                assert http.get("/hosts").status_code == 200
        except httpx.TransportError as error:
            raise Violation("second service", f"the first pinner serve does not answer any more: {error}") from None
        return True

    def _sets(self) -> dict[str, str]:
        """The sets of a new plan with automatic sets; empty where no plan is possible."""
        request = {"strategy": "shared-pool", "busy_threshold": NEVER_BUSY, "sample_seconds": 0.0}
        path = f"/hosts/{self.environment.server.host}/plans"
        answer = self.environment.server.http.post(path, json=request)
        if answer.status_code != 201 or answer.json()["blocked"]:
            return {}
        return {role: cpus for role, cpus in answer.json()["roles"].items() if role != "notes"}

    def _restart(self, name: str) -> None:
        self.environment.virsh("destroy", name)
        self.environment.virsh("start", name, "--paused")
        self.environment.mark_disturbed()

    def _wait_others_placed(self, name: str) -> None:
        """Wait until an enforced policy has placed every target but those of ``name``; raises Violation."""
        last: list[dict[str, Any]] = []

        def placed() -> bool:
            time.sleep(0.3)
            report = self.environment.server.drift()
            last[:] = [drift for drift in report["drifts"] if drift["target"]["name"] != name]
            return not last

        if self.environment.mode == "enforce":
            wait_until(placed, DEADLINE)
        if last:
            raise Violation("dependent", f"{name} keeps the policy from placing others: {last}")

    @contextmanager
    def _no_other_is_undone(self, name: str) -> Iterator[None]:
        """No run that fails because of ``name`` may undo another target; raises Violation."""
        before = {run["id"] for run in self.environment.server.runs()}
        yield
        for run in self.environment.server.runs():
            if run["id"] not in before and run["state"] == "undone":
                undone = {target["name"] for target in self.environment.server.changes(run["id"])} - {name}
                if undone:
                    raise Violation("dependent", f"{name} had {sorted(undone)} undone: {run['error']}")

    @contextmanager
    def _resisting(self, name: str) -> Iterator[None]:
        """The daemon gives its threads all CPUs again and again. Afterwards its masks are not known to the audit."""
        daemon = next(each for each in self.environment.daemons if each.name == name)
        daemon.reset_affinity()
        try:
            time.sleep(0.05)
            yield
        finally:
            daemon.settle()
            self.environment.mark_unknown(daemon)
