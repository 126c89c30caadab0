"""The steps of a scenario: each public method of Actions is one kind of step.

The arguments of a step are drawn at random by their names (see scenarios.py), before the state of the host is known.
A step returns False where the host has no guest, daemon or plan to act on.
"""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import private_libvirt
from faults.disturbances import Disturbances
from faults.environment import Environment, Violation
from faults.undo import undo, undo_all


class Actions(Disturbances):
    """All kinds of steps, with those of Disturbances; a scenario may run any of them at any time."""

    def __init__(self, environment: Environment, counts: Counter[str]) -> None:
        super().__init__(environment, counts)
        self._plan = ""

    # Guests and daemons start, end and change state.

    def a_guest_starts(self, which: int) -> bool:
        """Start a guest, from its saved state if it has one."""
        off = [name for name in self.environment.guests if name not in self.environment.qemus()]
        if off:
            self.environment.virsh("start", off[which % len(off)], "--paused")
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

    def a_guest_is_resumed(self, which: int) -> bool:
        return self._virsh(which, "resume")

    def a_qemu_is_killed(self, which: int) -> bool:
        if name := self._guest(which):
            self._kill_qemu(name)
        return bool(name)

    def a_daemon_restarts(self, which: int) -> bool:
        daemon = self.environment.daemons[which % len(self.environment.daemons)]
        daemon.stop()
        daemon.start()
        daemon.wait_ready()
        self.environment.mark_disturbed()
        return True

    def a_daemon_ends(self, which: int) -> bool:
        if daemon := self._daemon(which):
            daemon.stop()
            self.environment.mark_disturbed()
        return daemon is not None

    def a_thread_is_created(self, which: int) -> bool:
        if daemon := self._daemon(which):
            daemon.create_thread()
        return daemon is not None

    # Another program moves threads.

    def another_program_pins_a_guest(self, which: int, part: int, cpu: int) -> bool:
        """Pin a part of a guest through libvirt, as virsh does."""
        name = self._guest(which)
        roles = sorted({role for (owner, role), _ in self.environment.threads() if owner == name})
        if not roles:
            return False
        role, _, number = roles[part % len(roles)].partition(" ")
        verb = {"vcpu": "vcpupin", "iothread": "iothreadpin", "emulator": "emulatorpin"}[role]
        pin = [verb, name, *([number] if number else []), str(cpu), "--live"]
        threads = self._threads((name, roles[part % len(roles)]))
        return self.environment.move_from_outside(threads, str(cpu), lambda: self.environment.virsh(*pin))

    def another_program_moves_a_thread_of_a_guest(self, which: int, part: int, cpu: int) -> bool:
        """Move one thread of a guest without libvirt, as taskset does."""
        return self._taskset(self._guest(which), part, cpu)

    def another_program_moves_a_thread_of_a_daemon(self, which: int, part: int, cpu: int) -> bool:
        daemon = self._daemon(which)
        return self._taskset(daemon.name if daemon else "", part, cpu)

    def a_guest_is_excluded(self, which: int, excluded: bool) -> bool:
        """Exclude a guest from the policy, or include it again."""
        name = self.environment.guests[which % len(self.environment.guests)]
        if name not in self.environment.qemus():
            return False
        path = f"/hosts/{self.environment.server.host}/guests/{name}/excluded"
        answer = self.environment.server.http.put(path, json={"excluded": excluded})
        assert answer.status_code == 200, answer.text
        (self.environment.excluded.add if excluded else self.environment.excluded.discard)(name)
        return True

    # Plans, applies, rollbacks, policies.

    def a_plan_is_created(self, strategy: str, housekeeping: str) -> bool:
        self._plan = self._create_plan(strategy, housekeeping)
        return bool(self._plan)

    def the_last_plan_is_applied(self, persist: bool) -> bool:
        """Apply the plan that was created last, although the host may have changed since."""
        if self._plan:
            self._apply(self._plan, persist)
        return bool(self._plan)

    def a_plan_is_applied(self, strategy: str, housekeeping: str, persist: bool) -> bool:
        """Apply a new plan twice; the second apply must change nothing."""
        plan = self._create_plan(strategy, housekeeping)
        if not plan:
            return False
        run = self._apply(plan, persist)
        if self.environment.mode == "enforce":
            return True
        if run.get("state") != "applied":
            raise Violation("refused", f"a new plan was not applied: {run}")
        again = self._apply(plan, persist=False)
        if again.get("state") != "applied" or self.environment.server.changes(again["id"]):
            raise Violation("second apply", f"applying a plan a second time changed something: {again}")
        return True

    def two_plans_are_applied_concurrently(self, strategy: str, housekeeping: str) -> bool:
        plans = [self._create_plan(strategy, housekeeping), self._create_plan("shared-pool", "auto")]
        with ThreadPoolExecutor(2) as executor:
            for run in list(executor.map(lambda plan: self._apply(plan, persist=False) if plan else {}, plans)):
                assert run.get("state", "applied") in ("applied", "applied_partly", "undone"), run
        return any(plans)

    def the_last_run_is_rolled_back(self) -> bool:
        applied = [run for run in self.environment.applies() if run["state"] in ("applied", "applied_partly")]
        for run in applied[:1]:
            undo(self.environment, run, self.counts)
        return bool(applied)

    def every_run_is_rolled_back(self) -> bool:
        return undo_all(self.environment, self.counts)

    def a_policy_is_set(self, mode: str, strategy: str, housekeeping: str) -> bool:
        return self.environment.put_policy(mode, strategy, housekeeping)

    # Faults.

    def pinner_restarts(self) -> bool:
        self.environment.stop_pinner()
        self.environment.start_pinner()
        return True

    def pinner_is_killed(self, processes: str) -> bool:
        self._kill_pinner(processes)
        return True

    def pinner_is_killed_during_an_apply(
        self, strategy: str, housekeeping: str, processes: str, milliseconds: int
    ) -> bool:
        plan = self._create_plan(strategy, housekeeping)
        with self._in_background(lambda: self._post("plans", plan, "apply")):
            time.sleep(milliseconds / 1000)
            self._kill_pinner(processes)
        return True

    def pinner_is_killed_during_a_rollback(self, processes: str, milliseconds: int) -> bool:
        applied = [run for run in self.environment.applies() if run["state"] == "applied"]
        if applied:
            with self._in_background(lambda: self._post("runs", applied[0]["id"], "rollback")):
                time.sleep(milliseconds / 1000)
                self._kill_pinner(processes)
        return bool(applied)

    def libvirtd_is_killed(self, milliseconds: int) -> bool:
        self.counts["kills of libvirtd"] += 1
        with private_libvirt.killed(self.environment.uri):
            time.sleep(milliseconds / 1000)
        return True

    def libvirtd_is_killed_during_an_apply(self, strategy: str, housekeeping: str, milliseconds: int) -> bool:
        plan = self._create_plan(strategy, housekeeping)
        with self._in_background(lambda: self._post("plans", plan, "apply")):
            time.sleep(milliseconds / 1000)
            self.libvirtd_is_killed(milliseconds)
        return True

    def a_qemu_is_killed_during_an_apply(self, which: int, strategy: str, milliseconds: int) -> bool:
        name = self._guest(which)
        if name:
            plan = self._create_plan(strategy, "auto")
            with self._in_background(lambda: self._post("plans", plan, "apply")):
                time.sleep(milliseconds / 1000)
                self._kill_qemu(name)
        return bool(name)

    def a_guest_hangs_during_an_apply(self, which: int, strategy: str, housekeeping: str) -> bool:
        """Apply a plan while a guest's QEMU is stopped and a libvirt job waits for it."""
        name = self._guest(which)
        plan = self._create_plan(strategy, housekeeping)
        if not (name and plan):
            return False
        with self._hung(name):
            self._apply(plan, persist=False)
        return True
