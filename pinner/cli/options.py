"""Options that several commands share, and what they say together: a request and where to plan it."""

from argparse import BooleanOptionalAction, Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pinner import codec
from pinner.cli.context import Context, pick_host, reason
from pinner.cli.parser import Parser
from pinner.cli.values import limit, percent, seconds
from pinner.model.errors import Invalid
from pinner.model.page import DEFAULT_LIMIT
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.service.protocol import Service

BUSY_THRESHOLD = Request().busy_threshold
OBSERVE_SECONDS = 1.0
"""Seconds between the two samples where somebody only looks; a plan takes the configured span."""

REQUEST = tuple(field.name for field in fields(Request))
_LISTS = ("guests", "processes", "excluded_guests", "excluded_processes")


def host_option(parser: Parser) -> None:
    """--host for a command about one host."""
    parser.add_argument("--host", metavar="HOST", help="the host's name (default: the only host)")


def sample_option(parser: Parser, default: str) -> None:
    """--sample-seconds; None where it is not given."""
    parser.add_argument(
        "--sample-seconds",
        metavar="N",
        type=seconds,
        help=f"seconds between the two samples of CPU use, 0 for none (default: {default})",
    )


def threshold_option(parser: Parser, name: str) -> None:
    """The load above which a process is busy."""
    parser.add_argument(
        name,
        metavar="P",
        type=percent,
        default=BUSY_THRESHOLD,
        help="a process above P per cent of one CPU is busy (default: %(default)s)",
    )


def page_options(parser: Parser) -> None:
    """--limit and --marker of a list."""
    parser.add_argument(
        "--limit", metavar="N", type=limit, default=DEFAULT_LIMIT, help="at most N items (default: %(default)s)"
    )
    parser.add_argument("--marker", default="", help="go on after the page that gave this marker")


def source_options(parser: Parser) -> None:
    """Which machine to look at: a host, a captured root, or a snapshot file."""
    group = parser.add_argument_group("what to plan for").add_mutually_exclusive_group()
    group.add_argument("--host", metavar="HOST", help="a host by name (default: the only host)")
    group.add_argument("--snapshot", metavar="FILE", type=Path, help="a file that `pinner inventory --save` wrote")
    group.add_argument(
        "--root", metavar="DIR", type=Path, help="a captured machine: a folder that holds its proc/ and sys/"
    )


def request_options(parser: Parser, *, strategy: bool = True, placement: bool = False) -> None:
    """The parameters of a plan, or with ``standing`` of a policy; those that are not given are None."""
    group = parser.add_argument_group("plan options")
    if strategy:
        group.add_argument(
            "--strategy",
            metavar="S",
            help="see `pinner strategy list` (default: shared-pool, the best in measurements)",
        )
    group.add_argument(
        "--guest", metavar="G", action="append", dest="guests", help="only this guest (name or UUID); may be repeated"
    )
    group.add_argument(
        "--process",
        metavar="P",
        action="append",
        dest="processes",
        help="move this process (name or pid) too, although it is idle or narrowed; may be repeated",
    )
    group.add_argument("--housekeeping", metavar="L", help="CPU list for busy host processes, or auto (default)")
    group.add_argument("--emulator", metavar="L", help="CPU list for emulator threads, or auto (default)")
    group.add_argument(
        "--busy-threshold",
        metavar="P",
        type=percent,
        help=f"a process above P per cent of one CPU is busy (default: {BUSY_THRESHOLD})",
    )
    group.add_argument(
        "--smt",
        choices=("prefer", "isolate", "require"),
        help="sibling threads of a core under `isolated`: prefer to use them (default), isolate = leave them idle, "
        "require = refuse a host without",
    )
    group.add_argument(
        "--isolation",
        choices=("boot", "live"),
        help="how `isolated` takes CPUs from the scheduler: by the kernel's arguments (boot, default), or by cgroup v2 "
        "partitions that the apply makes (live)",
    )
    group.add_argument(
        "--exclude-guest",
        metavar="G",
        action="append",
        dest="excluded_guests",
        help="leave this guest (name or UUID) alone; it need not be there; may be repeated. `pinner guest pin-off` "
        "marks it in its own metadata instead",
    )
    group.add_argument(
        "--exclude-process",
        metavar="P",
        action="append",
        dest="excluded_processes",
        help="leave processes of this name or systemd unit alone; may be repeated",
    )
    group.add_argument(
        "--nova-emulators",
        action=BooleanOptionalAction,
        help="place QEMU's own threads of guests that Nova pinned, too, where Nova gives them no CPUs of their own "
        "(default: no); their vCPUs are never touched",
    )
    if not placement:
        group.add_argument(
            "--rebalance",
            action="store_true",
            default=None,
            help="place all guests anew where that scores better, and say what it costs in moves; without it, who "
            "sits well stays",
        )
        sample_option(parser, "the configured span")


def given(arguments: Namespace) -> list[str]:
    """The plan options that were given."""
    return [name for name in (*REQUEST, "sample_seconds") if getattr(arguments, name, None) is not None]


def make_request(arguments: Namespace, **settings: str) -> Request:
    """The request that the options ask for. Raises Invalid."""
    return updated(Request(), arguments, **settings)


def updated(request: Request, arguments: Namespace, **settings: Any) -> Request:
    """The request with what the options ask for in place of its own. Raises Invalid."""
    for name in given(arguments):
        if name in REQUEST:
            value = getattr(arguments, name)
            settings.setdefault(name, tuple(value) if name in _LISTS else value)
    return replace(request, **settings)


def make_plan(
    context: Context, pinner: Service, host: str | None, request: Request, sample_seconds: float | None
) -> Plan:
    """Plan for a host (None: the only one) as it is now; the plan is stored."""
    host = pick_host(pinner, host)
    with context.measuring(sample_seconds):
        return pinner.plan(host, request, None, sample_seconds, context.caller)


def captured(context: Context, arguments: Namespace) -> Snapshot | None:
    """The snapshot from --snapshot or --root; None where a host is meant."""
    if arguments.snapshot is not None:
        return read_snapshot(arguments.snapshot)
    if arguments.root is None:
        return None
    with context.open(arguments.root) as pinner:
        return pinner.observe(pick_host(pinner, None), 0)


def read_snapshot(file: Path) -> Snapshot:
    """A snapshot from a file. Raises Invalid that names the file, or the place in it that is wrong."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise Invalid("--snapshot", str(file), f"a file that can be read ({reason(error)})") from None
    return codec.load(Snapshot, text, field="snapshot")


def plan_offline(snapshot: Snapshot, request: Request) -> Plan:
    """Plan from a snapshot in hand: no host, no database, no rights are needed; the plan is not stored."""
    # Imported here for the same reason as in context.open_pinner.
    from pinner.service import offline

    return offline.plan_from_snapshot(snapshot, request)
