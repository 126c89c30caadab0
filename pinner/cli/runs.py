"""pinner run list | show, and pinner rollback."""

from argparse import Namespace

from pinner.cli.context import Context
from pinner.cli.follow import follow, show_run
from pinner.cli.options import page_options
from pinner.cli.output import cells, moment, table
from pinner.cli.parser import Commands, add_command, add_noun


def register(commands: Commands) -> None:
    """Add the noun, and the verb that takes a run back."""
    back = add_command(
        commands,
        "rollback",
        rollback,
        "take a run back: every thread gets the mask that it had",
        about="Exit status 0 only where everything was taken back. What is gone is named: it cannot be given back.",
        examples=["pinner rollback RUN_ID"],
    )
    back.add_argument("run_id", metavar="RUN_ID", help="see `pinner run list`")
    verbs = add_noun(commands, "run", "list and show what was applied and taken back")
    listing = add_command(verbs, "list", list_runs, "list runs, the newest first", examples=["pinner run list"])
    listing.add_argument("--host", metavar="HOST", help="only this host's")
    page_options(listing)
    showing = add_command(
        verbs, "show", show, "show a run and each of its changes", examples=["pinner run show ID --json"]
    )
    showing.add_argument("run_id", metavar="ID", help="see `pinner run list`")


def rollback(context: Context, arguments: Namespace) -> int:
    """Take a run back and follow it."""
    with context.open() as pinner:
        ended = follow(context, pinner, lambda: pinner.rollback(arguments.run_id, context.caller))
        show_run(context, ended, pinner.entries(ended.id), every=False)
    return 0 if ended.state == "rolled_back" else 1


def list_runs(context: Context, arguments: Namespace) -> int:
    """Print runs."""
    with context.open() as pinner:
        page = pinner.runs(arguments.host, arguments.limit, arguments.marker)
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
