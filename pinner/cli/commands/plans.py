"""pinner plan [create] | list | show; pinner compare: several strategies' plans side by side; pinner strategy list."""

import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import (
    captured,
    fix_option,
    make_plan,
    make_request,
    page_options,
    plan_offline,
    request_options,
    source_options,
    updated,
)
from pinner.cli.frame.output import Table, cells, cut, moment, print_items, print_value, table
from pinner.cli.frame.parser import CHANGES, Commands, Parser, add_command, add_noun, detailed_exitcode
from pinner.model.errors import Invalid, PinnerError, document
from pinner.model.page import PageRequest
from pinner.model.plan.objective import TERMS
from pinner.render import visible
from pinner.render.text import number

if TYPE_CHECKING:  # only --explain needs it
    from pinner.model.plan.plan import Plan
    from pinner.model.plan.request import Request
    from pinner.model.questions import Explanation

FORMATS = ("table", "json", "shell", "text")

ABOUT = """\
`pinner plan [OPTIONS]` means `pinner plan create [OPTIONS]`; the options are
in `pinner plan create --help`.

A plan changes nothing on the host. `pinner apply PLAN_ID` applies it,
`pinner topology --plan PLAN_ID` draws it, and `pinner compare` shows the plans
of several strategies side by side."""


def register(commands: Commands) -> None:
    verbs = add_noun(
        commands, "plan", "make and show a plan, list plans, or show a stored plan", implied="create", about=ABOUT
    )
    _register_create(verbs)
    listing = add_command(
        verbs, "list", list_plans, "list stored plans, newest first", examples=["pinner plan list --limit 5"]
    )
    listing.add_argument("--host", metavar="HOST", help="only plans for this host")
    page_options(listing)
    show = add_command(
        verbs,
        "show",
        show_stored,
        "show a stored plan",
        examples=["pinner plan show PLAN_ID", "pinner plan show PLAN_ID --format shell > pin.sh"],
    )
    show.add_argument("plan", metavar="PLAN_ID", help="id of a stored plan (see `pinner plan list`)")
    _format_option(show)


def _register_create(verbs: Commands) -> None:
    create = add_command(
        verbs,
        "create",
        create_plan,
        "make a plan from the present state of a host, store it and show it",
        about="Nothing on the host is changed. With --snapshot or --root, the command needs no\n"
        "host, no database and no privileges; it shows the plan but does not store it.",
        status={CHANGES: "with --detailed-exitcode: the plan has changes, or is blocked"},
        examples=[
            "pinner plan",
            "pinner plan --strategy numa-local --guest web1 --guest web2",
            "pinner plan --housekeeping 0-3 --emulator 4-7 --busy-threshold 5",
            "pinner plan --with irqs",
            "pinner plan --format shell",
            "pinner plan --snapshot host.json --strategy isolated --smt isolate",
            "pinner plan --strategy numa-local --explain web1",
            "pinner plan --policy --rebalance",
            "pinner plan --detailed-exitcode --json",
        ],
    )
    source_options(create)
    request_options(create)
    fix_option(create)
    create.add_argument(
        "--explain",
        metavar="GUEST",
        help="do not show the plan, but why this guest (name or UUID) gets its CPUs, and what other places would cost",
    )
    create.add_argument(
        "--policy",
        action="store_true",
        help="use the values of the host's policy, not the defaults, for plan options that are not given",
    )
    detailed_exitcode(create, "if the plan has changes or is blocked")
    _format_option(create)


def _format_option(parser: Parser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="output format: table = tables for a terminal (default), json = the same as --json, shell = the "
        "commands (virsh, taskset, echo) that make the same changes, text = plain text",
    )


def create_plan(context: CommandContext, arguments: Namespace) -> int:
    request = make_request(arguments)
    snapshot = captured(context, arguments)
    if snapshot is not None and arguments.policy:
        raise Invalid("--policy", "", "a host, not --snapshot or --root: a captured machine has no policy")
    if snapshot is not None:
        if arguments.explain is not None:
            # Imported here, because the planner takes longer than the other imports of a command.
            from pinner.planning.questions.explanation import explain_placement

            return print_explanation(context, explain_placement(snapshot, request, arguments.explain))
        plan = plan_offline(snapshot, request)
        print_plan(context, plan, arguments.format)
        context.inform("the plan is from a captured machine: it is not stored and cannot be applied")
        return _status(plan, arguments)
    with context.open() as pinner:
        if arguments.policy:
            request = updated(pinner.policy(pick_host(pinner, arguments.host)).request, arguments)
        plan = make_plan(context, pinner, arguments.host, request, arguments.sample_seconds)
        if arguments.explain is not None:
            return print_explanation(context, pinner.explain(plan.id, arguments.explain))
    print_plan(context, plan, arguments.format)
    if plan.changes and not plan.blocked:
        anyway = ("to apply it all the same", " --worse") if plan.worse else ("to apply", "")
        context.inform(f"{anyway[0]}: pinner apply {plan.id}{anyway[1]}")
    return _status(plan, arguments)


def _status(plan: "Plan", arguments: Namespace) -> int:
    """A blocked plan wants changes, even if it lists none."""
    return CHANGES if arguments.detailed_exitcode and (plan.changes or plan.blocked) else 0


def list_plans(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        page = pinner.plans(arguments.host, PageRequest(arguments.limit, arguments.marker))
    headers = ("PLAN", "HOST", "STRATEGY", "MADE", "CHANGES", "UNPLACED", "NOTE")
    drawn = table(*headers, right=("CHANGES", "UNPLACED"), whole=("PLAN", "STRATEGY", "MADE"))
    for plan in page.items:
        note = cut(f"blocked: {plan.blocked}" if plan.blocked else "")
        drawn.add_row(plan.id, plan.host, plan.strategy, moment(plan.created_at), plan.changes, plan.unplaced, note)
    context.show_page(page, drawn)
    return 0


def show_stored(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        plan = pinner.plan_by_id(arguments.plan)
    print_plan(context, plan, arguments.format)
    return 0


def print_explanation(context: CommandContext, explanation: "Explanation") -> int:
    if context.json:
        print_value(explanation)
    else:
        from pinner.cli.commands.what_if import show_explanation

        show_explanation(context, explanation)
    return 0


def print_plan(context: CommandContext, plan: "Plan", form: str) -> None:
    match "json" if context.json else form:
        case "json":
            print_value(plan)
        case "shell":
            from pinner.render import shell

            sys.stdout.write(shell.render(plan))
        case "text":
            from pinner.render import text

            sys.stdout.write(text.render(plan))
        case _:
            from pinner.cli.show.plantable import show_plan

            show_plan(context, plan)


DOCUMENTED = ("shared-pool", "numa-local", "isolated")


@dataclass(frozen=True, slots=True)
class StrategyResult:
    strategy: str
    plan: "Plan | None"
    error: PinnerError | None


def register_compare(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        compare,
        "make a plan with each of several strategies, and show them side by side",
        about="All plans are made from the same snapshot. Nothing on the host is changed. The\n"
        "command fails only if no strategy gives a plan.",
        examples=["pinner compare", "pinner compare --snapshot host.json --housekeeping 0-3 --emulator 4-7"],
    )
    parser.add_argument(
        "--strategy",
        metavar="NAME",
        action="append",
        dest="strategies",
        help=f"a strategy to compare; may be repeated (default: {', '.join(DOCUMENTED)})",
    )
    source_options(parser)
    request_options(parser, strategy=False)


def compare(context: CommandContext, arguments: Namespace) -> int:
    """Raises the first error if no strategy gives a plan."""
    outcomes = _outcomes(context, arguments)
    errors = [outcome.error for outcome in outcomes if outcome.error]
    if len(errors) == len(outcomes):
        raise errors[0]
    if context.json:
        print_items(_plain(outcome) for outcome in outcomes)
        return 0
    context.show(side_by_side(outcomes), "")
    for outcome in outcomes:
        if outcome.plan:
            context.out.print(visible(f"{outcome.strategy}: plan {outcome.plan.id}"), soft_wrap=True)
    if any(outcome.plan and outcome.plan.worse for outcome in outcomes):
        context.out.print(_best(outcomes))
    for warning in _warnings(outcomes):
        context.warn(warning)
    return 0


def _outcomes(context: CommandContext, arguments: Namespace) -> list[StrategyResult]:
    requests = [make_request(arguments, strategy=name) for name in arguments.strategies or DOCUMENTED]
    snapshot = captured(context, arguments)
    if snapshot is not None:
        return [_attempt(request, partial(plan_offline, snapshot)) for request in requests]
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        with context.measuring(arguments.sample_seconds):
            taken, _ = pinner.take_snapshot(host, arguments.sample_seconds, context.caller)

        def plan(request: "Request") -> "Plan":
            return pinner.plan(host, request, taken, None, context.caller)

        return [_attempt(request, plan) for request in requests]


def _attempt(request: "Request", plan: Callable[["Request"], "Plan"]) -> StrategyResult:
    try:
        return StrategyResult(request.strategy, plan(request), None)
    except PinnerError as error:
        return StrategyResult(request.strategy, None, error)


def _warnings(outcomes: list[StrategyResult]) -> Iterator[str]:
    plans = [outcome for outcome in outcomes if outcome.plan]
    strategies_of: dict[str, list[str]] = defaultdict(list)
    for outcome in plans:
        for warning in outcome.plan.warnings if outcome.plan else ():
            strategies_of[warning].append(outcome.strategy)
    for warning, strategies in strategies_of.items():
        yield warning if len(strategies) == len(plans) else f"{', '.join(strategies)}: {warning}"


def _plain(outcome: StrategyResult) -> dict[str, object]:
    return {
        "strategy": outcome.strategy,
        "plan": codec.plain(outcome.plan) if outcome.plan else None,
        "error": document(outcome.error) if outcome.error else None,
    }


def _term(name: str, plan: "Plan") -> str:
    term = plan.objective.term(name)
    return " -> ".join(dict.fromkeys((number(term.before), number(term.after))))


ROWS: dict[str, Callable[["Plan"], object]] = {
    "housekeeping": lambda plan: plan.roles.housekeeping or "none",
    "emulator": lambda plan: plan.roles.emulator or "none",
    "vCPUs": lambda plan: plan.roles.vcpu or "none",
    "changes": lambda plan: len(plan.changes),
    "unplaced guests": lambda plan: ", ".join(item.label for item in plan.unplaced) or "none",
    "skipped": lambda plan: len(plan.skipped),
    "warnings": lambda plan: len(plan.warnings),
    **{kind.name: partial(_term, kind.name) for kind in TERMS if kind.tier > 1},
    "can be applied": lambda plan: _applicable(plan),
}


def _applicable(plan: "Plan") -> str:
    if plan.blocked:
        return f"no: {plan.blocked}"
    return f"only with --worse: {plan.worse}" if plan.worse else "yes"


def _best(outcomes: list[StrategyResult]) -> str:
    from pinner.planning.objective import values_by_tier

    applicable = [plan for each in outcomes if (plan := each.plan) and plan.changes and not plan.blocked]
    plans = {plan.request.strategy: plan for plan in applicable if not plan.worse}
    best = min(plans, key=lambda name: values_by_tier(plans[name].objective), default="as now")
    return f"best by the objective: {best}"


def side_by_side(outcomes: list[StrategyResult]) -> Table:
    drawn = table("", *(outcome.strategy for outcome in outcomes))
    for name, value in ROWS.items():
        drawn.add_row(*cells(name, style="bold"), *cells(*(value(o.plan) if o.plan else "-" for o in outcomes)))
    if any(outcome.error for outcome in outcomes):
        drawn.add_row(*cells("refused", style="bold"), *cells(*(o.error or "" for o in outcomes)))
    return drawn


def register_strategy(commands: Commands) -> None:
    verbs = add_noun(commands, "strategy", "list the strategies for plans")
    add_command(
        verbs,
        "list",
        list_strategies,
        "list the installed strategies and their parameters",
        examples=["pinner strategy list"],
    )


def list_strategies(context: CommandContext, _arguments: Namespace) -> int:
    with context.open() as pinner:
        strategies = pinner.strategies()
    if context.json:
        print_items(strategies)
        return 0
    drawn = table("STRATEGY", "DESCRIPTION", "PARAMETERS")
    for strategy in strategies:
        drawn.add_row(strategy.name, strategy.summary, ", ".join(strategy.parameters))
    context.show(drawn)
    return 0
