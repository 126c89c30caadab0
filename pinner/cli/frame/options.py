"""Options that several commands share, and the request and the snapshot that they describe."""

from argparse import BooleanOptionalAction, Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host, read_file
from pinner.cli.frame.parser import Options, Parser
from pinner.cli.frame.values import cores, device_cpus, limit, moves, path, percent, search_nodes, seconds, weight
from pinner.model.cpuset import MAX_CPUS
from pinner.model.errors import Invalid
from pinner.model.kinds import REMEDIES, SettingName
from pinner.model.page import DEFAULT_LIMIT
from pinner.model.plan.request import Request

if TYPE_CHECKING:
    from pinner.model.machine.topology import Topology
    from pinner.model.plan.plan import Plan
    from pinner.model.snapshot import Snapshot
    from pinner.service.protocol import Service

BUSY_THRESHOLD = Request().busy_threshold
OBSERVE_SECONDS = 1.0
"""The sample of a command that makes no plan; that of a plan is configured."""

REQUEST = tuple(field.name for field in fields(Request))
_LISTS = ("guests", "processes", "released_guests", "excluded_guests", "excluded_processes", "remedies", "fix")


def host_option(parser: Parser) -> None:
    parser.add_argument("--host", metavar="HOST", help="the host's name (default: the only host)")


def sample_option(to: Options, default: str) -> None:
    to.add_argument(
        "--sample-seconds",
        metavar="SECONDS",
        type=seconds,
        help=f"seconds between the two samples of CPU use, 0 = do not measure (default: {default})",
    )


def page_options(parser: Parser) -> None:
    parser.add_argument(
        "--limit", metavar="N", type=limit, default=DEFAULT_LIMIT, help="show at most N items (default: %(default)s)"
    )
    parser.add_argument(
        "--marker", default="", help="continue the list at this marker, which the previous page printed"
    )


def source_options(parser: Parser) -> None:
    group = parser.add_argument_group("source (at most one)").add_mutually_exclusive_group()
    group.add_argument("--host", metavar="HOST", help="the host with this name (default: the only host)")
    group.add_argument(
        "--snapshot", metavar="FILE", type=path, help="the snapshot in this file, which `pinner inventory --save` wrote"
    )
    group.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        help="the captured machine in this directory, which contains proc/ and sys/ (see `pinner capture`)",
    )


def fix_option(parser: Parser) -> None:
    parser.add_argument(
        "--fix",
        metavar="CODE",
        action="append",
        help="change only what cures the findings with this code, see `pinner check`: guests and processes stay where "
        "they are; may be repeated",
    )


def request_options(parser: Parser, *, strategy: bool = True, for_policy: bool = False, vcpu_set: bool = True) -> None:
    """An option that is not given is None. A policy never rebalances, and its sample is configured. Without
    ``vcpu_set``, --vcpus is free for another meaning."""
    group = parser.add_argument_group("plan options")
    if strategy:
        group.add_argument(
            "--strategy",
            metavar="NAME",
            help="strategy of the plan, see `pinner strategy list` (default: shared-pool, the best in measurements)",
        )
    _target_options(group)
    _exclusion_options(group)
    _cpu_options(group, vcpu_set=vcpu_set)
    _placement_options(group)
    _setting_options(group)
    if not for_policy:
        group.add_argument(
            "--rebalance",
            action="store_true",
            default=None,
            help="place all guests anew if that improves the objective; the plan shows how many threads move. Without "
            "this option, a well-placed guest keeps its CPUs",
        )
        sample_option(group, "[host] sample_seconds in the configuration")


def _setting_options(group: Options) -> None:
    remedies = "; ".join(f"{kind.remedy} = {kind.summary}" for kind in REMEDIES.values())
    group.add_argument(
        "--with",
        metavar="KIND",
        choices=get_args(SettingName),
        action="append",
        dest="remedies",
        help=f"what the plan changes besides the CPUs of threads; {remedies}; may be repeated (default: nothing)",
    )
    group.add_argument(
        "--irq-cpus",
        metavar="DEVICE=CPUS",
        type=device_cpus,
        action="append",
        help="with --with irqs, put the interrupts of this device (interface or PCI address) on these housekeeping "
        "CPUs; may be repeated",
    )


def _target_options(group: Options) -> None:
    group.add_argument(
        "--guest",
        metavar="GUEST",
        action="append",
        dest="guests",
        help="place only this guest (name or UUID) and move no process of the host; also places a guest that an "
        "operator pinned; may be repeated (default: all guests that no operator pinned)",
    )
    group.add_argument(
        "--with-processes",
        action=BooleanOptionalAction,
        help="with --guest, also move the busy processes of the host (default: no). Without --guest they always move",
    )
    group.add_argument(
        "--process",
        metavar="PROCESS",
        action="append",
        dest="processes",
        help="also move this process (name or pid), even if it is idle or restricted by its owner; may be repeated",
    )

    group.add_argument(
        "--release-cpuset",
        metavar="GUEST",
        action="append",
        dest="released_guests",
        help="place this guest (name or UUID) also outside the CPUs of its definition (<vcpu cpuset>) and of an "
        "operator's pins; a plan warns if no such guest exists now; may be repeated",
    )


def _exclusion_options(group: Options) -> None:
    group.add_argument(
        "--exclude-guest",
        metavar="GUEST",
        action="append",
        dest="excluded_guests",
        help="do not change the CPUs of this guest (name or UUID); a plan warns if no such guest exists now; may be "
        "repeated. `pinner guest pin-off` excludes a guest by a mark in its metadata",
    )
    group.add_argument(
        "--exclude-process",
        metavar="PROCESS",
        action="append",
        dest="excluded_processes",
        help="do not move processes with this name or systemd unit, which need not exist now; may be repeated",
    )
    group.add_argument(
        "--nova-emulators",
        action=BooleanOptionalAction,
        help="also place the emulator threads of guests that Nova pinned, unless Nova gives these threads CPUs of "
        "their own (default: no). The vCPUs of such guests are never changed",
    )


def _cpu_options(group: Options, *, vcpu_set: bool) -> None:
    group.add_argument(
        "--housekeeping", metavar="CPUS", help="CPU list for busy host processes, such as 0-3, or auto (default)"
    )
    group.add_argument(
        "--emulator", metavar="CPUS", help="CPU list for emulator threads, such as 4-7, or auto (default)"
    )
    group.add_argument(
        "--minimum-cores",
        metavar="N",
        type=cores,
        help="the fewest cores of each NUMA node that housekeeping, emulators and vCPUs get each, however many CPUs "
        "processes are restricted to (default: [host] minimum_cores in the configuration, 1)",
    )
    group.add_argument(
        "--busy-threshold",
        metavar="PERCENT",
        type=percent,
        help=f"a process above PERCENT per cent of one CPU is busy (default: {BUSY_THRESHOLD})",
    )
    if vcpu_set:
        group.add_argument(
            "--vcpus",
            metavar="CPUS",
            help="CPU list for vCPUs (not of `isolated`), such as 8-31, or auto (default): what the two others leave",
        )


def _placement_options(group: Options) -> None:
    group.add_argument(
        "--weight",
        metavar="TERM=NUMBER",
        type=weight,
        action="append",
        dest="weights",
        help="the weight of a term of the objective in its tier, such as extra_l3=2; 0 = the term does not count; may "
        "be repeated (default: [objective] in the configuration)",
    )
    group.add_argument(
        "--moves",
        metavar="N",
        type=moves,
        help="how many guests that have a place may move in one plan because of new guests, to make room for them or "
        "to improve the objective; 0 = none (default: 2)",
    )
    group.add_argument(
        "--smt",
        choices=("prefer", "isolate", "require"),
        help="how vCPUs use sibling threads of a core: prefer = use them (default), isolate = leave them idle, require "
        "= use only cores that have them",
    )
    group.add_argument(
        "--isolation",
        choices=("boot", "live"),
        help="how `isolated` takes CPUs from the scheduler: boot = by kernel arguments (default), live = by cgroup v2 "
        "partitions, which the apply creates",
    )
    group.add_argument(
        "--solver-budget",
        metavar="NODES",
        type=search_nodes,
        help="how many nodes of its search tree the solver of `optimal` may visit (default: 1000)",
    )


def given(arguments: Namespace) -> list[str]:
    return [name for name in (*REQUEST, "sample_seconds") if getattr(arguments, name, None) is not None]


def make_request(arguments: Namespace, **settings: str) -> Request:
    return updated(Request(), arguments, **settings)


def updated(request: Request, arguments: Namespace, **settings: Any) -> Request:
    for name in given(arguments):
        if name in REQUEST:
            value = getattr(arguments, name)
            settings.setdefault(name, _value(name, value))
    return replace(request, **settings)


def _value(name: str, value: Any) -> Any:
    if name in _LISTS:
        return tuple(value)
    return dict(value) if name in ("weights", "irq_cpus") else value


def make_plan(
    context: CommandContext,
    pinner: "Service",
    host: str | None,
    request: Request,
    sample_seconds: float | None,
    replaces: str | None = None,
) -> "Plan":
    """The plan is stored. ``host`` None: the only host."""
    host = pick_host(pinner, host)
    with context.measuring(sample_seconds):
        return pinner.plan(host, request, None, sample_seconds, context.caller, replaces)


def require_no_sample(arguments: Namespace) -> None:
    """Raises Invalid where CPU use is to be measured of a snapshot or a captured machine."""
    source = next((name for name in ("snapshot", "root") if getattr(arguments, name, None) is not None), None)
    if source and getattr(arguments, "sample_seconds", None):
        why = f"0, or no such option, beside --{source}: only a running host can be measured"
        raise Invalid("--sample-seconds", f"{arguments.sample_seconds:g}", why)


def captured(context: CommandContext, arguments: Namespace) -> "Snapshot | None":
    """None without --snapshot and --root. Raises Invalid."""
    require_no_sample(arguments)
    if arguments.snapshot is not None:
        return read_snapshot(arguments.snapshot)
    if arguments.root is None:
        return None
    with context.open(arguments.root) as pinner:
        return pinner.observe(pick_host(pinner, None), 0)


def plan_offline(snapshot: "Snapshot", request: Request) -> "Plan":
    """Needs no host, database or privileges; the plan is not stored."""
    # Imported here for the same reason as in context.open_pinner.
    from pinner.planning import planner

    return planner.plan(snapshot, codec.content_hash(snapshot), request)


MAX_BYTES = 1024**3
"""The largest file that is read; the snapshot of a host with 10,000 processes has about 10 MiB."""


def read_snapshot(file: Path) -> "Snapshot":
    """Raises Invalid with the file and the wrong field."""
    # Imported here, because most commands read no snapshot.
    from pinner.model.snapshot import Snapshot

    content = read_file("--snapshot", file, MAX_BYTES)
    try:
        snapshot = codec.load(Snapshot, content, field="snapshot", exact=True)
    except Invalid as error:
        raise _invalid(file, str(error)) from None
    for why in _contradictions(snapshot.topology):
        raise _invalid(file, f"snapshot.topology: {why}")
    return snapshot


def _contradictions(topology: "Topology") -> Iterator[str]:
    """What no machine can be, but an edited file may say."""
    cpus, nodes = [cpu.id for cpu in topology.cpus], [node.id for node in topology.nodes]
    for number in cpus:
        if not 0 <= number < MAX_CPUS:
            yield f"CPU {number} has no number from 0 to {MAX_CPUS - 1}"
    if not topology.online:
        yield "no CPU is online"
    for name, ids in (("CPU", cpus), ("node", nodes)):
        if twice := [id_ for id_, count in Counter(ids).items() if count > 1]:
            yield f"{name} {twice[0]} is listed twice"
    for cpu in topology.cpus:
        if cpu.node is not None and cpu.node not in nodes:
            yield f"CPU {cpu.id} is on node {cpu.node}, which is not listed"
        if cpu.l3 is not None and not 0 <= cpu.l3 < len(topology.l3_domains):
            yield f"CPU {cpu.id} is in level-3 domain {cpu.l3}, which is not listed"
    yield from _impossible_distances(topology)


def _impossible_distances(topology: "Topology") -> Iterator[str]:
    from pinner.model.machine.topology import MAX_DISTANCE  # as in read_snapshot

    for node in topology.nodes:
        for other, distance in node.distances.items():
            if not 0 <= distance <= MAX_DISTANCE:
                yield f"node {node.id} has a distance to node {other} that is not from 0 to {MAX_DISTANCE}: {distance}"


def _invalid(file: Path, why: str) -> Invalid:
    return Invalid("--snapshot", str(file), f"a file that `pinner inventory --save` wrote ({why})")
