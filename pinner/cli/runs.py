"""pinner run list | show, and pinner rollback."""

from argparse import Namespace
from typing import get_args

from pinner.cli.confirm import agreed, require_answer, yes_option
from pinner.cli.context import Context
from pinner.cli.follow import follow, show_run
from pinner.cli.options import page_options
from pinner.cli.output import cells, moment, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.model.journal import RunState
from pinner.model.page import PageRequest


def register(commands: Commands) -> None:
    """Add the noun, and the command that undoes a run."""
    undo = add_command(
        commands,
        "rollback",
        rollback,
        "undo a run: each thread gets the affinity that it had before the run",
        about="The command names each change that cannot be undone, for example because its\n"
        "guest or process is gone. After Ctrl-C, it first finishes a rollback on this\n"
        "host; a rollback on a server continues there.",
        status={0: "all changes of the run are undone, or you answered no", 1: "failed, or some are not undone"},
        examples=["pinner rollback RUN_ID", "pinner rollback RUN_ID --yes"],
    )
    undo.add_argument("run_id", metavar="RUN_ID", help="id of the run (see `pinner run list`)")
    yes_option(undo)
    verbs = add_noun(commands, "run", "list runs, or show a run; a run applies a plan or undoes another run")
    listing = add_command(
        verbs,
        "list",
        list_runs,
        "list runs, newest first",
        examples=["pinner run list", "pinner run list --state applied"],
    )
    listing.add_argument("--host", metavar="HOST", help="only runs on this host")
    states = get_args(RunState)
    listing.add_argument(
        "--state", metavar="STATE", choices=states, help=f"only runs in this state: {', '.join(states)}"
    )
    page_options(listing)
    showing = add_command(
        verbs, "show", show, "show a run and each of its changes", examples=["pinner run show RUN_ID --json"]
    )
    showing.add_argument("run_id", metavar="RUN_ID", help="id of the run (see `pinner run list`)")


def rollback(context: Context, arguments: Namespace) -> int:
    """Undo a run, and follow the rollback."""
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        run = pinner.run(arguments.run_id)
        if not agreed(f"Undo run {run.id} on host {run.host}?", yes=arguments.yes):
            return 0
        ended = follow(context, pinner, lambda: pinner.rollback(arguments.run_id, context.caller))
        show_run(context, ended, pinner.entries(ended.id), every=False)
    return 0 if ended.state == "rolled_back" else 1


def list_runs(context: Context, arguments: Namespace) -> int:
    """Print a page of runs."""
    with context.open() as pinner:
        page = pinner.runs(arguments.host, PageRequest(arguments.limit, arguments.marker), state=arguments.state)
    drawn = table("RUN", "KIND", "HOST", "STATE", "STARTED", "BY", "OF", whole=("RUN", "STARTED"))
    for run in page.items:
        of = f"run {run.undoes}" if run.undoes else f"plan {run.plan}"
        drawn.add_row(*cells(run.id, run.kind, run.host, run.state, moment(run.started_at), run.actor, of))
    context.show_page(page, drawn)
    return 0


def show(context: Context, arguments: Namespace) -> int:
    """Print a run with all its changes."""
    with context.open() as pinner:
        run = pinner.run(arguments.run_id)
        entries = pinner.entries(arguments.run_id)
    show_run(context, run, entries, every=True)
    return 0
