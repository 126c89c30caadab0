"""pinner apply: apply a plan to a host, change by change."""

from argparse import Namespace
from typing import TYPE_CHECKING

from pinner.cli.frame.confirm import agreed, require_answer
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.follow import follow, follow_watch, show_run
from pinner.cli.frame.options import fix_option, given, host_option, make_plan, make_request, request_options
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.values import watch_seconds
from pinner.cli.show.plantable import show_plan
from pinner.model.errors import Invalid
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, ApplyOptions

if TYPE_CHECKING:
    from pinner.model.plan.plan import Plan
    from pinner.model.run.journal import Run
    from pinner.service.protocol import Service

ABOUT = """\
With PLAN_ID, the command applies that stored plan, or refuses it if the host
has changed since the plan was made. Without PLAN_ID, it first makes a plan
from the plan options. It shows the plan and asks before it changes the host;
without a terminal it refuses, unless --yes is given. If a change fails, the
changes of its guest or process are undone, and the others are placed. After
Ctrl-C, it first finishes a run on this host; a run on a server continues
there.

With --watch, the server of the host compares run delay, drops and pressure
after the run with up to an hour before it. It goes on if this command ends.
It needs measures of a time before the run that is ten times as long as the
watch. With --undo-if-worse it rolls the run back when a measure becomes worse;
see docs/measures.md for what it finds, and how often it is wrong."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "apply",
        apply,
        "apply a plan to the host while its guests run",
        about=ABOUT,
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
        help="after the run, watch run delay, drops and pressure for a time such as 30s or 2m, up to 4m",
    )
    parser.add_argument(
        "--undo-if-worse",
        action="store_true",
        help=f"watch (without --watch for {DEFAULT_WATCH_SECONDS}s), and roll the run back if a measure becomes worse",
    )
    host_option(parser)
    request_options(parser)
    fix_option(parser)


def apply(context: CommandContext, arguments: Namespace) -> int:
    if arguments.plan is not None and (given(arguments) or arguments.host):
        raise Invalid("PLAN_ID", arguments.plan, "a PLAN_ID without plan options and --host: a stored plan has its own")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        plan = _plan(context, pinner, arguments)
        if not context.json:
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
        )

        def start() -> "Run":
            return pinner.apply(plan.id, options, context.caller)

        ended = follow(context, pinner, start)
        entries = pinner.entries(ended.id)
        show_run(context, ended, entries, every=False)
        watched = follow_watch(context, pinner, ended) if entries else None
    if watched is not None and watched.state == "worse":
        return 1
    if ended.state in ("applied", "applied_partly"):
        nothing = "nothing to do: the host is as planned already, so this run cannot be rolled back"
        context.note(f"to undo: pinner rollback {ended.id}" if entries else nothing)
    return 0 if ended.state == "applied" else 1


def _plan(context: CommandContext, pinner: "Service", arguments: Namespace) -> "Plan":
    if arguments.plan is not None:
        return pinner.plan_by_id(arguments.plan)
    return make_plan(context, pinner, arguments.host, make_request(arguments), arguments.sample_seconds)


def _agreed(plan: "Plan", arguments: Namespace) -> bool:
    """Ask whether to apply; yes without a question for a plan that changes nothing."""
    moving = " and move guests' memory" if arguments.migrate_memory else ""
    if not (plan.changes or moving):
        return True
    return agreed(f"Make these {len(plan.changes)} changes{moving}?", yes=arguments.yes)
