"""Follows a run to its end: progress on stderr, the result on stdout."""

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import Table, cells, cpu_cell, facts, moment, plain_list, print_json, table
from pinner.model.run.agent_audit import ALL_RUNS
from pinner.model.text import mib
from pinner.render import before_and_after, visible

if TYPE_CHECKING:
    from pinner.model.outcome.outcome import Watch
    from pinner.model.run.journal import Entry, Run
    from pinner.service.protocol import Service

WATCH_POLL_SECONDS = 1.0
STYLES = {"failed": "red", "stuck": "bold red", "gone": "yellow", "undone": "yellow"}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after a run was started; the text says whether the run continues, or how it ended."""


def follow(context: CommandContext, pinner: "Service", start: Callable[[], "Run"]) -> "Run":
    """Show the changes of a new run as they end, and return the ended run. Raises Interrupted on Ctrl-C: a run of this
    process is finished first, so that no host is left half changed; a server's run continues."""
    run = None
    try:
        run = start()
        shown: set[int] = set()
        for progress in pinner.follow(run.id):
            if progress.entry:
                shown.add(progress.entry.seq)
                _show(context, progress.entry, len(shown), progress.total)
    except KeyboardInterrupt:
        if run is None:
            raise Interrupted("interrupted; `pinner run list` shows whether a run was started") from None
        raise Interrupted(_outcome(context, pinner, run)) from None
    return pinner.run(run.id)


def follow_watch(context: CommandContext, pinner: "Service", run: "Run") -> "Watch | None":
    """None: the run is not watched. Raises Interrupted on Ctrl-C."""
    if not run.watch_seconds or run.state not in ("applied", "applied_partly"):
        return None
    try:
        watch = pinner.outcome(run.id).watch
        if watch is not None and watch.state == "watching":
            context.inform(f"run {run.id}: {watch.why}")
        while watch is not None and watch.state == "watching":
            time.sleep(WATCH_POLL_SECONDS)
            watch = pinner.outcome(run.id).watch
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the watch of run {run.id} goes on (see it: pinner outcome {run.id})") from None
    if watch is not None:
        undone = f"; run {watch.rollback} undoes it" if watch.rollback else ""
        context.inform(f"watched: {watch.why}{undone}")
    return watch


def _outcome(context: CommandContext, pinner: "Service", run: "Run") -> str:
    if pinner.where:
        return f"interrupted; run {run.id} goes on at {pinner.where} (see it: pinner run show {run.id})"
    context.inform(f"interrupted; run {run.id} is brought to its end first")
    for _ in pinner.follow(run.id):
        pass
    return f"interrupted; run {run.id} has ended {pinner.run(run.id).state} (see it: pinner run show {run.id})"


def _show(context: CommandContext, entry: "Entry", number: int, total: int) -> None:
    # Counted here, because the run may make more changes before this message is printed.
    line = f"[{number:>{len(str(total))}}/{total}] {entry.state:<6} {_change(entry)}"
    if entry.summary:
        line += f": {entry.summary}"
    context.err.print(visible(line), style=STYLES.get(entry.state), soft_wrap=True)


def _change(entry: "Entry") -> str:
    before, after = before_and_after(entry.change)
    if entry.state == "undone":
        before, after = after, before
    return f"{entry.change.target}  {before} -> {after}"


def subject(run: "Run") -> str:
    if run.undoes_all:
        return ALL_RUNS
    return f"run {run.undoes}" if run.undoes else f"plan {run.plan}"


def show_run(context: CommandContext, run: "Run", entries: tuple["Entry", ...], *, every: bool) -> None:
    """``every``: all entries, not only those with an error."""
    if context.json:
        print_json({"run": codec.plain(run), "entries": plain_list(entries)})
        return
    counts = Counter(entry.state for entry in entries)
    tally = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no changes"
    rows = (
        ("run", run.id),
        ("state", run.state),
        ("kind", f"{run.kind} of {subject(run)}"),
        ("host", run.host),
        ("claimed by", f"{run.actor} from {run.origin}"),
        ("called by", run.peer),
        ("started", moment(run.started_at)),
        ("ended", moment(run.ended_at) if run.ended_at else "not yet"),
        ("changes", tally),
        ("error", run.error),
    )
    context.show(facts(*rows))
    if run.kind == "apply" and any(entry.memory for entry in entries):
        context.show("", _memory(entries))
    shown = [entry for entry in entries if every or entry.error]
    if not shown:
        return
    drawn = table("#", "STATE", "WHAT", "BEFORE", "AFTER", "ERROR", right=("#",))
    for entry in shown:
        before, after = before_and_after(entry.change)
        state = cells(entry.state, style=STYLES.get(entry.state, ""))
        drawn.add_row(entry.seq, *state, entry.change.target, cpu_cell(before), cpu_cell(after), entry.error)
    context.show("", drawn)


def _memory(entries: tuple["Entry", ...]) -> Table:
    numbers = ("NODE", "BEFORE", "MOVED AWAY", "THERE NOW")
    drawn = table("MEMORY OF", *numbers, right=numbers)
    for entry in entries:
        for part in entry.memory:
            sizes = (mib(part.before_kib), mib(max(part.moved_kib, 0)), mib(part.stayed_kib))
            drawn.add_row(entry.change.target.name, part.node, *sizes)
    return drawn
