"""The steps of the demo: each one calls the REST API, or the CLI against the same server."""

import json
import os
import subprocess
import textwrap
import time
from collections import defaultdict
from typing import Any, NamedTuple

import httpx

from demo import environment, masks
from demo.figures import Window, summary, table, verdict
from demo.guest import LinuxGuest
from demo.output import Output
from demo.traffic import Traffic
from pinner.model.change import Target

SPAN_SECONDS = 8
"""The time over which drops, pings and run delay are measured, before and after the apply."""
_TRIES = 5
"""How often the demo plans anew where the host has changed between plan and apply."""
_CONFLICT = 409

Threads = dict[tuple[str, str], dict[int, Any]]
"""The threads of each guest and role, by thread id, as pinner's inventory shows them."""


class Packets(NamedTuple):
    """A guest that gets packets, and their source."""

    guest: LinuxGuest
    traffic: Traffic


class Refused(SystemExit):
    """The server refused a request; it ends the demo where nobody handles it."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}")
        self.status = answer.status_code


class Demo:
    """Measures the guests, places them and the daemon, measures them again, and rolls back."""

    def __init__(self, url: str, guests: tuple[str, ...], daemon: int, packets: Packets | None, output: Output) -> None:
        self.url = url
        transport = httpx.HTTPTransport(uds=url.removeprefix("unix:"))
        self.http = httpx.Client(transport=transport, base_url="http://localhost", timeout=60)
        self.guests = (packets.guest.name, *guests) if packets else guests
        self.daemon = daemon
        self.packets = packets
        self.output = output
        self.host = self.get("/v1/hosts")["items"][0]

    def get(self, path: str, **query: object) -> Any:
        """GET as JSON. Raises Refused."""
        return self._answer(self.http.get(path, params=query))

    def post(self, path: str, **body: object) -> Any:
        """POST as JSON. Raises Refused."""
        self.output.detail(f"POST {path} {body or ''}")
        return self._answer(self.http.post(path, json=body))

    @staticmethod
    def _answer(answer: httpx.Response) -> Any:
        if answer.is_error:
            raise Refused(answer)
        return answer.json()

    def cli(self, *arguments: str, statuses: tuple[int, ...] = (0,)) -> None:
        """Run a command of the CLI, which must end with one of these statuses; print it and its output with --all."""
        self.output.detail(f"\n$ pinner {' '.join(arguments)}")
        command = [str(environment.BIN / "pinner"), *arguments]
        quiet = {} if self.output.shows_all else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, check=False, text=True, env={**os.environ, "PINNER_URL": self.url}, **quiet)
        if done.returncode not in statuses:
            raise SystemExit(f"pinner {arguments[0]} ended with status {done.returncode}\n{done.stdout or ''}")

    def own_guests(self) -> list[Any]:
        """The demo's guests in pinner's inventory."""
        return [guest for guest in self.get(f"/v1/hosts/{self.host}/guests")["items"] if guest["name"] in self.guests]

    def threads(self) -> Threads:
        """Every thread of the demo's guests."""
        found: Threads = {}
        for guest in self.own_guests():
            emulator = [*guest["emulator"]["threads"], *guest["vhost_threads"]]
            found[guest["name"], "emulator"] = {thread["tid"]: thread for thread in emulator}
            for kind in ("vcpu", "iothread"):
                for part in guest[f"{kind}s"]:
                    found[guest["name"], f"{kind} {part['id']}"] = {part["thread"]["tid"]: part["thread"]}
        return found

    def measure(self) -> Window:
        """Run delays, and drops and pings where a guest gets packets, in a window of SPAN_SECONDS."""
        received = self.packets.guest.received() if self.packets else 0
        first, began = self.threads(), time.monotonic()
        if self.packets:
            self.packets.traffic.begin(SPAN_SECONDS)
        print(f"   measuring for {SPAN_SECONDS} s ", end="", flush=True)
        for _ in range(SPAN_SECONDS):
            time.sleep(1)
            print(".", end="", flush=True)
        print()
        load = self.packets.traffic.load() if self.packets else None
        second, span = self.threads(), time.monotonic() - began
        delays = {
            role: sum(t["delay_ns"] - first[role][tid]["delay_ns"] for tid, t in threads.items() if tid in first[role])
            for role, threads in second.items()
        }
        delays_ms = {role: delay / 1e6 / span for role, delay in delays.items()}
        received = self.packets.guest.received() - received if self.packets else 0
        return Window(load, received, delays_ms)

    def undo(self) -> None:
        """Roll back every applied run, including runs of the user and runs that Ctrl-C interrupted."""
        for run in self.get("/v1/runs")["items"]:
            while run["state"] == "running":
                time.sleep(0.1)
                run = self.get(f"/v1/runs/{run['id']}")["run"]
            if run["kind"] == "apply" and run["state"] in ("applied", "applied_partly"):
                self.cli("rollback", run["id"], "--yes")

    def run(self) -> None:
        """Run all steps of the demo."""
        output = self.output
        if output.shows_all:
            output.heading("Inventory of this host")
            self.cli("inventory", "--sample-seconds", "2")
            output.heading("Comparison of the three strategies, planned from one snapshot")
            self.cli("compare", "--sample-seconds", "2", "--with-processes", *self._scope())
        output.heading("What hurts: guests, their emulator threads and a busy daemon share the CPUs")
        before = self.measure()
        output.line(textwrap.indent(summary(before), "   "))
        owners = {guest["pid"]: f"{guest['name']} emulator" for guest in self.own_guests()}
        owners[self.daemon] = f"process {self.daemon}"
        before_masks = masks.read(owners)

        output.heading("The plan, by strategy shared-pool: applied over REST while the guests run")
        plan, run = self.apply()
        roles = {tid: " ".join(role) for role, threads in self.threads().items() for tid in threads}
        masks.as_planned(plan, owners, roles, output)

        output.heading("After: the same measurement, for the same time")
        after = self.measure()
        for line in table(before, after, every=output.shows_all):
            output.line(line)
        output.line(textwrap.fill(verdict(before, after), 110, initial_indent="   ", subsequent_indent="   "))
        output.line("   One window of time before and one after cannot tell the plan's part from other changes.")

        output.heading("Undo: every thread gets its prior mask again")
        # Status 1 if a thread has ended since; the masks of the other threads are checked.
        self.cli("rollback", run, "--yes", statuses=(0, 1))
        masks.as_before(before_masks, masks.read(owners), output)
        self.cli("audit", "list", "--limit", "12")
        self.cli("audit", "verify")
        output.line("   audit trail: plan, apply and rollback are recorded; `pinner audit verify` finds them intact")

    def _scope(self) -> list[str]:
        return [word for guest in self.guests for word in ("--guest", guest)]

    def apply(self) -> tuple[Any, str]:
        """Plan and apply, for the demo's own guests and daemon only; the plan, and the run's id.

        The host may change between plan and apply, for instance because another program moves or ends. Then the plan
        is stale, and the demo plans anew.
        """
        own = {"guests": self.guests, "processes": [str(self.daemon)], "sample_seconds": 2}
        for left in reversed(range(_TRIES)):
            plan = self.post(f"/v1/hosts/{self.host}/plans", strategy="shared-pool", **own)
            try:
                run = self.post(f"/v1/plans/{plan['id']}/apply")["id"]
                break
            except Refused as refused:
                if refused.status != _CONFLICT or not left:
                    raise
                self.output.line("   the plan was refused (has the host changed since it was made?): planning anew")
        self._show(plan)
        self._follow(run)
        return plan, run

    def _show(self, plan: Any) -> None:
        """The plan as a picture with --all, else what each set of CPUs is for."""
        if self.output.shows_all:
            self.cli("topology", "--plan", plan["id"])
            return
        targets: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for wanted in plan["wanted"]:
            kind = "the busy daemon" if wanted["target"]["kind"] == "process" else f"{wanted['target']['kind']}s"
            targets[wanted["cpus"]][kind] += 1
        for cpus, kinds in sorted(targets.items()):
            what = ", ".join(kind if kind.startswith("the") else f"{count} {kind}" for kind, count in kinds.items())
            self.output.line(f"   CPU {cpus:<10} {what}")

    def _follow(self, run: str) -> None:
        with self.http.stream("GET", f"/v1/runs/{run}/events") as events:
            for line in events.iter_lines():
                if line.startswith("data:"):
                    self._show_event(line.removeprefix("data:"))
        state = self.get(f"/v1/runs/{run}")["run"]
        self.output.line(f"   run {run}: {state['state']}")
        if state["state"] != "applied":
            raise SystemExit(f"the run did not end applied: {state['error']}")

    def _show_event(self, data: str) -> None:
        progress = json.loads(data)
        if entry := progress["entry"]:
            change = entry["change"]
            if change["kind"] == "metadata":
                what = "the guest's metadata names the pins that follow"
            else:
                what = f"{', '.join(sorted({thread['cpus'] for thread in change['before']}))} -> {change['after']}"
            target = Target(**change["target"])
            self.output.detail(f"   {progress['done']:2}/{progress['total']} {target}: {what} {entry['state']}")
