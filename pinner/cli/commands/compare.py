"""pinner compare: the plans of several strategies side by side, from one snapshot."""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import captured, make_request, plan_offline, request_options, source_options
from pinner.cli.frame.output import cells, print_items, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.tables import Table
from pinner.model.errors import PinnerError, document
from pinner.model.plan.objective import TERMS
from pinner.render import visible
from pinner.render.text import number

if TYPE_CHECKING:
    from pinner.model.plan.plan import Plan
    from pinner.model.plan.request import Request

DOCUMENTED = ("shared-pool", "numa-local", "isolated")


@dataclass(frozen=True, slots=True)
class StrategyResult:
    """The result of a strategy: a plan, or the error that prevented one."""

    strategy: str
    plan: "Plan | None"
    error: PinnerError | None


def register(commands: Commands) -> None:
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
    context.show(side_by_side(outcomes))
    context.show("")
    for outcome in outcomes:
        if outcome.plan:
            context.out.print(visible(f"{outcome.strategy}: plan {outcome.plan.id}"), soft_wrap=True)
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
    """Each warning once, with its strategies if not all have it."""
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
    """The value of a term now and as planned; one number where it stays."""
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
    "can be applied": lambda plan: f"no: {plan.blocked}" if plan.blocked else "yes",
}


def side_by_side(outcomes: list[StrategyResult]) -> Table:
    drawn = table("", *(outcome.strategy for outcome in outcomes))
    for name, value in ROWS.items():
        drawn.add_row(*cells(name, style="bold"), *cells(*(value(o.plan) if o.plan else "-" for o in outcomes)))
    if any(outcome.error for outcome in outcomes):
        drawn.add_row(*cells("refused", style="bold"), *cells(*(o.error or "" for o in outcomes)))
    return drawn
