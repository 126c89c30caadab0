"""The environment of a scenario: three guests and two daemons that start and end, a daemon that pinner must not move,
and a real `pinner serve` that can be killed."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import private_libvirt
from faults.bystanders import Bystanders
from faults.clock import Clock
from support.server.accounts import api_config
from support.server.policy_host import Daemon, PolicyServer, wait_until
from support.system.kernel import masks, names, started

DEADLINE = 60.0
"""Seconds after which an operation that should end counts as hung."""
SECOND_SECONDS = 20.0
"""Seconds in which a second pinner on the same state ends by itself."""
UNKNOWN = ""
"""The mask of a thread that its own process changes."""
_CONFIG = """\
[agent]
state_dir = {folder}/state
recover = {recover}
[libvirt]
uri = {uri}
call_timeout = 5
[policy]
resync_seconds = 2
[host]
sample_seconds = 0.1
[nova]
ignore_nova_conf = true
"""
_GUESTS: tuple[dict[str, Any], ...] = (
    {"vcpus": 3, "plugged": 2, "iothreads": 1},
    {"vcpus": 1, "iothreads": 0},
    {"vcpus": 2, "iothreads": 2},
)
_numbers = count()

Part = tuple[str, str]
"""The name of a guest or daemon, and the role of its threads: "vcpu 0", "iothread 1", "emulator" or "thread"."""


@dataclass(frozen=True)
class ExternalMove:
    """A change of a thread's affinity by another program."""

    at: datetime
    part: Part
    tid: int
    started: int
    cpus: str


class Violation(AssertionError):
    """A state of the host that pinner must never cause; ``kind`` is a label to compare two failures."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass
class Environment:
    """The guests, daemons and server of one scenario; ``close`` ends all of them."""

    uri: str
    recover: str
    guests: list[str] = field(default_factory=list)
    """The names of all defined guests, running or not."""
    daemons: list[Daemon] = field(default_factory=list)
    external_moves: list[ExternalMove] = field(default_factory=list)
    disturbed: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The last time that a guest or daemon ended, or that another program moved a thread."""
    logs: list[Path] = field(default_factory=list)
    mode: str = ""
    """The policy's mode; empty while no policy is set."""
    excluded: set[str] = field(default_factory=set)
    """The guests that are excluded from the policy."""
    bystanders: Bystanders = field(default_factory=Bystanders)

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pinner-scenario-"))
        self.folder.chmod(0o711)
        self.clock = Clock(self.folder)
        self._config = self.folder / "pinner.conf"
        config = _CONFIG.format(folder=self.folder, recover=self.recover, uri=self.uri)
        self._config.write_text(config + api_config())
        for number, parts in enumerate(_GUESTS):
            name = f"scenario-{os.getpid()}-{next(_numbers)}"
            xml = private_libvirt.guest_xml(name, memory_mib=32, **parts)
            if number == len(_GUESTS) - 1:
                xml = xml.replace("<vcpu ", "<vcpu cpuset='0' ")
            private_libvirt.define_guest(self.uri, xml, paused=True)
            self.guests.append(name)
        for _ in range(3):
            daemon = Daemon(self.folder, f"st{os.getpid()}-{next(_numbers)}"[:15])
            daemon.start()
            daemon.wait_ready()
            self.daemons.append(daemon)
        self.unmanaged = self.daemons.pop()
        self.initial_masks = {part: mask for (part, _), mask in self.threads().items()}
        """The mask of every part at the start; all threads of a part have the same mask."""
        self.definitions = self.pins_defined()
        self.start_pinner()

    def start_pinner(self) -> None:
        """Start pinner, for the first time or again."""
        self.logs.append(self.folder / f"log-{len(self.logs)}")
        self.server = PolicyServer(self._pinner(self.logs[-1]), self.logs[-1])
        self.server.http.timeout = DEADLINE

    def run_second_pinner(self) -> int | None:
        """Start another pinner on the same state; its exit status, or None where it does not end and is killed."""
        with self._pinner(self.folder / "log-of-second") as second:
            try:
                return second.wait(SECOND_SECONDS)
            except subprocess.TimeoutExpired:
                second.terminate()
                return None

    def _pinner(self, log: Path) -> subprocess.Popen[str]:
        command = [Path(sys.executable).with_name("pinner"), "serve", "--config-file", self._config, "--port", "0"]
        with log.open("w") as out:
            variables = os.environ | self.clock.variables | {"PYTHONFAULTHANDLER": "1"}
            return subprocess.Popen(command, stdout=out, stderr=out, text=True, env=variables)

    def kill_pinner(self, processes: str) -> None:
        """Send SIGKILL to the agent, the API or both; where only one is killed, the other must end by itself."""
        agent, *api = self.server.pids()
        ends = [os.pidfd_open(pid) for pid in (agent, *api)]
        for pid in {"agent": [agent], "api": api, "both": [agent, *api]}[processes]:
            os.kill(pid, signal.SIGKILL)
        self.server.process.wait(DEADLINE)
        for end in ends:
            if not select.select([end], [], [], DEADLINE)[0]:
                raise Violation("partly running", f"a process of pinner still runs after SIGKILL to: {processes}")
            os.close(end)

    def stop_pinner(self) -> None:
        """Stop pinner by SIGTERM, as the init system does."""
        pids = self.server.pids()
        self.server.process.send_signal(signal.SIGTERM)
        try:
            self.server.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            for pid in reversed(pids):
                # faulthandler then writes the stack of each thread to the log.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGABRT)
            self.server.process.wait(DEADLINE)
            raise Violation("hung", f"pinner does not end: {self.logs[-1].read_text()[-20_000:]}") from None

    def virsh(self, *arguments: str) -> str:
        return private_libvirt.virsh(self.uri, *arguments)

    def qemus(self) -> dict[str, int]:
        """The process id of each running guest."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if guest := re.search(rb"guest=(scenario-[\d-]+),", path.read_bytes()):
                    found[guest[1].decode()] = int(path.parent.name)
        return {name: found[name] for name in self.guests if name in found}

    def running(self) -> list[Daemon]:
        """The running daemons."""
        return [daemon for daemon in self.daemons if daemon.is_running]

    def threads(self) -> dict[tuple[Part, int], str]:
        """The kernel's affinity mask of every thread of the guests and daemons, by part and thread id."""
        found = {}
        for name, pid in self.qemus().items():
            with suppress(OSError):
                named = names(pid)
                found |= {((name, _role(named[tid])), tid): mask for tid, mask in masks(pid).items() if tid in named}
        for daemon in self.running():
            found |= {((daemon.name, "thread"), tid): mask for tid, mask in masks(daemon.pid).items()}
        return found

    def mark_unknown(self, daemon: Daemon) -> None:
        """Record that the masks of the daemon's threads are not known, because the daemon sets them itself."""
        self.mark_disturbed()
        for tid in masks(daemon.pid):
            move = ExternalMove(self.disturbed, (daemon.name, "thread"), tid, started(tid), UNKNOWN)
            self.external_moves.append(move)

    def mark_disturbed(self) -> None:
        """Record that earlier runs may no longer be rolled back completely, because the host has changed."""
        self.disturbed = datetime.now(UTC)

    def move_from_outside(self, threads: Mapping[int, Part], cpus: str, move: Callable[[], object]) -> bool:
        """Move threads as a program other than pinner does; returns whether that was possible."""
        at = datetime.now(UTC)
        try:
            moves = [ExternalMove(at, part, tid, started(tid), cpus) for tid, part in threads.items()]
            move()
        except (OSError, subprocess.CalledProcessError):
            return False
        finally:
            self.mark_disturbed()
        self.external_moves += moves
        return True

    def pins_defined(self) -> dict[str, list[str]]:
        """The pins in the persistent definition of each guest."""
        return {
            name: sorted(re.findall(r"<\w+pin [^>]*>", self.virsh("dumpxml", "--inactive", name)))
            for name in self.guests
        }

    def get(self, *path: str) -> dict[str, Any]:
        """The body of the answer to a GET."""
        answer = self.server.http.get("/".join(("", *path)))
        assert answer.status_code == 200, f"{'/'.join(path)}: {answer.text}"
        return dict(answer.json())

    def post(self, *path: str, **body: object) -> tuple[int, dict[str, Any]]:
        """The answer to a POST: success, 409 because of another run or change, or 400 because a set that the request
        names has the CPUs of an excluded guest; any other status is a defect."""
        answer = self.server.http.post("/".join(("", *path)), json=body)
        assert answer.status_code in (201, 202, 409) or self._has_excluded(answer), f"{'/'.join(path)}: {answer.text}"
        return answer.status_code, dict(answer.json())

    def _has_excluded(self, answer: httpx.Response) -> bool:
        """Whether a request is refused because it names CPUs of an excluded guest."""
        owners = re.findall(r"restricted affinity of guest (\S+), which is excluded", answer.text)
        return answer.status_code == 400 and bool(owners) and self.excluded.issuperset(owners)

    def wait_ended(self, run: str) -> dict[str, Any]:
        """The run, once it has ended."""
        wait_until(lambda: self.get("runs", run)["run"]["state"] != "running", DEADLINE)
        found = dict(self.get("runs", run)["run"])
        if found["state"] == "running":
            raise Violation("hung", f"a run does not end: {found}")
        return found

    def applies(self) -> list[dict[str, Any]]:
        """The ended runs of kind "apply", the last one first."""
        return [run for run in self.server.runs() if run["kind"] == "apply" and run["state"] != "running"]

    def whole_rollbacks(self) -> list[dict[str, Any]]:
        """The ended rollbacks of all runs."""
        runs = self.server.runs()
        return [run for run in runs if run["kind"] == "rollback" and not run["undoes"] and run["state"] != "running"]

    def put_policy(self, mode: str, strategy: str = "shared-pool", housekeeping: str = "auto") -> bool:
        """Set a policy for all guests and daemons, running or not. Returns False, and changes nothing, where the
        policy names CPUs of an excluded guest."""
        request = {"strategy": strategy, "housekeeping": housekeeping}
        answer = self.server.put_policy(mode, self.guests, [daemon.name for daemon in self.daemons], **request)
        assert answer.status_code == 200 or self._has_excluded(answer), answer.text
        if answer.is_success:
            self.mode = mode
        return answer.is_success

    def last_log_lines(self) -> str:
        """The last 20 lines in the logs of the last two servers, without the lines of API calls."""
        lines = [line for log in self.logs[-2:] for line in log.read_text().splitlines() if re.match(r"20\d\d-", line)]
        return "\n".join([line for line in lines if "api.access.access" not in line][-20:])

    def close(self) -> None:
        """End the server, the guests and the daemons, and delete their files."""
        if self.server.process.poll() is None:
            self.kill_pinner("both")
        self.server.http.close()
        for pid in self.qemus().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.guests:
            with suppress(subprocess.CalledProcessError):
                self.virsh("undefine", "--managed-save", name)
        self.bystanders.close()
        self.clock.close()
        for daemon in (*self.daemons, self.unmanaged):
            daemon.stop()
        shutil.rmtree(self.folder)


def _role(thread: str) -> str:
    """The role of a QEMU thread of this name."""
    if found := re.fullmatch(r"(?:CPU |IO iothread)(\d+)(?:/\w+)?", thread):
        return f"{'vcpu' if thread.startswith('CPU') else 'iothread'} {found[1]}"
    return "emulator"
