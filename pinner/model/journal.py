"""What was done to a host: runs and their entries."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.change import Change, MemoryChange, ThreadMask
from pinner.model.memory import NodeMemory, moved_text

EntryState = Literal["intent", "done", "gone", "failed", "undone", "stuck"]
"""intent  written down, perhaps made          done    made, and the kernel read back
gone    its guest, process or thread ended     failed  not made; the prior masks were verified
undone  the prior masks are back               stuck   could not be undone, ``error`` says why"""

RunKind = Literal["apply", "rollback", "release"]
"""release: an apply that gives a guest back the CPUs that it had, before it is migrated away; nothing stands by it."""
RunState = Literal["running", "applied", "undone", "rolled_back", "rolled_back_partly", "failed"]
"""running; applied: the host is as planned; undone: a change failed and the host is as it was;
rolled_back, rolled_back_partly (something was gone, or is stuck): of a rollback, and of the run it took back;
failed: refused before any change, or (with stuck entries) something could not be undone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of a run. ``found`` are threads born while it was made, each with its mask before pinner's."""

    run: str
    seq: int
    change: Change | MemoryChange
    state: EntryState
    at: datetime
    error: str = ""
    found: tuple[ThreadMask, ...] = ()
    definition: str = ""
    """With --persist: the pins (<cputune>) of the guest's persistent definition before the change, as XML."""
    memory: tuple[NodeMemory, ...] = ()
    """Of a change of memory that was made: what has moved and what has not."""

    @property
    def summary(self) -> str:
        """What there is to say of it, for people: what went wrong, or what memory has moved."""
        return self.error or (moved_text(self.memory) if self.state == "done" else "")


@dataclass(frozen=True, slots=True)
class Run:
    """An apply, a rollback or a release, from its start to its end."""

    id: str
    kind: RunKind
    host: str
    plan: str
    actor: str
    origin: str
    """Where the call came from: an address, or the CLI's terminal."""
    state: RunState
    started_at: datetime
    ended_at: datetime | None = None
    persist: bool = False
    undoes: str = ""
    """Of a rollback: the run that it takes back."""
    error: str = ""
    migrate_memory: bool = False
    """Whether guests' memory was to follow their vCPUs."""
    recovered: str = ""
    """Where the process that carried it out died: what recovery made of it, in words."""


def is_final(run: Run, entry: Entry) -> bool:
    """Whether the run is through with this entry (of its own, or of the run that it takes back)."""
    return entry.state != "intent" and not (run.kind == "rollback" and entry.state == "done")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: ``done`` of ``total`` entries have ended, ``entry`` is the latest (None in the last word,
    which tells only that the run ended)."""

    run: Run
    done: int
    total: int
    entry: Entry | None
