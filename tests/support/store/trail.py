"""An installation whose audit trail is real: the databases, the journal, the chain and the signatures."""

import shutil
import uuid
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.values import NOON, busy_host, busy_plan, make_change, make_snapshot

from pinner.model.errors import HostBusy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts
from pinner.service.upkeep.retention import Limits, export_audit
from pinner.store.repositories import open_store

ANN = Caller("ann", "10.0.0.1", "req-1")
EVE = Caller("eve", "10.0.0.6", "req-6")
LATER = NOON + timedelta(days=3650)


class Installation:
    """A service with its central database and its agent, which can be stopped and started again."""

    def __init__(self, folder: Path, empty: Path, agent: type[HostedAgent] = HostedAgent) -> None:
        """``empty`` is an empty database of the newest schema; to copy it is faster than to migrate."""
        self._agent = agent
        (folder / "agent").mkdir(parents=True)
        self.database = folder / "pinner.sqlite"
        self.agent_folder = folder / "agent"
        self.journal = self.agent_folder / "journal.sqlite"
        self.clock = Clock(timedelta(seconds=1))
        self._undo = ExitStack()
        self.plans = 0
        for file in (self.database, self.journal):
            shutil.copyfile(empty, file)
        self.start()

    def start(self) -> None:
        self.store = self._undo.enter_context(open_store(f"sqlite:///{self.database}"))
        self.agent = self._agent(self.agent_folder, busy_host(), self.clock)
        self._undo.callback(self.agent.journal.close)
        parts = ServiceParts({"h1": self.agent}, self.store, self.clock, lambda: uuid.uuid4().hex[:12], 0.0)
        self.service = self._undo.enter_context(closing(parts)).service
        self.heads = parts.audit_heads

    def stop(self) -> None:
        self._undo.close()

    @contextmanager
    def stopped(self):
        self.stop()
        yield
        self.start()

    def plan(self):
        self.plans += 1
        basis = self.store.snapshots.add(make_snapshot())
        changes = map(self._change, (1, 2))
        plan = busy_plan(f"plan-{self.plans}", basis, changes)
        self.store.plans.add(plan, NOON)
        return plan

    def _change(self, number):
        """Move a process of busy_host to a CPU on which it is not."""
        target = make_change(90 + 10 * number).target
        now = self.agent.host.masks(target)[0].cpus
        return self.agent.host.change(target, "3" if str(now) == str(number) else str(number))

    def apply(self, caller=ANN):
        run = self.service.apply(self.plan().id, ApplyOptions(), caller)
        list(self.service.follow(run.id))
        return self.service.run(run.id)

    def rollback(self, run):
        undo = self.service.rollback(run.id, ANN)
        list(self.service.follow(undo.id))
        return undo

    def refused(self):
        self.agent.host.refusal = HostBusy("h1", "run-0")
        with pytest.raises(HostBusy):
            self.service.apply(self.plan().id, ApplyOptions(), ANN)
        self.agent.host.refusal = None

    def exchange(self):
        self.heads._exchange_and_store("h1")

    def export(self, at=LATER, host="h1", service=None):
        """Export and remove what is older than a day at this time; the server of ``host`` does it."""
        self.clock.at = at
        limits = Limits(*[timedelta(days=1)] * 3, self.agent_folder.parent / "audit")
        return export_audit(self.store.retention, limits, at, host, (service or self.service).export_audit)

    def verify(self, anchor=None):
        return self.service.verify_audit(anchor)

    def kinds(self, anchor=None):
        return {finding.kind.value for finding in self.verify(anchor).findings}


def message(found, kind):
    return next(finding.message for finding in found.findings if finding.kind.value == kind)


def changed_actor(rows):
    return [row | {"actor": "mallory"} if row["action"] == "run.end" else row for row in rows]
