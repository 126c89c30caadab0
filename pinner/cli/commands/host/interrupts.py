"""pinner host interrupts."""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.output import cells, cpu_cell, print_json, table
from pinner.cli.frame.tables import Cell, Table
from pinner.cli.frame.values import path
from pinner.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from pinner.model.machine.interrupts import DeviceInterrupts, HostInterrupts


def register(verbs: Commands) -> None:
    """Add the command to the noun host."""
    parser = add_command(
        verbs,
        "interrupts",
        show_interrupts,
        "show the interrupts of a host's devices, their CPUs and the roles of these",
        about="By device and NUMA node, with the NAPI threads of network interfaces. `pinner\n"
        "check` says which of them hurt guests.",
        examples=["pinner host interrupts", "pinner host interrupts compute1 --json"],
    )
    parser.add_argument("host", metavar="HOST", nargs="?", help="the host's name (default: the only host)")
    parser.add_argument(
        "--root", metavar="DIR", type=path, help="show the captured machine in this directory (see `pinner capture`)"
    )


def show_interrupts(context: CommandContext, arguments: Namespace) -> int:
    """Print the interrupts of a host."""
    with context.open(arguments.root) as pinner:
        found = pinner.interrupts(pick_host(pinner, arguments.host))
    if context.json:
        print_json(codec.plain(found))
    elif found.devices:
        context.show(interrupts(found))
    else:
        context.show("no interrupts of devices are known")
    return 0


def interrupts(found: "HostInterrupts") -> Table:
    """A row for each interrupt and NAPI thread."""
    drawn = table("DEVICE", "NODE", "NUMBER", "NAME", "CPUS", "ROLES", "LOCAL", right=("NUMBER",), whole=("DEVICE",))
    for device in found.devices:
        for row in _rows(device):
            drawn.add_row(*row)
    return drawn


def _rows(device: "DeviceInterrupts") -> Iterator[list[Cell]]:
    label = device.interface or device.device
    node = "unknown" if device.node is None else device.node
    for each in device.interrupts:
        roles = ", ".join(f"{role.role} {role.cpus}" if len(each.roles) > 1 else role.role for role in each.roles)
        local = {True: "yes", False: "no", None: "unknown"}[each.is_local]
        name = f"{each.name} (managed)" if each.managed else each.name
        yield cells(label, node, each.number, name, cpu_cell(each.cpus or "none"), roles, local)
