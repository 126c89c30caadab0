"""pinner topology: draw the CPUs of a host, now and as planned."""

from argparse import Namespace
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands.host.hosts import HostNow, observe
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import (
    BUSY_THRESHOLD,
    OBSERVE_SECONDS,
    captured,
    given,
    make_plan,
    make_request,
    plan_offline,
    request_options,
    source_options,
)
from pinner.cli.frame.output import print_json
from pinner.cli.frame.parser import Commands, add_command
from pinner.model.errors import Invalid

if TYPE_CHECKING:
    from pinner.cli.show.draw import Uses
    from pinner.model.plan.plan import Plan

ABOUT = """\
Each CPU is shown by its number and the letter of its role. Brackets [ ]
enclose the CPUs of one core.
  H housekeeping   E emulator threads   V vCPUs   I isolated
  D dedicated by Nova   . unused   x offline
  * several roles on one CPU, which compete for it

The first drawing shows the host now: the CPUs on which busy host processes,
emulator threads and vCPUs may run. With --plan or a plan option, a second
drawing shows the host as planned. Without them, CPU use is measured for 1
second unless --sample-seconds is given. Where libvirt does not answer, the
command warns, and draws the host without roles."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "topology",
        topology,
        "draw a host: NUMA nodes, L3 domains, cores, and the role of each CPU",
        about=ABOUT,
        examples=[
            "pinner topology",
            "pinner topology --plan PLAN_ID",
            "pinner topology --strategy isolated",
            "COLUMNS=160 pinner topology --snapshot host.json --strategy shared-pool",
        ],
    )
    parser.add_argument(
        "--plan", metavar="PLAN_ID", help="draw this stored plan and the snapshot that it was made from"
    )
    source_options(parser)
    request_options(parser)


def topology(context: CommandContext, arguments: Namespace) -> int:
    from pinner.cli.show.draw import drawing, uses_now, uses_planned, uses_unknown

    host_now, plan = _observation_and_plan(context, arguments)
    for warning in host_now.warnings if plan is None else ():  # a plan has its own warnings
        context.warn(warning)
    threshold = plan.request.busy_threshold if plan else BUSY_THRESHOLD
    now = uses_now(host_now.snapshot, threshold) if host_now.snapshot else None
    planned = uses_planned(host_now.snapshot, plan) if host_now.snapshot and plan else None
    if context.json:
        print_json(
            {
                "host": host_now.host,
                "topology": codec.plain(host_now.topology),
                "now": _plain(now),
                "plan": plan.id if plan else None,
                "planned": _plain(planned),
            }
        )
        return 0
    views = [(f"{host_now.host} now", now or uses_unknown(host_now.topology))]
    if plan and planned:
        views.append((f"as planned by {plan.request.strategy}, plan {plan.id}", planned))
    for line in drawing(host_now.topology, views, context.out.width):
        context.out.print(line, soft_wrap=True)
    return 0


def _observation_and_plan(context: CommandContext, arguments: Namespace) -> tuple[HostNow, "Plan | None"]:
    # --sample-seconds alone asks for no plan.
    if arguments.plan is None and not set(given(arguments)) - {"sample_seconds"}:
        return _observe(context, arguments), None
    if arguments.plan is not None and (given(arguments) or arguments.snapshot or arguments.root or arguments.host):
        raise Invalid("--plan", arguments.plan, "a plan's id without plan options, --host, --snapshot and --root")
    request = make_request(arguments)
    snapshot = captured(context, arguments)
    if snapshot is not None:
        return HostNow.of(snapshot), plan_offline(snapshot, request)
    with context.open() as pinner:
        plan = (
            make_plan(context, pinner, arguments.host, request, arguments.sample_seconds)
            if arguments.plan is None
            else pinner.plan_by_id(arguments.plan)
        )
        return HostNow.of(pinner.snapshot(plan.basis.snapshot)), plan


def _observe(context: CommandContext, arguments: Namespace) -> HostNow:
    snapshot = captured(context, arguments)
    if snapshot is not None:
        return HostNow.of(snapshot)
    span = OBSERVE_SECONDS if arguments.sample_seconds is None else arguments.sample_seconds
    with context.open() as pinner, context.measuring(span):
        return observe(pinner, pick_host(pinner, arguments.host), span)


def _plain(uses: "Uses | None") -> dict[str, str] | None:
    return None if uses is None else {str(cpu): role.name for cpu, role in sorted(uses.items())}
