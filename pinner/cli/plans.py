"""pinner plan [create] | list | show."""

import sys
from argparse import Namespace

from pinner import codec, render
from pinner.cli.context import Context, pick_host
from pinner.cli.options import (
    captured,
    make_plan,
    make_request,
    page_options,
    plan_offline,
    request_options,
    source_options,
    updated,
)
from pinner.cli.output import cells, cut, moment, print_json, table
from pinner.cli.parser import Commands, Parser, add_command, add_noun
from pinner.cli.plantable import show_plan
from pinner.model.errors import Invalid
from pinner.model.plan import Plan
from pinner.planning import shell

FORMATS = ("table", "json", "shell", "text")

ABOUT = """\
`pinner plan [OPTIONS]` is short for `pinner plan create [OPTIONS]`: see `pinner plan create --help`.
A plan changes nothing. `pinner apply ID` makes it so, `pinner topology --plan ID` draws it,
`pinner compare` sets the strategies side by side."""


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "plan", "make a plan and show it; list and show plans", implied="create", about=ABOUT)
    create = add_command(
        verbs,
        "create",
        create_plan,
        "make a plan from the host as it is now, and show it; nothing is changed",
        about="With --snapshot or --root no host, database or right is needed; such a plan is shown, not stored.",
        examples=[
            "pinner plan",
            "pinner plan --strategy numa-local --guest web1 --guest web2",
            "pinner plan --housekeeping 0-3 --emulator 4-7 --busy-threshold 5 --format shell",
            "pinner plan --snapshot host.json --strategy isolated --smt isolate",
            "pinner plan --policy --rebalance",
        ],
    )
    source_options(create)
    request_options(create)
    create.add_argument(
        "--policy", action="store_true", help="take what is not given from the host's policy, not from the defaults"
    )
    _format_option(create)
    listing = add_command(
        verbs, "list", list_plans, "list stored plans, the newest first", examples=["pinner plan list --limit 5"]
    )
    listing.add_argument("--host", metavar="HOST", help="only this host's")
    page_options(listing)
    show = add_command(
        verbs,
        "show",
        show_stored,
        "show a stored plan",
        examples=["pinner plan show ID", "pinner plan show ID --format shell > pin.sh"],
    )
    show.add_argument("plan", metavar="ID", help="see `pinner plan list`")
    _format_option(show)


def _format_option(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="table (default), json (as --json), shell = the virsh and taskset commands that do the same, text = plain",
    )


def create_plan(context: Context, arguments: Namespace) -> int:
    """Plan, and print the plan."""
    request = make_request(arguments)
    snapshot = captured(context, arguments)
    if snapshot is not None and arguments.policy:
        raise Invalid("--policy", "", "a host: a captured machine has no policy")
    if snapshot is not None:
        print_plan(context, plan_offline(snapshot, request), arguments.format)
        context.note("from a captured machine: the plan is not stored and cannot be applied")
        return 0
    with context.open() as pinner:
        if arguments.policy:
            request = updated(pinner.policy(pick_host(pinner, arguments.host)).request, arguments)
        plan = make_plan(context, pinner, arguments.host, request, arguments.sample_seconds)
    print_plan(context, plan, arguments.format)
    if plan.changes and not plan.blocked:
        context.note(f"to make it so: pinner apply {plan.id}")
    return 0


def list_plans(context: Context, arguments: Namespace) -> int:
    """Print stored plans."""
    with context.open() as pinner:
        page = pinner.plans(arguments.host, arguments.limit, arguments.marker)
    headers = ("PLAN", "HOST", "STRATEGY", "MADE", "CHANGES", "UNPLACED", "NOTE")
    drawn = table(*headers, right=("CHANGES", "UNPLACED"), whole=("PLAN", "STRATEGY", "MADE"))
    for plan in page.items:
        note = cut(f"blocked: {plan.blocked}" if plan.blocked else "")
        drawn.add_row(
            *cells(plan.id, plan.host, plan.strategy, moment(plan.created_at), plan.changes, plan.unplaced, note)
        )
    context.show_page(page, drawn)
    return 0


def show_stored(context: Context, arguments: Namespace) -> int:
    """Print a stored plan."""
    with context.open() as pinner:
        plan = pinner.plan_by_id(arguments.plan)
    print_plan(context, plan, arguments.format)
    return 0


def print_plan(context: Context, plan: Plan, form: str) -> None:
    """A plan in one of FORMATS."""
    match "json" if context.json else form:
        case "json":
            print_json(codec.plain(plan))
        case "shell":
            sys.stdout.write(shell.render(plan))
        case "text":
            sys.stdout.write(render.plan(plan))
        case _:
            show_plan(context, plan)
