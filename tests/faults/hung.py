"""One guest hangs for all of the time under an enforced policy; other guests start and must be placed in 2 seconds.

Run ``python tests/faults/hung.py`` as root (make test-hung). A private libvirtd and a `pinner serve` with its default
options run. The QEMU of one guest is stopped before it is placed, while a libvirt job waits for it. Then another guest
is destroyed and started every 10 to 20 seconds, and also whenever pinner tries the hung guest again. The time of each
placement is read from the kernel's masks. At the end the command prints its measurements, and each bound that is
broken; the exit status is then 1.
"""

import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import libvirt

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from support.guests.real_guests import ONLINE
from support.server.policy_host import EXACT, PolicyServer, guest_on, policy_server, wait_until
from support.system.kernel import masks

from pinner.host.processes import qemu

PLACED_SECONDS = 2.0
"""The longest time from the start of a guest to its placement."""
GIVE_UP = 60.0
"""Seconds: the recorded time of a guest that is not placed by then."""
RUN_SECONDS = 15.0
"""The longest time of a run."""
LATE = timedelta(seconds=15)
"""The longest time from the end of a backoff to the next attempt."""
GROWTH = {"threads": 8, "descriptors": 16, "MiB": 32}
"""How much of each a process of pinner may have more at the end than after the first starts."""
WARM_UP = 10
"""Starts after which pinner's processes are measured for the first time."""
HEALTHY = 3
ROOT = Path("/")

Usage = dict[str, int]


@dataclass
class Story:
    """The guests and the server, and the measurements so far."""

    server: PolicyServer
    connection: libvirt.virConnect
    names: list[str]
    """Of all guests; the first one is the hung guest."""
    roles: dict[str, str]
    random: Random
    seconds: list[float] = field(default_factory=list)
    """From each start of a guest to its placement."""
    broken: list[str] = field(default_factory=list)
    """The bounds that were broken."""

    def restart(self) -> None:
        """Destroy a guest, start it, and measure the time to its placement."""
        domain = self.connection.lookupByName(self.random.choice(self.names[1:]))
        domain.destroy()
        time.sleep(self.random.uniform(0, 2))
        domain.create()
        took = wait_until(lambda: self._is_placed(domain), GIVE_UP, EXACT)
        self.seconds.append(took)
        if took > PLACED_SECONDS:
            load, _, _ = os.getloadavg()
            why = f"guest {domain.name()} was placed {took:.2f} s after its start (load average {load:.1f})"
            self.broken.append(f"{datetime.now(UTC):%H:%M:%S} {why}")
            print(self.broken[-1], flush=True)

    def check_others(self) -> None:
        """Every guest but the hung one is still in its place."""
        for name in self.names[1:]:
            if not self._is_placed(self.connection.lookupByName(name)):
                self.broken.append(f"{datetime.now(UTC):%H:%M:%S} guest {name} has lost its place")

    def next_attempt(self) -> float:
        """Seconds until pinner tries the hung guest again; infinite where it is not in backoff now."""
        ends = [drift["backoff_until"] for drift in self.server.drift()["drifts"] if drift["backoff_until"]]
        return min(((datetime.fromisoformat(end) - datetime.now(UTC)).total_seconds() for end in ends), default=1e9)

    def usage(self) -> dict[str, Usage]:
        """What the agent's and the API's process use."""
        return dict(zip(("agent", "API"), map(_usage, self.server.pids()), strict=True))

    def _is_placed(self, domain: libvirt.virDomain) -> bool:
        with suppress(OSError):
            return guest_on(_qemu(domain), self.roles["emulator"], self.roles["vcpu"])
        return False


def main() -> int:
    """Run for the given time; returns 1 if a bound was broken."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the guest hangs (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the times and the choice of guests (default: 1)")
    arguments = parser.parse_args()
    if ONLINE != [0, 1] or private_libvirt.missing():
        print(f"not run: {private_libvirt.missing() or 'it needs CPUs 0 and 1 and no other'}", file=sys.stderr)
        return 0
    with _story(arguments.seed) as story, _hung(story) as job:
        before = masks(_qemu(story.connection.lookupByName(story.names[0])))
        start = _run(story, arguments.minutes)
        if job.poll() is not None or masks(_qemu(story.connection.lookupByName(story.names[0]))) != before:
            story.broken.append("the hung guest answered, or its masks changed")
        _report_starts(story)
        _report_runs(story)
        _report_backoffs(story)
        _report_usage(story, start)
    print("\n".join(f"BROKEN: {each}" for each in story.broken) or "every bound was kept")
    return bool(story.broken)


@contextmanager
def _story(seed: int) -> Iterator[Story]:
    """A server without a policy, and running guests."""
    names = [f"hung-{os.getpid()}-{number}" for number in range(1 + HEALTHY)]
    with (
        tempfile.TemporaryDirectory(prefix="pinner-hung-", dir="/tmp") as folder,
        private_libvirt.private_libvirtd(Path(folder) / "d") as uri,
    ):
        Path(folder).chmod(0o711)
        for name in names:
            private_libvirt.define_guest(uri, private_libvirt.guest_xml(name, memory_mib=32))
        state = Path(folder) / "serve"
        state.mkdir()
        with policy_server(state, uri) as server:
            yield Story(server, libvirt.open(uri), names, {}, Random(seed))


@contextmanager
def _hung(story: Story) -> Iterator[subprocess.Popen[bytes]]:
    """The first guest does not answer, and a job waits for it; then the policy is set, and the others are placed."""
    pid = _qemu(story.connection.lookupByName(story.names[0]))
    os.kill(pid, signal.SIGSTOP)
    uri = story.connection.getURI()
    query = ["virsh", "-c", uri, "qemu-monitor-command", story.names[0], '{"execute": "query-status"}']
    with subprocess.Popen(query, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            time.sleep(2)
            story.server.policy("enforce", story.names, housekeeping=str(ONLINE[0]))
            assert wait_until(story.server.roles, GIVE_UP) < GIVE_UP, story.server.log.read_text()
            story.roles = story.server.roles()
            yield job
        finally:
            os.kill(pid, signal.SIGCONT)


def _run(story: Story, minutes: float) -> dict[str, Usage]:
    """Restart guests until the minutes are up; returns the use of pinner's processes after the first starts."""
    ends, start = time.monotonic() + 60 * minutes, story.usage()
    while time.monotonic() < ends:
        story.restart()
        time.sleep(max(0.0, min(story.random.uniform(8, 18), story.next_attempt() - 1)))
        story.check_others()
        if len(story.seconds) == WARM_UP:
            start = story.usage()
        if len(story.seconds) % 20 == 0:
            print(f"{len(story.seconds)} starts, worst {max(story.seconds):.2f} s, {story.usage()}", flush=True)
    return start


def _report_starts(story: Story) -> None:
    found = sorted(story.seconds)
    p99 = statistics.quantiles(found, n=100)[98] if len(found) > 1 else found[0]
    print(
        f"{len(found)} starts; placed after {statistics.median(found):.3f} s (median), {p99:.3f} s (99 of 100), "
        f"{found[-1]:.3f} s (worst)"
    )


def _report_runs(story: Story) -> None:
    """The number of runs, and the longest one. A start may need two runs, an attempt needs one."""
    runs: list[dict[str, Any]] = _all(story.server, "/runs")
    took = [
        (datetime.fromisoformat(run["ended_at"]) - datetime.fromisoformat(run["started_at"])).total_seconds()
        for run in runs
        if run["ended_at"]
    ]
    states = Counter(run["state"] for run in runs)
    print(f"{len(runs)} runs ({dict(states)}), {statistics.median(took):.3f} s (median), {max(took):.3f} s (worst)")
    if max(took) > RUN_SECONDS:
        story.broken.append(f"a run took {max(took):.1f} s")
    if len(runs) > 2 * len(story.seconds) + len(_backoffs(story)) + 1:
        story.broken.append(f"{len(runs)} runs for {len(story.seconds)} starts and {len(_backoffs(story))} attempts")


def _backoffs(story: Story) -> list[dict[str, Any]]:
    """The records of the hung guest's backoffs, the first one first."""
    records = [record for record in reversed(_all(story.server, "/audit")) if record["action"] == "drift.backoff"]
    return [record for record in records if record["subject"] == f"guest {story.names[0]}"]


def _report_backoffs(story: Story) -> None:
    """Each attempt is reported once in the audit trail, at the end of the backoff before it, and once in the log."""
    records, until = _backoffs(story), None
    for number, record in enumerate(records, start=1):
        found = re.match(r"attempt (\d+) failed, skipped until (\S+):", record["result"])
        assert found is not None, record["result"]
        at = datetime.fromisoformat(record["at"])
        if int(found[1]) != number or (until and not until - timedelta(seconds=1) <= at <= until + LATE):
            story.broken.append(f"report {number} of the hung guest came at {at}, due {until}: {record['result']}")
        until = datetime.fromisoformat(found[2])
    if until is None or datetime.now(UTC) > until + LATE:
        story.broken.append(f"the hung guest was not tried again; its last backoff ended at {until}")
    warned = story.server.log.read_text().count("the policy cannot be kept")
    print(f"the hung guest: {len(records)} reports in the audit trail, {warned} in the log; next attempt after {until}")
    if warned > len(records):
        story.broken.append(f"{warned} warnings in the log, {len(records)} backoffs")


def _report_usage(story: Story, start: dict[str, Usage]) -> None:
    for process, now in story.usage().items():
        print(f"{process}: " + ", ".join(f"{what} {start[process][what]} -> {now[what]}" for what in now))
        for what, most in GROWTH.items():
            if (grown := now[what] - start[process][what]) > most:
                story.broken.append(f"the {process} has {grown} {what} more than at the start")


def _all(server: PolicyServer, path: str) -> list[dict[str, Any]]:
    """All items of a list, the newest one first."""
    found: list[dict[str, Any]] = []
    marker: dict[str, str] = {}
    while True:
        answer = server.http.get(path, params={"limit": "500"} | marker)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["items"]
        if not page["next"]:
            return found
        marker = {"marker": page["next"]}


def _usage(pid: int) -> Usage:
    status = Path(f"/proc/{pid}/status").read_text()
    read = {name: int(number) for name, number in re.findall(r"^(Threads|VmRSS):\s*(\d+)", status, re.MULTILINE)}
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"threads": read["Threads"], "descriptors": files, "MiB": read["VmRSS"] // 1024}


def _qemu(domain: libvirt.virDomain) -> int:
    uuid = domain.UUIDString()
    return qemu.find(ROOT, {uuid}).qemus[uuid]


if __name__ == "__main__":
    sys.exit(main())
