"""pinner guest list | pin-off | pin-on, and the table of guests."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, agreed, pick_host, require_answer
from pinner.cli.frame.options import host_option
from pinner.cli.frame.output import Table, cpu_cell, kib, masks, print_items, print_json, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.model.cpuset import CpuSet
from pinner.model.errors import PinnerError
from pinner.model.outcome.measures import HOST, TREND, Span
from pinner.model.text import counted
from pinner.render import visible
from pinner.render.measures import sparkline

if TYPE_CHECKING:
    from pinner.model.guest.guest import Guest
    from pinner.service.protocol import Service

NO_TRENDS: Mapping[str, str] = MappingProxyType({})
_WIDE = 100
_BARS = 12

PIN_OFF = """\
The command writes a mark into the guest's libvirt metadata. The guest's
threads stay on their present CPUs. `pinner guest pin-on` removes the mark."""

PIN_ON = """\
The command removes the mark that `pinner guest pin-off` wrote into the guest's
libvirt metadata. The command moves no thread: the next plan places the guest."""


def register(commands: Commands) -> None:
    verbs = add_noun(commands, "guest", "list the guests of a host, exclude a guest from placement or include it again")
    parser = add_command(
        verbs,
        "list",
        list_guests,
        "list the active guests and the CPUs on which their threads may run",
        about="WAIT is the time that the vCPUs have waited for a CPU since they started. LAST\n"
        "HOUR shows it as a line, where `pinner serve` measures. DROPS is the number of\n"
        "packets that the guest's tap interfaces have dropped.",
        examples=["pinner guest list", "pinner guest list --json"],
    )
    host_option(parser)
    for name, excluded, summary, about in (
        ("pin-off", True, "exclude a guest: from now on pinner does not change its CPUs", PIN_OFF),
        ("pin-on", False, "include an excluded guest again: pinner places it like any other", PIN_ON),
    ):
        parser = add_command(
            verbs,
            name,
            partial(set_excluded, excluded=excluded),
            summary,
            about=about,
            asks=True,
            examples=[f"pinner guest {name} web1", f"pinner guest {name} web1 --yes"],
        )
        parser.add_argument("guest", metavar="GUEST", help="the guest's name or UUID")
        host_option(parser)


def set_excluded(context: CommandContext, arguments: Namespace, *, excluded: bool) -> int:
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        question = f"{'Exclude' if excluded else 'Include'} guest {arguments.guest} on host {host}?"
        if not agreed(question, yes=arguments.yes):
            return 0
        done = pinner.set_excluded(host, arguments.guest, excluded, context.caller)
    if context.json:
        print_json(codec.plain(done))
        return 0
    state = "excluded, pinner does not change its CPUs" if done.excluded else "included, pinner places it"
    context.show(visible(f"guest {done.name}: {state}"))
    return 0


def list_guests(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        snapshot = pinner.observe(host, 0)
        trends = {} if context.json or context.out.width < _WIDE else _trends(pinner, host)
    if context.json:
        print_items(snapshot.guests)
        return 0
    context.show(guests(snapshot.guests, trends))
    return 0


def _trends(pinner: "Service", host: str) -> dict[str, str]:
    try:
        histories = pinner.measures(host, Span(), None, (TREND,)).histories
    except PinnerError:
        return {}
    return {
        history.subject: sparkline(history.values[TREND], _BARS) for history in histories if history.subject != HOST
    }


def guests(shown: Iterable["Guest"], trends: Mapping[str, str] = NO_TRENDS) -> Table:
    headers = (
        "GUEST",
        "STATE",
        "VCPUS",
        "ON",
        "EMULATOR ON",
        "MEMORY",
        "ON NODES",
        "WAIT",
        *(["LAST HOUR"] if trends else []),
        "DROPS",
        "NOTE",
    )
    numbers = ("VCPUS", "MEMORY", "WAIT", "DROPS")
    drawn = table(*headers, right=numbers, whole=("ON", *numbers))
    for guest in shown:
        live = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread]
        drawn.add_row(
            guest.name,
            guest.state,
            len(guest.vcpus),
            cpu_cell(masks(thread.affinity for thread in live)),
            cpu_cell(masks(thread.affinity for thread in (*guest.emulator.threads, *guest.vhost_threads))),
            kib(guest.memory_kib),
            ", ".join(f"{node}: {kib(amount)}" for node, amount in sorted(guest.memory_per_node.items())) or "-",
            _wait([thread.delay_ns for thread in live]),
            *([trends.get(guest.uuid, "")] if trends else []),
            sum(tap.rx_drops + tap.tx_drops for tap in guest.taps) if guest.taps else "-",
            _note(guest),
        )
    return drawn


def _wait(delays: list[int | None]) -> str:
    known = [delay for delay in delays if delay is not None]
    return f"{sum(known) / 1e9:.1f} s" if known else "-"


def _note(guest: "Guest") -> str:
    notes = ["dedicated by Nova"] if guest.dedicated else []
    if nodes := CpuSet.of(node for binding in guest.numa.bindings() for node in binding.nodes):
        notes.append(f"strict memory on node{'s' * (len(nodes) > 1)} {nodes}")
    if guest.restriction:
        notes.append(f"its definition allows CPUs {guest.restriction}")
    notes += [f"{limit} allows CPUs {limit.cpus}" for limit in guest.cpu_limits[-1:]]
    if guest.excluded:
        notes.append("excluded (pin-off)")
    if sending := guest.migration_threads:
        notes.append(counted(len(sending), "migration thread"))
    if guest.nova and guest.nova.instance:
        notes.append(f"instance {guest.nova.instance}")
    return ", ".join(notes)
