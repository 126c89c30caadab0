"""A demonstration of pinner, from the inventory of a host to an exact rollback: `make demo`, `make demo KEEP=1`."""

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import demo_environment as environment
import demo_masks as masks
import httpx
import rights
from demo_environment import say
from demo_figures import Window, table, verdict
from demo_guest import LinuxGuest, linux_guest
from demo_linux import NoLinux
from demo_traffic import NoTraffic, Traffic, traffic

from pinner.model.change import Target

SPAN_SECONDS = 8
"""The time over which drops, pings and run delay are measured, before and after the apply."""
STRATEGIES = ("shared-pool", "numa-local", "isolated")

NEEDED_FOR_PACKETS = ("taps", "network_namespaces")


class Packets(NamedTuple):
    """A guest that gets packets, and their source."""

    guest: LinuxGuest
    traffic: Traffic


Threads = dict[tuple[str, str], dict[int, Any]]
"""The threads of each guest and role, by thread id, as pinner's inventory shows them."""


class Demo:
    """The steps of the demo: each one calls the REST API, or the CLI against the same server."""

    def __init__(self, url: str, guests: tuple[str, ...], daemon: int, packets: Packets | None) -> None:
        self.url = url
        transport = httpx.HTTPTransport(uds=url.removeprefix("unix:"))
        self.http = httpx.Client(transport=transport, base_url="http://localhost", timeout=60)
        self.guests = (packets.guest.name, *guests) if packets else guests
        self.daemon = daemon
        self.packets = packets
        self.host = self.get("/v1/hosts")["items"][0]

    def get(self, path: str, **query: object) -> Any:
        """GET as JSON."""
        return self._answer(self.http.get(path, params=query))

    def post(self, path: str, **body: object) -> Any:
        """POST as JSON."""
        print(f"POST {path} {body or ''}", flush=True)
        return self._answer(self.http.post(path, json=body))

    @staticmethod
    def _answer(answer: httpx.Response) -> Any:
        if answer.is_error:
            raise SystemExit(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}")
        return answer.json()

    def cli(self, *arguments: str, statuses: tuple[int, ...] = (0,)) -> None:
        """Print and run a command of the CLI, which must end with one of these statuses."""
        print(f"\n$ pinner {' '.join(arguments)}", flush=True)
        command = [str(environment.BIN / "pinner"), *arguments]
        done = subprocess.run(command, check=False, env={**os.environ, "PINNER_URL": self.url})
        if done.returncode not in statuses:
            raise SystemExit(f"pinner {arguments[0]} ended with status {done.returncode}")

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
        say("Inventory of this host")
        self.cli("inventory", "--sample-seconds", "2")
        say("Comparison of the three strategies, planned from one snapshot")
        self.cli("compare", "--sample-seconds", "2", *self._scope())
        what = "dropped packets, pings, and " if self.packets else ""
        say(f"Before: {what}the time that the guests' threads wait for a CPU")
        before = self.measure()
        owners = {guest["pid"]: f"{guest['name']} emulator" for guest in self.own_guests()}
        owners[self.daemon] = f"process {self.daemon}"
        before_masks = masks.read(owners)

        say("Plan and apply shared-pool over REST, while the guests run")
        request = {"strategy": "shared-pool", "guests": self.guests, "with_processes": True, "sample_seconds": 2}
        plan = self.post(f"/v1/hosts/{self.host}/plans", **request)
        self.cli("topology", "--plan", plan["id"])
        run = self.apply(plan)
        roles = {tid: " ".join(role) for role, threads in self.threads().items() for tid in threads}
        masks.as_planned(plan, owners, roles)

        say("After: the same measurement, for the same time")
        after = self.measure()
        said = textwrap.fill(verdict(before, after), 110, initial_indent="   ", subsequent_indent="   ")
        print(*table(before, after), "", said, sep="\n")
        print("   One window of time before and one after cannot tell the plan's part from other changes of the load.")

        say("The audit trail")
        self.cli("audit", "list", "--limit", "12")
        self.cli("audit", "verify")

        say("Rollback: every thread gets its previous mask again")
        # Status 1 if a busy process of this machine has ended since; the masks of the other threads are checked.
        self.cli("rollback", run, "--yes", statuses=(0, 1))
        masks.as_before(before_masks, masks.read(owners))

    def _scope(self) -> list[str]:
        return ["--with-processes", *(word for guest in self.guests for word in ("--guest", guest))]

    def apply(self, plan: Any) -> str:
        """Apply a plan and follow its run over REST; the run's id."""
        run = self.post(f"/v1/plans/{plan['id']}/apply")["id"]
        with self.http.stream("GET", f"/v1/runs/{run}/events") as events:
            for line in events.iter_lines():
                if line.startswith("data:"):
                    self._show_event(line.removeprefix("data:"))
        state = self.get(f"/v1/runs/{run}")["run"]
        print(f"run {run}: {state['state']}")
        if state["state"] != "applied":
            raise SystemExit(f"the run did not end applied: {state['error']}")
        return run

    @staticmethod
    def _show_event(data: str) -> None:
        progress = json.loads(data)
        if entry := progress["entry"]:
            change = entry["change"]
            if change["kind"] == "metadata":
                what = "the guest's metadata names the pins that follow"
            else:
                what = f"{', '.join(sorted({thread['cpus'] for thread in change['before']}))} -> {change['after']}"
            target = Target(**change["target"])
            print(f"   {progress['done']:2}/{progress['total']} {target}: {what} {entry['state']}")


@contextmanager
def interruptible() -> Iterator[None]:
    """End the demo on Ctrl-C and SIGTERM by an exception, so that every ``finally`` runs."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, stop)
    try:
        yield
    except KeyboardInterrupt:
        print("\ninterrupted: everything was undone", flush=True)
        raise SystemExit(130) from None
    except (NoLinux, NoTraffic) as error:
        raise SystemExit(f"the demo cannot run: {error}") from None


def run_demo(ready: int | None) -> None:
    """Set up, run the demo, clean up. With a pipe ``ready`` the service stays, and a byte in the pipe says so."""
    began = time.monotonic()
    with interruptible(), ExitStack() as stack:
        say("Setup")
        folder = stack.enter_context(environment.scratch())
        uri = stack.enter_context(environment.any_libvirtd(folder))
        linux = stack.enter_context(linux_guest(uri, folder)) if _may_send_packets() else None
        guests = stack.enter_context(environment.guests(uri, folder))
        url = stack.enter_context(environment.service(folder, uri))
        packets = Packets(linux, stack.enter_context(traffic(linux.tap))) if linux else None
        daemon = stack.enter_context(environment.busy_daemon())
        demo = Demo(url, guests, daemon, packets)
        stack.callback(demo.undo)
        demo.run()
        print(f"\n   the demo took {time.monotonic() - began:.0f} s")
        if ready is not None:
            _wait_for_signal(url, ready)
        say("Cleanup")
    print("   the guests, the daemon, the service, its user and their files are removed")


def _may_send_packets() -> bool:
    """Whether a guest can get a tap and a network of its own here. Where not, it is said."""
    if right := rights.lacking(*NEEDED_FOR_PACKETS):
        print(
            f"this machine does not let the demo {rights.RIGHTS[right].allows} ({rights.why(right)}), as a container:\n"
            "guests get QEMU's own network; the demo shows run delay, but no dropped packets and no pings",
            flush=True,
        )
    return not right


def _wait_for_signal(url: str, ready: int) -> None:
    pinner = environment.BIN / "pinner"
    say(f"The service continues to run, with the guests and the daemon, at {url}")
    print(f"   export PINNER_URL={url}")
    print(f"   {pinner} compare")
    print(f"   {pinner} apply --strategy shared-pool")
    print(f"   {pinner} topology")
    print(f"   kill {os.getpid()}      # ends all of them and cleans up", flush=True)
    os.write(ready, b".")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    signal.pause()


def run_in_background() -> int:
    """Run the demo in a session of its own, whose service continues to run when this process ends."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        os.setsid()
        run_demo(sender)
        return 0
    os.close(sender)
    signal.signal(signal.SIGINT, lambda *_: os.kill(child, signal.SIGTERM))
    if os.read(receiver, 1):
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> int:
    """Parse the arguments and run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the service running; print how to use and end it")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("pinning other users' processes and guests needs root: sudo make demo")
    if arguments.keep:
        return run_in_background()
    run_demo(None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
