"""pinner guest list | pin-off | pin-on, and the table that inventory shows too."""

from argparse import Namespace
from collections.abc import Iterable
from functools import partial

from rich.table import Table

from pinner import codec
from pinner.cli.context import Context, pick_host
from pinner.cli.options import host_option
from pinner.cli.output import cells, cpu_cell, kib, plain_list, print_json, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.cli.places import masks
from pinner.model.guest import Guest
from pinner.render import visible


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "guest", "list the guests of a host; have one left alone")
    parser = add_command(
        verbs,
        "list",
        list_guests,
        "list the active guests and where the kernel lets their threads run",
        about="WAIT is the time that the vCPUs waited for a CPU since they began; DROPS are the packets that the\n"
        "guest's taps dropped.",
        examples=["pinner guest list", "pinner guest list --json"],
    )
    host_option(parser)
    for name, excluded, summary in (
        ("pin-off", True, "have a guest's CPUs left alone from now on"),
        ("pin-on", False, "have a guest placed again"),
    ):
        parser = add_command(
            verbs,
            name,
            partial(set_excluded, excluded=excluded),
            summary,
            about="This is written into the guest's metadata, where libvirt keeps it; its threads are not moved by it.",
            examples=[f"pinner guest {name} web1"],
        )
        parser.add_argument("guest", metavar="GUEST", help="its name or UUID")
        host_option(parser)


def set_excluded(context: Context, arguments: Namespace, *, excluded: bool) -> int:
    """Mark a guest, or take its mark away."""
    with context.open() as pinner:
        done = pinner.set_excluded(pick_host(pinner, arguments.host), arguments.guest, excluded, context.caller)
    if context.json:
        print_json(codec.plain(done))
        return 0
    state = "its CPUs are left alone" if done.excluded else "it is placed like any other"
    context.out.print(visible(f"guest {done.name}: {state}"))
    return 0


def list_guests(context: Context, arguments: Namespace) -> int:
    """Print the guests."""
    with context.open() as pinner:
        snapshot = pinner.observe(pick_host(pinner, arguments.host), 0)
    if context.json:
        print_json(plain_list(snapshot.guests))
        return 0
    context.out.print(guests(snapshot.guests))
    return 0


def guests(shown: Iterable[Guest]) -> Table:
    """A table of guests."""
    headers = ("GUEST", "STATE", "VCPUS", "ON", "EMULATOR ON", "MEMORY", "ON NODES", "WAIT", "DROPS", "NOTE")
    numbers = ("VCPUS", "MEMORY", "WAIT", "DROPS")
    drawn = table(*headers, right=numbers, whole=("ON", *numbers))
    for guest in shown:
        live = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread]
        drawn.add_row(
            *cells(
                guest.name,
                guest.state,
                len(guest.vcpus),
                cpu_cell(masks(thread.affinity for thread in live)),
                cpu_cell(masks(thread.affinity for thread in (*guest.emulator.threads, *guest.vhost_threads))),
                kib(guest.memory_kib),
                ", ".join(f"{node}: {kib(held)}" for node, held in sorted(guest.memory_per_node.items())) or "-",
                _wait([thread.delay_ns for thread in live]),
                sum(tap.rx_drops + tap.tx_drops for tap in guest.taps) if guest.taps else "-",
                _note(guest),
            )
        )
    return drawn


def _wait(delays: list[int | None]) -> str:
    known = [delay for delay in delays if delay is not None]
    return f"{sum(known) / 1e9:.1f} s" if known else "-"


def _note(guest: Guest) -> str:
    notes = ["dedicated by Nova"] if guest.dedicated else []
    if guest.excluded:
        notes.append("left alone (pin-off)")
    if guest.nova and guest.nova.instance:
        notes.append(f"instance {guest.nova.instance}")
    return ", ".join(notes)
