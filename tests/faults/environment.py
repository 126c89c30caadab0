"""The host that a story is played on: three guests and two daemons that come and go, one that nobody may touch, and a
real `pinner serve` that can be killed."""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import private_libvirt
from support.kernel import masks, names, started
from support.policy_host import Daemon, PolicyServer, wait_until

DEADLINE = 60.0
"""Seconds after which what should come to an end counts as hung."""
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
"""
_GUESTS: tuple[dict[str, Any], ...] = (
    {"vcpus": 3, "plugged": 2, "iothreads": 1},
    {"vcpus": 1, "iothreads": 0},
    {"vcpus": 2, "iothreads": 2},
)
_numbers = count()

Part = tuple[str, str]
"""A guest or daemon by name, and what of it: "vcpu 0", "iothread 1", "emulator" or "thread"."""


@dataclass(frozen=True)
class Moved:
    """What somebody else did to a thread."""

    at: datetime
    part: Part
    tid: int
    started: int
    cpus: str


class Unsound(AssertionError):
    """What must never be; ``kind`` tells one such thing from another."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass
class Environment:
    """``close`` ends everything."""

    uri: str
    recover: str
    guests: list[str] = field(default_factory=list)
    """All are defined, whether they run or not."""
    daemons: list[Daemon] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    disturbed: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When last a guest or daemon ended, or somebody else moved a thread."""
    logs: list[Path] = field(default_factory=list)
    mode: str = ""
    """The policy's; empty: none was set."""
    alone: set[str] = field(default_factory=set)
    """The guests that are marked to be left alone."""

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pinner-story-"))
        self.folder.chmod(0o711)
        self._config = self.folder / "pinner.conf"
        self._config.write_text(_CONFIG.format(folder=self.folder, recover=self.recover, uri=self.uri))
        for number, parts in enumerate(_GUESTS):
            name = f"story-{os.getpid()}-{next(_numbers)}"
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
        self.bystander = self.daemons.pop()
        self.first = {part: mask for (part, _), mask in self.threads().items()}
        """The mask of every part at the start; all threads of a part have the same."""
        self.definitions = self.pins_defined()
        self.serve()

    def serve(self) -> None:
        """Start pinner, anew or again."""
        self.logs.append(self.folder / f"log-{len(self.logs)}")
        command = [Path(sys.executable).with_name("pinner"), "serve", "--config-file", self._config, "--port", "0"]
        with self.logs[-1].open("w") as out:
            traced = os.environ | {"PYTHONFAULTHANDLER": "1"}
            process = subprocess.Popen(command, stdout=out, stderr=out, text=True, env=traced)
        self.kept = PolicyServer(process, self.logs[-1])
        self.kept.http.timeout = DEADLINE

    def kill_pinner(self, who: str) -> None:
        """kill -9 of the agent, the API or both; of either the other one ends by itself."""
        agent, *api = self.kept.pids()
        ends = [os.pidfd_open(pid) for pid in (agent, *api)]
        for pid in {"agent": [agent], "api": api, "both": [agent, *api]}[who]:
            os.kill(pid, signal.SIGKILL)
        self.kept.process.wait(DEADLINE)
        for end in ends:
            if not select.select([end], [], [], DEADLINE)[0]:
                raise Unsound("half alive", f"pinner lives on after the end of: {who}")
            os.close(end)

    def stop_pinner(self) -> None:
        """As the init system does."""
        pids = self.kept.pids()
        self.kept.process.send_signal(signal.SIGTERM)
        try:
            self.kept.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            for pid in reversed(pids):
                # It writes down what each of its threads is at.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGABRT)
            self.kept.process.wait(DEADLINE)
            raise Unsound("hangs", f"pinner does not end: {self.logs[-1].read_text()[-20_000:]}") from None

    def virsh(self, *arguments: str) -> str:
        return private_libvirt.virsh(self.uri, *arguments)

    def qemus(self) -> dict[str, int]:
        """The process of each guest that runs."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if guest := re.search(rb"guest=(story-[\d-]+),", path.read_bytes()):
                    found[guest[1].decode()] = int(path.parent.name)
        return {name: found[name] for name in self.guests if name in found}

    def running(self) -> list[Daemon]:
        """The daemons that run."""
        return [daemon for daemon in self.daemons if daemon.is_running]

    def threads(self) -> dict[tuple[Part, int], str]:
        """The kernel's word on every thread of guests and daemons, by what it is part of."""
        found = {}
        for name, pid in self.qemus().items():
            with suppress(OSError):
                called = names(pid)
                found |= {((name, _part(called[tid])), tid): mask for tid, mask in masks(pid).items() if tid in called}
        for daemon in self.running():
            found |= {((daemon.name, "thread"), tid): mask for tid, mask in masks(daemon.pid).items()}
        return found

    def disturb(self) -> None:
        """Something has just happened that the rollback of a run from before may not be able to take back."""
        self.disturbed = datetime.now(UTC)

    def somebody_moves(self, threads: Mapping[int, Part], cpus: str, move: Callable[[], object]) -> bool:
        """Whether the move of these threads, which is not pinner's, could be made."""
        at = datetime.now(UTC)
        try:
            made = [Moved(at, part, tid, started(tid), cpus) for tid, part in threads.items()]
            move()
        except (OSError, subprocess.CalledProcessError):
            return False
        finally:
            self.disturb()
        self.moved += made
        return True

    def pins_defined(self) -> dict[str, list[str]]:
        """The pins of each guest's persistent definition."""
        return {
            name: sorted(re.findall(r"<\w+pin [^>]*>", self.virsh("dumpxml", "--inactive", name)))
            for name in self.guests
        }

    def get(self, *path: str) -> dict[str, Any]:
        """What a GET answers."""
        answer = self.kept.http.get("/".join(("", *path)))
        assert answer.status_code == 200, f"{'/'.join(path)}: {answer.text}"
        return dict(answer.json())

    def post(self, *path: str, **body: object) -> tuple[int, dict[str, Any]]:
        """What a POST answers: done, or refused because of what else goes on; anything else is a defect."""
        answer = self.kept.http.post("/".join(("", *path)), json=body)
        assert answer.status_code in (201, 202, 409), f"{'/'.join(path)}: {answer.text}"
        return answer.status_code, dict(answer.json())

    def ended(self, run: str) -> dict[str, Any]:
        """The run when it has ended."""
        wait_until(lambda: self.get("runs", run)["run"]["state"] != "running", DEADLINE)
        found = dict(self.get("runs", run)["run"])
        if found["state"] == "running":
            raise Unsound("hangs", f"a run does not end: {found}")
        return found

    def applies(self) -> list[dict[str, Any]]:
        """The applies that have ended, the last one first."""
        return [run for run in self.kept.runs() if run["kind"] == "apply" and run["state"] != "running"]

    def undo(self, run: dict[str, Any], told: Counter[str]) -> None:
        """Roll back a run; where nothing stands in the way of it, it must be taken back whole."""
        status, begun = self.post("runs", run["id"], "rollback")
        if status == 409:
            told["refused"] += 1
            if self.mode != "enforce":
                raise Unsound("refused", f"a run that is {run['state']} is not taken back: {begun}")
            return
        ended = self.ended(begun["id"])
        told[f"rollbacks {ended['state']}"] += 1
        if ended["state"] == "rolled_back_partly" and not ended["error"]:
            raise Unsound("untold", f"what could not be taken back is not told: {ended}")
        undisturbed = datetime.fromisoformat(run["started_at"]) > self.disturbed
        if ended["state"] != "rolled_back" and (undisturbed or ended["state"] != "rolled_back_partly"):
            raise Unsound("rollback", f"it ends {ended['state']}: {ended['error']}")

    def put_policy(self, mode: str, strategy: str = "shared-pool", housekeeping: str = "auto") -> None:
        """For all guests and daemons, whether they are there or not."""
        request = {"strategy": strategy, "housekeeping": housekeeping}
        self.kept.policy(mode, self.guests, [daemon.name for daemon in self.daemons], **request)
        self.mode = mode

    def last_words(self) -> str:
        """What the last two servers logged last, but for the calls."""
        lines = [line for log in self.logs[-2:] for line in log.read_text().splitlines() if re.match(r"20\d\d-", line)]
        return "\n".join([line for line in lines if "api.access" not in line][-20:])

    def close(self) -> None:
        """End the guests and the daemons; of the server, what is left of it."""
        if self.kept.process.poll() is None:
            self.kill_pinner("both")
        self.kept.http.close()
        for pid in self.qemus().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.guests:
            with suppress(subprocess.CalledProcessError):
                self.virsh("undefine", "--managed-save", name)
        for daemon in (*self.daemons, self.bystander):
            daemon.stop()
        shutil.rmtree(self.folder)


def _part(thread: str) -> str:
    """What a thread of QEMU is, by its name."""
    if found := re.fullmatch(r"(?:CPU |IO iothread)(\d+)(?:/\w+)?", thread):
        return f"{'vcpu' if thread.startswith('CPU') else 'iothread'} {found[1]}"
    return "emulator"
