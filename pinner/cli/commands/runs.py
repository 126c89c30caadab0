"""pinner run list | show, and pinner rollback."""

from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from pinner.cli.frame.confirm import agreed, require_answer
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.follow import follow, show_run, subject
from pinner.cli.frame.options import host_option, page_options
from pinner.cli.frame.output import cells, moment, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.cli.frame.tables import Cell, Table
from pinner.model.errors import Invalid, NoPolicy
from pinner.model.page import PageRequest
from pinner.model.run.journal import RunState
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.run.journal import Run
    from pinner.service.protocol import Service

WIDE = 120
"""Columns of a terminal from which on each part of a run has a column of its own."""


def register(commands: Commands) -> None:
    undo = add_command(
        commands,
        "rollback",
        rollback,
        "undo a run, or all runs: each thread gets the affinity that it had before",
        about="With --all, everything on the host gets what it had before pinner first touched\n"
        "it: threads, child processes, partitions, work queues, memory and definitions,\n"
        "after any number of runs. The command names each change that cannot be undone,\n"
        "for example because another program has moved its threads since: these stay\n"
        "where they are.\n\n"
        "The rollback of one run is refused if a later run has changed one of its\n"
        "targets again. While a policy is enforced, every rollback is refused: delete\n"
        "the policy first, or set its mode to propose or observe.\n\n"
        "After Ctrl-C, the command first finishes a rollback on this host; a rollback on\n"
        "a server continues there.",
        asks=True,
        status={0: "all changes are undone, or you answered no", 1: "failed, or some changes are not undone"},
        examples=["pinner rollback RUN_ID", "pinner rollback --all", "pinner rollback --all --delete-policy --yes"],
    )
    what = undo.add_mutually_exclusive_group(required=True)
    what.add_argument("run_id", metavar="RUN_ID", nargs="?", help="id of the run (see `pinner run list`)")
    what.add_argument("--all", action="store_true", help="undo all runs of the host")
    host_option(undo)
    undo.add_argument(
        "--delete-policy", action="store_true", help="with --all: first delete the policy of the host, if it has one"
    )
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


def rollback(context: CommandContext, arguments: Namespace) -> int:
    if not arguments.all and (arguments.host or arguments.delete_policy):
        option = "--host" if arguments.host else "--delete-policy"
        raise Invalid(option, arguments.host or True, "given with --all: a run belongs to one host already")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        if not agreed(_question(arguments, pinner), yes=arguments.yes):
            return 0
        ended = follow(context, pinner, lambda: _start(context, arguments, pinner))
        show_run(context, ended, pinner.entries(ended.id), every=False)
    return 0 if ended.state == "rolled_back" else 1


def _question(arguments: Namespace, pinner: "Service") -> str:
    if arguments.all:
        also = " and delete its policy" if arguments.delete_policy else ""
        return f"Undo all runs of host {pick_host(pinner, arguments.host)}{also}?"
    run = pinner.run(arguments.run_id)
    return f"Undo run {run.id} on host {run.host}?"


def _start(context: CommandContext, arguments: Namespace, pinner: "Service") -> "Run":
    if not arguments.all:
        return pinner.rollback(arguments.run_id, context.caller)
    host = pick_host(pinner, arguments.host)
    if arguments.delete_policy:
        with suppress(NoPolicy):
            pinner.delete_policy(host, context.caller)
    return pinner.rollback_all(host, context.caller)


def list_runs(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        page = pinner.runs(arguments.host, PageRequest(arguments.limit, arguments.marker), state=arguments.state)
    drawn = _wide(page.items) if context.json or context.out.width >= WIDE else _narrow(page.items)
    context.show_page(page, drawn)
    return 0


def _wide(runs: "Iterable[Run]") -> Table:
    headers = ("RUN", "KIND", "HOST", "STATE", "STARTED", "BY", "OF")
    drawn = table(*headers, whole=("RUN", "STATE", "STARTED", "OF"))
    for run in runs:
        drawn.add_row(*cells(run.id, run.kind, run.host, run.state, moment(run.started_at), run.actor, subject(run)))
    return drawn


def _narrow(runs: "Iterable[Run]") -> Table:
    """The runs with two lines each, for a terminal without room for seven columns."""
    drawn = table("RUN", "STATE", "WHAT", whole=("RUN", "STATE"))
    for run in runs:
        what = (f"{run.kind} of {subject(run)}", f"{moment(run.started_at)} on {run.host} by {run.actor}")
        drawn.add_row(*cells(run.id, run.state, Cell("\n".join(map(visible, what)))))
    return drawn


def show(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        run = pinner.run(arguments.run_id)
        entries = pinner.entries(arguments.run_id)
    show_run(context, run, entries, every=True)
    return 0
