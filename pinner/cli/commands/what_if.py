"""pinner what-if: a host with other guests, nodes, CPUs or strategy; pinner capacity: how many more guests fit."""

from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import OBSERVE_SECONDS, captured, given, make_request, request_options, source_options
from pinner.cli.frame.output import Table, cpu_cell, facts, kib, moment, print_json, table
from pinner.cli.frame.parser import Commands, Options, Parser, add_command
from pinner.cli.frame.values import memory, new_guests, node, vcpus, weight
from pinner.cli.show.plantable import left_out
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.questions import GuestShape, Scenario, with_sizes
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.plan.request import Request
    from pinner.model.questions import Alternative, Capacity, Explanation, ScenarioOutcome, WhatIf
    from pinner.model.snapshot import Snapshot

_WHAT_IF_ABOUT = """\
Two plans are made from one snapshot: for the host as it is, and for the same
host with the differences. Nothing is stored, and nothing on the host changes.
New guests have just started: none of their memory is resident yet."""


def register_what_if(commands: Commands) -> None:
    parser = add_command(
        commands,
        "what-if",
        show_what_if,
        "compare the plan of a host with that for other guests, nodes or strategies",
        about=_WHAT_IF_ABOUT,
        examples=[
            "pinner what-if --add 2x8:16G",
            "pinner what-if --strategy numa-local --without-node 1",
            "pinner what-if --snapshot host.json --then-strategy isolated",
        ],
    )
    _scenario_options(parser)
    source_options(parser)
    request_options(parser)


def _scenario_options(parser: Parser) -> None:
    group = parser.add_argument_group("differences")
    group.add_argument(
        "--add",
        metavar="GUESTS",
        type=new_guests,
        action="append",
        default=[],
        help="add guests: [COUNTx]VCPUS[:MEMORY], such as 8:16G or 3x8:16G; may be repeated",
    )
    group.add_argument(
        "--remove",
        metavar="GUEST",
        action="append",
        default=[],
        help="remove this guest (name or UUID); may be repeated",
    )
    group.add_argument(
        "--without-node",
        metavar="NODE",
        type=node,
        action="append",
        default=[],
        help="take this NUMA node away, with its CPUs and memory; may be repeated",
    )
    group.add_argument("--without-cpus", metavar="CPUS", default="", help="switch these CPUs off, such as 8-15")
    group.add_argument("--then-strategy", metavar="NAME", help="use this strategy for the second plan")
    group.add_argument(
        "--then-weight",
        metavar="TERM=NUMBER",
        type=weight,
        action="append",
        default=[],
        help="use this weight of a term of the objective for the second plan; may be repeated",
    )


def show_what_if(context: CommandContext, arguments: Namespace) -> int:
    request = make_request(arguments)
    answer = _answer(context, arguments, request, _scenario(arguments, request))
    if context.json:
        print_json(codec.plain(answer))
        return 0
    context.show(facts(("host", f"{answer.host}, as it was at {moment(answer.taken_at)}")), "", _numbers(answer))
    for title, outcome in (("UNPLACED BEFORE", answer.before), ("UNPLACED AFTER", answer.after)):
        if (drawn := left_out(title, outcome.unplaced)) is not None:
            context.show("", drawn)
    if answer.moved:
        names = ", ".join(visible(guest.name) for guest in answer.moved)
        context.inform(f"guests on other CPUs than before: {names}")
    for warning in answer.after.warnings:
        if warning not in answer.before.warnings:
            context.warn(f"after: {warning}")
    for when, outcome in (("before", answer.before), ("after", answer.after)):
        if outcome.blocked or outcome.impossible:
            context.warn(f"{when}: {outcome.impossible or f'blocked: {outcome.blocked}'}")
    return 0


def _scenario(arguments: Namespace, request: "Request") -> Scenario:
    then = replace(
        request,
        strategy=request.strategy if arguments.then_strategy is None else arguments.then_strategy,
        weights={**request.weights, **dict(arguments.then_weight)},
    )
    return Scenario(
        tuple(arguments.add),
        tuple(arguments.remove),
        tuple(arguments.without_node),
        CpuSet.parse(arguments.without_cpus, "--without-cpus"),
        None if then == request else then,
    )


def _answer(context: CommandContext, arguments: Namespace, request: "Request", scenario: Scenario) -> "WhatIf":
    if (snapshot := captured(context, arguments)) is not None:
        # Imported here, because the planner takes longer than the other imports of a command.
        from pinner.planning.questions.whatif import what_if

        return what_if(snapshot, request, scenario)
    seconds = OBSERVE_SECONDS if arguments.sample_seconds is None else arguments.sample_seconds
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        with context.measuring(seconds):
            return pinner.what_if(host, request, scenario, seconds)


def _numbers(answer: "WhatIf") -> Table:
    drawn = table("", "BEFORE", "AFTER", "CHANGE", right=("BEFORE", "AFTER", "CHANGE"))
    one, other = answer.before, answer.after
    drawn.add_row("strategy", one.strategy, other.strategy, "")
    for name, before, after in (
        ("guests placed", one.guests, other.guests),
        ("guests unplaced", len(one.unplaced), len(other.unplaced)),
    ):
        drawn.add_row(name, before, "" if other.impossible else after, "")
    for name in dict.fromkeys((*one.planned, *other.planned)):
        drawn.add_row(name, _term(one, name), _term(other, name), _change(answer.change.get(name, 0.0)))
    return drawn


def _term(outcome: "ScenarioOutcome", name: str) -> str:
    return "" if outcome.impossible else f"{outcome.planned.get(name, 0.0):.2f}"


def _change(more: float) -> str:
    return f"{more:+.2f}" if more else ""


def show_explanation(context: CommandContext, explanation: "Explanation") -> None:
    nodes = ", ".join(map(str, explanation.nodes)) or "none"
    context.show(
        facts(
            ("guest", explanation.guest.name),
            ("CPUs of its vCPUs", explanation.cpus or "none"),
            ("nodes", nodes),
            *(("why", why) for why in explanation.why),
        )
    )
    if not explanation.alternatives:
        return
    context.show("")
    drawn = table("ALTERNATIVE", "CPUS", "COST, OR WHY NOT", whole=("CPUS",))
    for alternative in explanation.alternatives:
        terms = [f"{term} {_change(more)}" for term, more in alternative.cost.items()]
        moved = [f"{len(alternative.moved)} other guests move"] if alternative.moved else []
        lost = [f"{guest.label} has no place" for guest in alternative.unplaced]
        impossible = f"impossible: {alternative.impossible}" if alternative.impossible else ""
        what = impossible or "; ".join((*terms, *moved, *lost)) or "nothing"
        drawn.add_row(_place(alternative), cpu_cell(alternative.cpus), what)
    context.show(drawn)


def _place(alternative: "Alternative") -> str:
    match alternative.kind:
        case "node":
            return f"node {'unknown' if alternative.node is None else alternative.node}"
        case "l3":
            return "L3 cache"
        case "now":
            return "as now"
        case _:
            assert_never(alternative.kind)


_CAPACITY_ABOUT = """\
The number is exact: pinner plans so many guests of this size beside the
present ones, and finds no place for one more. By strategy: that of the host,
and those that a flavor may ask for. A host is planned by its policy, a
captured machine by the plan options. Nothing is stored or changed."""


def register_capacity(commands: Commands) -> None:
    parser = add_command(
        commands,
        "capacity",
        show_shape_rooms,
        "show how many more guests of one size fit a host, exactly",
        about=_CAPACITY_ABOUT,
        examples=[
            "pinner capacity --vcpus 8 --memory 16G",
            "pinner capacity --vcpus 8 --memory 16G --huge-pages 1G",
            "pinner capacity --vcpus 4 --snapshot host.json --strategy isolated",
        ],
    )
    _shape_options(parser)
    source_options(parser)
    request_options(parser, vcpu_set=False)


def _shape_options(to: Options) -> None:
    number = "the number of vCPUs of each guest"
    to.add_argument("--vcpus", metavar="N", type=vcpus, required=True, dest="size", help=number)
    to.add_argument(
        "--memory",
        metavar="SIZE",
        type=memory,
        default=0,
        help="the memory of each guest, such as 512M or 16G (default: memory does not count)",
    )
    to.add_argument(
        "--huge-pages",
        metavar="SIZE",
        type=memory,
        default=0,
        help="the size of the huge pages of this memory, such as 2M or 1G (default: normal pages)",
    )


def show_shape_rooms(context: CommandContext, arguments: Namespace) -> int:
    if arguments.huge_pages and not arguments.memory:
        raise Invalid("--huge-pages", kib(arguments.huge_pages), "an option beside --memory, whose pages these are")
    shape = GuestShape(arguments.size, arguments.memory, arguments.huge_pages)
    capacity = _capacity(context, arguments, shape)
    if context.json:
        print_json(codec.plain(capacity))
        return 0
    pages = f" in pages of {kib(shape.page_kib)}" if shape.page_kib else ""
    size = f"{shape.vcpus} vCPUs, {kib(shape.memory_kib) + pages if shape.memory_kib else 'any memory'}"
    context.show(facts(("host", capacity.host), ("strategy", capacity.strategy), ("guests of", size)), "")
    drawn = table("STRATEGY", "MORE GUESTS", "WHY NOT ONE MORE", right=("MORE GUESTS",), whole=("STRATEGY",))
    for room in capacity.fitting:
        drawn.add_row(room.strategy, room.guests, room.why)
    context.show(drawn)
    return 0


def _capacity(context: CommandContext, arguments: Namespace, shape: GuestShape) -> "Capacity":
    if (snapshot := captured(context, arguments)) is not None:
        return capacity_from_snapshot(snapshot, make_request(arguments), shape)
    if options := given(arguments):
        raise Invalid(f"--{options[0].replace('_', '-')}", "", "--snapshot or --root; a host is planned by its policy")
    with context.open() as pinner:
        return pinner.capacity(pick_host(pinner, arguments.host), shape.vcpus, shape)


def capacity_from_snapshot(snapshot: "Snapshot", request: "Request", shape: GuestShape) -> "Capacity":
    """Raises NotFound for an unknown strategy."""
    # Imported here, because the planner takes longer than the other imports of a command.
    from pinner.planning.questions.capacity import capacity, shape_rooms

    room = with_sizes(capacity(snapshot, request), (shape.vcpus,))
    return replace(room, shape=shape, fitting=shape_rooms(snapshot, request, shape))
