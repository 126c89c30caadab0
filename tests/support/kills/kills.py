"""Processes that apply, roll back or recover, and are killed by SIGKILL at a chosen point.

There is a point before and after each call of the journal, before each COMMIT inside it, and before and after each
write to the host. The processes are forks of one process that has imported pinner, which saves time. Each opens its
own connection to libvirt, database connection and lock file.
"""

import multiprocessing
import os
import pickle
import re
import signal
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

from sqlalchemy import event
from support.fakes.in_memory_host import InMemoryHost
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.ports import Host
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import NamedPins, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import KINDS
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Run
from pinner.model.states import PartitionState, State, cpus_of
from pinner.store.journal.journal import StoredJournal

NEVER = -1
WRITES = ("pin", "set_mask", "set_state", "restore_definition", "set_numatune", "move_memory", "name_pins")
RECORDS = ("begin", "intend", "note", "end")
_WRITING = re.compile("guest-file-(write|flush)")
"""The commands to the agent of a guest that change the guest."""


@dataclass(frozen=True)
class Work:
    """The work of one process; ``where`` is libvirt's URI, or the file of a simulated host."""

    folder: Path
    where: str | Path
    plan: Plan
    persist: bool = False
    migrate_memory: bool = False
    all_or_nothing: bool = False
    refused: int = 0
    """The thread for which the host refuses the change."""

    def apply(self, host: Host, journal: StoredJournal) -> Run:
        run = make_run(persist=self.persist, migrate_memory=self.migrate_memory, all_or_nothing=self.all_or_nothing)
        return executor.apply(self.plan, run, host, journal, lambda: NOON, lambda *_: None)

    def rollback(self, host: Host, journal: StoredJournal) -> Run:
        run = make_run("back", kind="rollback", undoes="run-1")
        return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)

    def rollback_all(self, host: Host, journal: StoredJournal) -> Run:
        run = make_run("all", kind="rollback", plan="")
        return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)

    def back(self, host: Host, journal: StoredJournal) -> Run | None:
        return self._recover(host, journal, "back")

    def forward(self, host: Host, journal: StoredJournal) -> Run | None:
        return self._recover(host, journal, "forward")

    def _recover(self, host: Host, journal: StoredJournal, policy: RecoveryPolicy) -> Run | None:
        return recover(host, journal, policy, lambda: NOON)

    def host(self) -> "LiveHost | FileHost":
        return FileHost(self.where) if isinstance(self.where, Path) else LiveHost(Libvirt(self.where))


def run_forked(work: Work, method: str, kill_at: int = NEVER) -> bool:
    """Run one of Work's methods in a process that is killed at this point; whether the process reached the point."""
    server = _fork_server()
    server.send((work, method, kill_at))
    assert server.poll(60), f"{method} does not end"
    status = server.recv()
    assert status in (0, -signal.SIGKILL), f"{method} ended with {status}"
    return bool(status)


@cache
def _fork_server() -> Connection:
    """The connection to a process that has imported pinner and forks for each work.

    The test's own process cannot fork: where another test has started libvirt's event loop, a fork may find the locks
    of that loop taken forever.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    spawn.Process(target=_fork_for_each, args=(there,), daemon=True).start()
    there.close()
    return here


def _fork_for_each(requests: Connection) -> None:
    while True:
        try:
            work, method, kill_at = requests.recv()
        except EOFError:
            return
        if (child := os.fork()) == 0:
            try:
                _run_child(work, method, kill_at)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        requests.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _run_child(work: Work, method: str, kill_at: int) -> None:
    journal = StoredJournal(work.folder)
    host = work.host()
    _KillPoint(kill_at).install(journal, host, work.refused)
    getattr(work, method)(host, journal)
    journal.close()


class _KillPoint:
    """Counts the points that a process passes, and kills the process at the chosen one."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def install(self, journal: StoredJournal, host: "LiveHost | FileHost", refused: int) -> None:
        """Replace each method that writes, on these two objects only, by one that also counts points."""
        for name in RECORDS:
            setattr(journal, name, self._counted(getattr(journal, name)))
        event.listen(journal._engine, "commit", self._commit)
        for name in WRITES:
            part = host if hasattr(host, name) else host.guests
            setattr(part, name, self._counted(getattr(part, name)))
        if isinstance(host, FileHost):
            host.between = self._point
        else:
            host.guests.ask_guest_agent = self._counted_writes(host.guests.ask_guest_agent)  # type: ignore[method-assign]
        if refused:
            host.set_mask = _refuse_once(refused, host.set_mask)  # type: ignore[method-assign]

    def _commit(self, connection: object) -> None:
        if connection.get_execution_options().get("writes"):  # type: ignore[attr-defined]
            self._point()

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            self._point()
            result = call(*arguments, **named)
            self._point()
            return result

        return counted

    def _counted_writes(self, ask: Callable[[str, str], str]) -> Callable[[str, str], str]:
        """The agent of a guest keeps what is written until the flush."""
        counted = self._counted(ask)
        return lambda guest, command: (counted if _WRITING.search(command) else ask)(guest, command)

    def _point(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def _refuse_once(tid: int, call: Callable[..., bool]) -> Callable[..., bool]:
    """The call, which refuses this thread the first time only, so that an undo succeeds."""
    refused: list[int] = []

    def set_mask(thread: ThreadMask, *read: CpuSet) -> bool:
        if thread.tid == tid and not refused:
            refused.append(tid)
            raise ApplyFailed(f"thread {tid}", "refused")
        return call(thread, *read)

    return set_mask


class FileHost(InMemoryHost):
    """A simulated host, stored in a file: like a kernel, it outlives the process that changed it.

    It has features that a plain machine lacks: a second NUMA node and cgroup v2 partitions.
    """

    SAVED = (
        *("has_metadata", "threads", "definitions", "names", "defined_names", "per_node", "numatunes"),
        *("states", "asked"),
    )

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.between: Callable[[], None] = lambda: None
        self.asked: dict[Target, State] = {}
        """The states that targets take later."""
        if path.exists():
            vars(self).update(pickle.loads(path.read_bytes()))

    def save(self) -> None:
        """Write the host's state atomically, as a system call either completes or has no effect."""
        new = self._path.with_suffix(".new")
        new.write_bytes(pickle.dumps({name: vars(self)[name] for name in self.SAVED}))
        new.replace(self._path)
        self.between()

    def _write(self, tid: int, mask: CpuSet) -> None:
        for threads in self.threads.values():
            threads[:] = [replace(t, cpus=mask) if t.tid == tid else t for t in threads]
        self.save()

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        super().pin(target, cpus, persist=persist)
        self.save()

    def set_state(self, target: Target, state: State) -> None:
        """A partition gets its CPUs before its kind, and loses its kind before its CPUs. Some targets take their
        state later."""
        if target.kind == "partition":
            self.states[target] = PartitionState("member", cpus_of(state) or cpus_of(self.states[target]))
            self.save()
        if KINDS[target.kind].is_late:
            self.asked[target] = state
            self.save()
        super().set_state(target, state)
        self.asked.pop(target, None)
        self.save()

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        super().restore_definition(target, definition, given)
        self.save()

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        super().name_pins(target, pins)
        self.save()

    def set_numatune(self, target: Target, nodes: str) -> None:
        super().set_numatune(target, nodes)
        self.save()

    def move_memory(self, target: Target, away: Collection[int], node: int) -> None:
        """Move half of the memory, and then the rest."""
        self.pages_stay = {other: self.per_node[target].get(other, 0) // 2 for other in away}
        super().move_memory(target, away, node)
        self.save()
        self.pages_stay = {}
        super().move_memory(target, away, node)
        self.save()

    def changeable_state(self) -> object:
        """Everything that a plan can change, to compare two states of the host."""
        memory = {target: {node: kib for node, kib in nodes.items() if kib} for target, nodes in self.per_node.items()}
        states = self.states | self.asked
        return self.kernel(), self.definitions, self.names, self.defined_names, memory, self.numatunes, states
