"""pinner apply, which applies a plan change by change; pinner rollback; pinner run list | show."""

from argparse import Namespace
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from pinner.cli.frame.context import CommandContext, agreed, pick_host, require_answer
from pinner.cli.frame.follow import follow, follow_watch, show_run, subject
from pinner.cli.frame.options import (
    fix_option,
    given,
    host_option,
    make_plan,
    make_request,
    page_options,
    request_options,
)
from pinner.cli.frame.output import Cell, Table, moment, table
from pinner.cli.frame.parser import Commands, Options, add_command, add_noun
from pinner.cli.frame.values import watch_seconds
from pinner.model.errors import Invalid, NoPolicy, Refused, StalePlan
from pinner.model.page import PageRequest
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, ApplyOptions, RunState
from pinner.render import before_and_after, visible

if TYPE_CHECKING:
    from pinner.model.plan.plan import Plan
    from pinner.model.run.journal import Run
    from pinner.service.protocol import Service

_APPLY_ABOUT = """\
With PLAN_ID, the command applies that stored plan. Without PLAN_ID, it first
makes a plan from the plan options. It shows the plan and asks before it
changes the host; without a terminal it refuses, unless --yes is given. If the
host has changed since the plan was made, it plans once more, and applies the
new plan if all of its changes are among those of the first one. If a change
fails, the changes of its guest or process are undone, and the others are
placed. A plan that makes the objective worse is refused without --worse.
After Ctrl-C, it first finishes a run on this host; a run on a server
continues there.

With --watch, the server of the host compares run delay, drops, pressure,
traffic and pings after the run with up to an hour before it. It goes on if
this command ends. It needs measures of a time before the run that is ten times
as long as the watch. With --undo-if-worse it rolls the run back when a measure
becomes worse; see docs/measures.md for what it finds, and how often it is
wrong."""


def register_apply(commands: Commands) -> None:
    parser = add_command(
        commands,
        "apply",
        apply,
        "apply a plan to the host while its guests run",
        about=_APPLY_ABOUT,
        asks=True,
        status={
            0: "the whole plan is applied, or you answered no",
            1: "failed, or not all is placed (applied_partly), or worse (--watch)",
        },
        examples=[
            "pinner apply PLAN_ID",
            "pinner apply PLAN_ID --persist --yes",
            "pinner apply PLAN_ID --watch 30s --undo-if-worse",
            "pinner apply --strategy numa-local --migrate-memory",
            "pinner apply --strategy shared-pool --housekeeping 0-3 --yes",
        ],
    )
    parser.add_argument("plan", metavar="PLAN_ID", nargs="?", help="id of a stored plan (see `pinner plan list`)")
    apply_options(parser)
    host_option(parser)
    request_options(parser)
    fix_option(parser)


def apply_options(parser: Options) -> None:
    parser.add_argument(
        "--persist", action="store_true", help="also write the pins to the guests' persistent definitions"
    )
    parser.add_argument(
        "--migrate-memory",
        action="store_true",
        help="also move each guest's memory to the NUMA node that the plan chose for its vCPUs",
    )
    parser.add_argument(
        "--all-or-nothing", action="store_true", help="if a change fails, undo the changes of all targets"
    )
    parser.add_argument(
        "--watch",
        metavar="TIME",
        type=watch_seconds,
        default=0,
        help="after the run, watch delay, drops, pressure, traffic and pings for a time such as 30s or 2m, up to 4m",
    )
    parser.add_argument(
        "--worse", action="store_true", help="apply the plan although it makes the objective worse (docs/objective.md)"
    )
    parser.add_argument(
        "--undo-if-worse",
        action="store_true",
        help=f"watch (without --watch for {DEFAULT_WATCH_SECONDS}s), and roll the run back if a measure becomes worse",
    )


def apply(context: CommandContext, arguments: Namespace) -> int:
    if arguments.plan is not None and (given(arguments) or arguments.host):
        raise Invalid("PLAN_ID", arguments.plan, "a PLAN_ID without plan options and --host: a stored plan has its own")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        return apply_plan(context, pinner, _plan(context, pinner, arguments), arguments)


def apply_plan(context: CommandContext, pinner: "Service", plan: "Plan", arguments: Namespace) -> int:
    """Shows the plan, and asks before it is applied. ``arguments`` has those of ``apply_options``."""
    if not context.json:
        # Imported here, because `pinner run` shows no plan.
        from pinner.cli.show.plantable import show_plan

        show_plan(context, plan)
        context.show("")
    if not _agreed(plan, arguments):
        return 0
    options = ApplyOptions(
        persist=arguments.persist,
        migrate_memory=arguments.migrate_memory,
        all_or_nothing=arguments.all_or_nothing,
        watch_seconds=arguments.watch,
        undo_if_worse=arguments.undo_if_worse,
        allow_worse=arguments.worse,
    )

    def start() -> "Run":
        try:
            return pinner.apply(plan.id, options, context.caller)
        except (StalePlan, Refused) as error:
            return pinner.apply(_successor(context, pinner, plan, arguments, error).id, options, context.caller)

    ended = follow(context, pinner, start)
    entries = pinner.entries(ended.id)
    show_run(context, ended, entries, every=False)
    watched = follow_watch(context, pinner, ended) if entries else None
    if watched is not None and watched.state == "worse":
        return 1
    if ended.state in ("applied", "applied_partly"):
        nothing = "" if plan.unplaced else "nothing to do: "
        as_planned = f"{nothing}the host is as planned already, so this run cannot be rolled back"
        context.inform(f"to undo: pinner rollback {ended.id}" if entries else as_planned)
    return 0 if ended.state == "applied" else 1


def _plan(context: CommandContext, pinner: "Service", arguments: Namespace) -> "Plan":
    if arguments.plan is not None:
        return pinner.plan_by_id(arguments.plan)
    return make_plan(context, pinner, arguments.host, make_request(arguments), arguments.sample_seconds)


def _successor(
    context: CommandContext, pinner: "Service", plan: "Plan", arguments: Namespace, error: StalePlan | Refused
) -> "Plan":
    """A plan by the same request, for the host as it is now. Raises ``error`` where it has a change that the user has
    not confirmed, and where the first plan was applied before."""
    if plan.is_release:
        raise error
    try:
        made = make_plan(context, pinner, plan.host, plan.request, arguments.sample_seconds, replaces=plan.id)
    except Invalid as invalid:
        if invalid.details["field"] == "replaces":
            raise error from None
        raise
    count = len(made.changes)
    confirmed = _confirmable(plan, arguments)
    others = [change for change in _confirmable(made, arguments) if change not in confirmed]
    if others:
        verb = "is" if len(others) == 1 else "are"
        context.inform(
            f"plan {made.id} replaces it, and {len(others)} of its {count} changes {verb} not confirmed: "
            f"pinner apply {made.id}"
        )
        raise error
    context.warn(str(error))
    context.inform(f"plan {made.id} replaces it: its {count} changes are among the confirmed ones")
    return made


def _confirmable(plan: "Plan", arguments: Namespace) -> list[tuple[object, ...]]:
    changes: list[tuple[object, ...]] = [(each.target.key, *before_and_after(each)) for each in plan.changes]
    memory = plan.memory if arguments.migrate_memory else ()
    return changes + [(each.target.key, each.home) for each in memory if each.home is not None]


def _agreed(plan: "Plan", arguments: Namespace) -> bool:
    moving = " and move guests' memory" if arguments.migrate_memory else ""
    if not (plan.changes or moving) or plan.blocked or (plan.worse and not arguments.worse):
        return True  # nothing to ask: the service does nothing, or refuses the plan
    return agreed(f"Make these {len(plan.changes)} changes{moving}?", yes=arguments.yes)


WIDE = 120
"""From this width on, each part of a run has a column of its own."""


def register_rollback(commands: Commands) -> None:
    undo = add_command(
        commands,
        "rollback",
        rollback,
        "undo a run, or all runs: each thread gets the affinity that it had before",
        about="With --all, everything on the host gets what it had before pinner first touched\n"
        "it: threads, child processes, partitions, settings, work queues, definitions,\n"
        "and memory (on one node), after any number of runs. The command names each\n"
        "change that cannot be undone, for example because another program has moved its\n"
        "threads since: these stay where they are.\n\n"
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


def register_run(commands: Commands) -> None:
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
        drawn.add_row(run.id, run.kind, run.host, run.state, moment(run.started_at), run.actor, subject(run))
    return drawn


def _narrow(runs: "Iterable[Run]") -> Table:
    drawn = table("RUN", "STATE", "WHAT", whole=("RUN", "STATE"))
    for run in runs:
        what = (f"{run.kind} of {subject(run)}", f"{moment(run.started_at)} on {run.host} by {run.actor}")
        drawn.add_row(run.id, run.state, Cell("\n".join(map(visible, what))))
    return drawn


def show(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        run = pinner.run(arguments.run_id)
        entries = pinner.entries(arguments.run_id)
    show_run(context, run, entries, every=True)
    return 0
