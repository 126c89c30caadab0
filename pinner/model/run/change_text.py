"""The centre and the agent write the same text of a change into their trails, so that it can be compared."""

from typing import TYPE_CHECKING, assert_never

from pinner.model.change import AffinityChange, Change, MemoryChange, MetadataChange, StateChange
from pinner.model.guest.pins_metadata import overlaid
from pinner.model.text import affinities, memory_by_node, pins_text

if TYPE_CHECKING:  # a command that shows a plan needs no journal
    from pinner.model.run.journal import Entry, Run, RunKind

NO_CPU = "none"
"""RPS that is off."""


def change_text(change: Change, kind: "RunKind") -> tuple[str, str]:
    """Before and after; a rollback makes the change in reverse. Only here does the trail have the number of threads."""
    before, after = before_and_after(change, always_counted=True)
    return (after, before) if kind == "rollback" else (before, after)


def before_and_after(change: Change, *, always_counted: bool = False) -> tuple[str, str]:
    """See affinities for ``always_counted``."""
    match change:
        case AffinityChange():
            masks = (mask.cpus for mask in change.before)
            return affinities(masks, always_counted=always_counted), str(change.after)
        case StateChange():
            return str(change.before) or NO_CPU, str(change.after) or NO_CPU
        case MemoryChange():
            return memory_by_node(change.before), f"node {change.node}"
        case MetadataChange():
            return pins_text(change.live), pins_text(overlaid(change.live, change.pins))
    assert_never(change)


def entry_result(entry: "Entry") -> str:
    return f"{entry.state}: {entry.summary}" if entry.summary else entry.state


def run_result(run: "Run") -> str:
    return f"{run.state}: {run.error}" if run.error else run.state


def run_options(run: "Run") -> str:
    options = {"persist": run.persist, "migrate_memory": run.migrate_memory, "all_or_nothing": run.all_or_nothing}
    options |= {f"watch_seconds {run.watch_seconds}": run.watch_seconds > 0, "undo_if_worse": run.undo_if_worse}
    return ", ".join(name for name, given in options.items() if given)
