"""pinner probe: the test whether a plan is better than the present placement; pinner tournament: the ranking of several
plans."""

import time
from argparse import Namespace
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING

from pinner.cli.frame.context import CommandContext, agreed, pick_host, require_answer
from pinner.cli.frame.follow import Interrupted
from pinner.cli.frame.options import host_option
from pinner.cli.frame.parser import Commands, Parser, add_command
from pinner.cli.frame.pictures import show
from pinner.cli.frame.values import names, probe_windows, tournament_windows, window_seconds
from pinner.cli.show.probed import result_parts
from pinner.model.errors import Invalid, NotFound, PinnerError
from pinner.model.outcome.outcome import (
    BLOCK,
    DEFAULT_SECONDS,
    DEFAULT_WINDOWS,
    MAX_PLANS,
    TOURNAMENT_WINDOWS,
    WASH_OUT_SECONDS,
    ProbeOptions,
)
from pinner.model.plan.request import Request
from pinner.render import visible
from pinner.render.measures import scaled

if TYPE_CHECKING:
    from pinner.model.outcome.outcome import Probe
    from pinner.model.plan.plan import Plan
    from pinner.service.protocol import Service

POLL_SECONDS = 1.0
MOST_POLLS = 120
"""Until a cancelled probe has put its placement back."""

_PROBE_ABOUT = """\
The server of the host applies the plan and rolls it back, in windows of
random order, and compares run delay, drops, pressure, traffic and pings
between them. More packets without more drops are better, fewer are worse. The
guests that the plan does not change show what changed by itself. A window
does not count if another run, a migration, a restarted guest or a jump of
the clock falls into it.

better, worse:  the difference is not explained by chance
no matter:      the difference lies within a margin that matters to nobody
inconclusive:   more windows are needed; the output says about how many

At its end the host has the placement that the probe found, also after
Ctrl-C; with --keep and the verdict better it has the plan's. `pinner outcome
PROBE_ID` shows the verdict again, with all windows, also as a picture.

A probe or a tournament goes on when its terminal or connection ends: --cancel
ends it, and waits until its placement is put back."""

_TOURNAMENT_ABOUT = f"""\
A tournament is a probe of several plans (see `pinner probe --help`). The
server places the guests as each plan wants it and as they are now, in blocks
of {BLOCK} windows of each placement in random order, and compares each two
placements. If no placement changes anything, a wrong order comes in at most
5 % of all tournaments.

A placement is better than another one if it is better in some measure and
worse in none. Its rank is 1 plus the number of placements that are better.
The first one that is better than the present placement wins: one before it
is better than the winner, but not than the present placement.

All plans must be of one host, and made for its present placement. --strategy
makes them; `pinner compare` makes plans with other options. At its end the
host has the placement that the tournament found, also after Ctrl-C or a kill;
with --keep it has the winner's. `pinner outcome PROBE_ID` shows the ranking
again, with all windows."""


def register_probe(commands: Commands) -> None:
    parser = add_command(
        commands,
        "probe",
        probe,
        "test whether a plan is better than the present placement",
        about=_PROBE_ABOUT,
        asks=True,
        status={
            0: "better, no matter, cancelled by --cancel, or you answered no",
            1: "worse, inconclusive, or the probe did not reach its end",
        },
        examples=[
            "pinner probe PLAN_ID",
            "pinner probe PLAN_ID --windows 12 --seconds 60 --keep --yes",
            "pinner probe --cancel PROBE_ID",
        ],
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("plan", metavar="PLAN_ID", nargs="?", help="id of a stored plan (see `pinner plan list`)")
    what.add_argument(
        "--cancel", metavar="PROBE_ID", help="end this probe or tournament before its time (see `pinner audit list`)"
    )
    _window_options(
        parser, f"{DEFAULT_WINDOWS}; with nine measures, better and worse need 6", DEFAULT_WINDOWS, probe_windows
    )
    _keep_option(parser, "the placement of the plan, if it is better")


def register_tournament(commands: Commands) -> None:
    parser = add_command(
        commands,
        "tournament",
        tournament,
        "rank several plans and the present placement by their effect",
        about=_TOURNAMENT_ABOUT,
        asks=True,
        status={
            0: "a placement wins, or you answered no",
            1: "none wins, the winner is not kept, or it did not reach its end",
        },
        examples=[
            "pinner tournament PLAN_ID PLAN_ID PLAN_ID",
            "pinner tournament --strategy shared-pool,numa-local,isolated --keep --yes",
        ],
    )
    parser.add_argument(
        "plans", metavar="PLAN_ID", nargs="*", help=f"ids of stored plans (see `pinner plan list`), at most {MAX_PLANS}"
    )
    parser.add_argument(
        "--strategy",
        metavar="NAME,NAME",
        type=names,
        dest="strategies",
        default=(),
        help="make a plan with each of these strategies, from one snapshot, in place of stored plans",
    )
    host_option(parser)
    _window_options(parser, f"{TOURNAMENT_WINDOWS}; an even number", TOURNAMENT_WINDOWS, tournament_windows)
    _keep_option(parser, "the placement that wins")


def _window_options(parser: Parser, windows: str, default: int, number: Callable[[str], int]) -> None:
    parser.add_argument(
        "--windows",
        metavar="N",
        type=number,
        default=default,
        help=f"windows of each placement (default: {windows})",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=window_seconds,
        default=DEFAULT_SECONDS,
        help=f"length of a window (default: {DEFAULT_SECONDS}); {WASH_OUT_SECONDS} s before each do not count",
    )


def _keep_option(parser: Parser, what: str) -> None:
    parser.add_argument("--keep", action="store_true", help=f"at the end give the host {what}")


def probe(context: CommandContext, arguments: Namespace) -> int:
    unused = {"windows": DEFAULT_WINDOWS, "seconds": DEFAULT_SECONDS, "keep": False}
    for name, default in unused.items() if arguments.cancel else ():
        if (value := getattr(arguments, name)) != default:
            raise Invalid(f"--{name}", value, "not given with --cancel")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        if arguments.cancel:
            return _cancel(context, pinner, arguments)
        return _played(context, pinner, arguments, [pinner.plan_by_id(arguments.plan)])


def _cancel(context: CommandContext, pinner: "Service", arguments: Namespace) -> int:
    probe = pinner.probe_by_id(arguments.cancel)
    if not agreed(f"End probe {probe.id} and put the placement of host {probe.host} back?", yes=arguments.yes):
        return 0
    probe = pinner.cancel_probe(probe.id, context.caller)
    for _ in range(MOST_POLLS):
        if probe.state != "running":
            break
        time.sleep(POLL_SECONDS)
        probe = pinner.probe_by_id(probe.id)
    show(context, probe, result_parts)
    return 0 if probe.state == "cancelled" and not probe.left else 1


def tournament(context: CommandContext, arguments: Namespace) -> int:
    given = arguments.plans or arguments.strategies
    if arguments.plans and arguments.strategies:
        raise Invalid("--strategy", ",".join(arguments.strategies), "no --strategy beside ids of plans")
    if arguments.plans and arguments.host:
        raise Invalid("--host", arguments.host, "no --host beside ids of plans, which have their host")
    if not 2 <= len(given) <= MAX_PLANS:
        raise Invalid("plans", ", ".join(given), f"2 to {MAX_PLANS} plans or strategies; one is for `pinner probe`")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        plans = [pinner.plan_by_id(plan) for plan in arguments.plans] or _made(context, pinner, arguments)
        return _played(context, pinner, arguments, plans)


def _made(context: CommandContext, pinner: "Service", arguments: Namespace) -> list["Plan"]:
    host = pick_host(pinner, arguments.host)
    _require_distinct(arguments.strategies, {strategy.name for strategy in pinner.strategies()})
    with context.measuring(None):
        taken, _ = pinner.take_snapshot(host, None, context.caller)
    return [pinner.plan(host, Request(strategy=name), taken, None, context.caller) for name in arguments.strategies]


def _require_distinct(strategies: Sequence[str], known: Set[str]) -> None:
    for index, name in enumerate(strategies):
        if name not in known:
            raise NotFound("strategy", name)
        if name in strategies[:index]:
            raise Invalid("--strategy", name, "each strategy once: equal placements cannot be ranked")


def _played(context: CommandContext, pinner: "Service", arguments: Namespace, plans: Sequence["Plan"]) -> int:
    changes = " + ".join(str(len(plan.changes)) for plan in plans)
    windows = (1 + len(plans)) * arguments.windows
    minutes = (windows * (arguments.seconds + WASH_OUT_SECONDS) + WASH_OUT_SECONDS) / 60
    question = f"Make and undo these {changes} changes up to {arguments.windows} times in {minutes:.0f} min?"
    if not agreed(question, yes=arguments.yes):
        return 0
    ended = _followed(context, pinner, arguments, [plan.id for plan in plans])
    show(context, ended, result_parts)
    is_kept = bool(ended.kept) or not (ended.keep and ended.winner)
    hoped_for = ended.winner or (ended.outcome and ended.outcome.judgement == "no matter")
    return 0 if hoped_for and is_kept else 1


def _followed(context: CommandContext, pinner: "Service", arguments: Namespace, plans: Sequence[str]) -> "Probe":
    """Raises Interrupted on Ctrl-C, which ends the probe."""
    probe: Probe | None = None
    first, *rivals = plans
    options = ProbeOptions(arguments.windows, arguments.seconds, tuple(rivals), keep=arguments.keep)
    try:
        probe = pinner.probe(first, options, context.caller)
        context.inform(f"probe {probe.id}: {len(probe.order)} windows, about {probe.total_seconds / 60:.0f} min")
        shown = 0
        while True:
            for number in range(shown, len(probe.windows)):
                _show_window(context, probe, number)
            shown = len(probe.windows)
            if probe.state != "running":
                return probe
            time.sleep(POLL_SECONDS)
            probe = pinner.probe_by_id(probe.id)
    except KeyboardInterrupt:
        if probe is None:
            raise Interrupted("interrupted; `pinner audit list` shows whether a probe was started") from None
        raise Interrupted(_cancelled(context, pinner, probe)) from None


def _cancelled(context: CommandContext, pinner: "Service", probe: "Probe") -> str:
    with suppress(KeyboardInterrupt):
        try:
            pinner.cancel_probe(probe.id, context.caller)
            context.inform(f"interrupted; probe {probe.id} puts the placement back")
            while (probe := pinner.probe_by_id(probe.id)).state == "running":
                time.sleep(POLL_SECONDS)
        except PinnerError as error:
            return f"interrupted; probe {probe.id} goes on: {error}"
    remains = f"; run {probe.left} is still in place" if probe.left else ""
    kept = f"; run {probe.kept} keeps {probe.winner}" if probe.kept else ""
    return f"interrupted; probe {probe.id} is {probe.state}{remains}{kept}"


def _show_window(context: CommandContext, probe: "Probe", number: int) -> None:
    window = probe.windows[number]
    values = ", ".join(f"{name} {scaled(value)}" for name, value in window.values.items())
    text = f"does not count: {window.void}" if window.void else values
    total = len(probe.order)
    line = f"[{number + 1:>{len(str(total))}}/{total}] {window.arm:<{max(map(len, probe.arms))}} {text}"
    context.err.print(visible(line), style="yellow" if window.void else None, soft_wrap=True)
