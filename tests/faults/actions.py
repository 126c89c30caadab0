"""What can happen in a story: each public method of Acts is one kind of step. Its arguments are drawn by their names
(see stories), whatever the host is like then; it returns whether there was anybody to do it to."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import private_libvirt
from faults.environment import Environment, Unsound
from faults.helpers import Helpers


class Actions(Helpers):
    """Each may happen at any time."""

    def __init__(self, stage: Environment, told: Counter[str]) -> None:
        super().__init__(stage, told)
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
            self._kill_qemu(name)
        return bool(name)

    def a_daemon_restarts(self, which: int) -> bool:
        daemon = self.stage.daemons[which % len(self.stage.daemons)]
        daemon.stop()
        daemon.start()
        daemon.wait_ready()
        self.stage.disturb()
        return True

    def a_daemon_ends(self, which: int) -> bool:
        if daemon := self._daemon(which):
            daemon.stop()
            self.stage.disturb()
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
        name = self.stage.guests[which % len(self.stage.guests)]
        if name not in self.stage.qemus():
            return False
        path = f"/hosts/{self.stage.kept.host}/guests/{name}/excluded"
        answer = self.stage.kept.http.put(path, json={"excluded": alone})
        assert answer.status_code == 200, answer.text
        (self.stage.alone.add if alone else self.stage.alone.discard)(name)
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
        placement = [run for run in self.stage.applies() if run["state"] == "applied"]
        for run in placement[:1]:
            self.stage.undo(run, self.told)
        return bool(placement)

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
        placement = [run for run in self.stage.applies() if run["state"] == "applied"]
        if placement:
            with self._meanwhile(lambda: self._post("runs", placement[0]["id"], "rollback")):
                time.sleep(milliseconds / 1000)
                self._kill_pinner(who)
        return bool(placement)

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
