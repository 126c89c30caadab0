"""pinner place, which places parts of a guest, or processes, on CPUs that the user names."""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinner.cli.commands.runs import apply_options, apply_plan
from pinner.cli.frame.context import CommandContext, pick_host, require_answer
from pinner.cli.frame.options import host_option, make_plan, sample_option
from pinner.cli.frame.parser import Commands, Parser, add_command
from pinner.cli.frame.values import cpu_list, parts_on
from pinner.model.errors import Invalid
from pinner.model.plan.request import Request, RequestedPin

if TYPE_CHECKING:
    from pinner.model.guest.guest import Guest
    from pinner.service.protocol import Service

_ABOUT = """\
Only what is named moves. The command makes a plan, shows it with the
objective before and after, asks, and applies it as `pinner apply` does: with
a journal, an audit trail and `pinner rollback`. A CPU is refused if it is
absent, offline, isolated (except for one vCPU alone), Nova's, restricted by
others, or one that a vCPU of another guest has to itself.

With --adopt, the guest keeps the pins that somebody made with virsh, and they
become pinner's: a plan for all guests then places the guest, too."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "place",
        place,
        "place parts of a guest, or processes, on CPUs of your choice",
        about=_ABOUT,
        asks=True,
        status={
            0: "the whole plan is applied, or you answered no",
            1: "failed, or not all is placed (applied_partly), or worse (--watch)",
        },
        examples=[
            "pinner place web1 --emulator 5 --vcpu 0=6 --vcpu 1=7",
            "pinner place web1 --vcpu 0-3=8-11 --iothread 1=5",
            "pinner place web1 --all 8,10,12,14",
            "pinner place --process 812 --process ceph-osd --cpus 0,2,4,6",
            "pinner place web1 --adopt",
        ],
    )
    parser.add_argument("guest", metavar="GUEST", nargs="?", help="name or UUID of the guest")
    _cpu_options(parser)
    apply_options(parser)
    host_option(parser)
    sample_option(parser, "[host] sample_seconds in the configuration")


def _cpu_options(parser: Parser) -> None:
    group = parser.add_argument_group("CPUs")
    parts = "NUMBERS=CPUS"
    group.add_argument(
        "--vcpu",
        metavar=parts,
        type=parts_on,
        action="append",
        default=[],
        help="CPUs of a vCPU, such as 0=6, or of each of several, such as 0-3=8-11; may be repeated",
    )
    group.add_argument("--emulator", metavar="CPUS", type=cpu_list, help="CPUs of the emulator and vhost threads")
    group.add_argument(
        "--iothread",
        metavar=parts,
        type=parts_on,
        action="append",
        default=[],
        help="CPUs of an iothread, such as 1=5; may be repeated",
    )
    group.add_argument("--all", metavar="CPUS", type=cpu_list, help="CPUs of all threads of the guest")
    group.add_argument("--adopt", action="store_true", help="keep the pins that the guest has now, as pinner's")
    group.add_argument(
        "--process",
        metavar="PROCESS",
        action="append",
        dest="processes",
        default=[],
        help="place this process (name or pid) on --cpus; may be repeated",
    )
    group.add_argument("--cpus", metavar="CPUS", type=cpu_list, help="CPUs of each --process")


def place(context: CommandContext, arguments: Namespace) -> int:
    pins = (*_parts(arguments), *_processes(arguments))
    if bool(arguments.guest) != bool(arguments.adopt or any(pin.kind != "process" for pin in pins)):
        raise Invalid("GUEST", arguments.guest or "", "a guest with --vcpu, --emulator, --iothread, --all or --adopt")
    if not (pins or arguments.adopt):
        raise Invalid("GUEST", "", "a guest with the CPUs of its parts, or --process with --cpus")
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        if arguments.adopt:
            pins = (*_adopted(pinner, arguments, pins), *pins)
        request = Request(placement=pins)
        plan = make_plan(context, pinner, arguments.host, request, arguments.sample_seconds)
        return apply_plan(context, pinner, plan, arguments)


def _parts(arguments: Namespace) -> Iterator[RequestedPin]:
    guest = arguments.guest or ""
    for numbers, cpus in arguments.vcpu:
        yield from (RequestedPin(guest, "vcpu", cpus, number) for number in numbers)
    for numbers, cpus in arguments.iothread:
        yield from (RequestedPin(guest, "iothread", cpus, number) for number in numbers)
    if arguments.emulator is not None:
        yield RequestedPin(guest, "emulator", arguments.emulator)
    if arguments.all is not None:
        yield RequestedPin(guest, "all", arguments.all)


def _processes(arguments: Namespace) -> Iterator[RequestedPin]:
    if bool(arguments.processes) != (arguments.cpus is not None):
        raise Invalid("--cpus", str(arguments.cpus or ""), "CPUs, together with --process")
    yield from (RequestedPin(name, "process", arguments.cpus) for name in arguments.processes)


def _adopted(pinner: "Service", arguments: Namespace, pins: tuple[RequestedPin, ...]) -> tuple[RequestedPin, ...]:
    if any(pin.kind != "process" for pin in pins):
        raise Invalid("--adopt", arguments.guest, "given without --vcpu, --emulator, --iothread and --all")
    snapshot = pinner.observe(pick_host(pinner, arguments.host), 0)
    guest = snapshot.running_guest(arguments.guest)
    online = snapshot.topology.online
    unpinned, ours = (online, guest.restriction & online), {(pin.kind, pin.part, pin.cpus) for pin in guest.own_pins}
    foreign = (pin for pin in _pins_now(guest) if (pin.kind, pin.part, pin.cpus) not in ours)
    if not (adopted := tuple(pin for pin in foreign if pin.cpus & online not in unpinned)):
        raise Invalid("--adopt", guest.name, "a guest with a pin that pinner did not make; this one has none")
    return adopted


def _pins_now(guest: "Guest") -> Iterator[RequestedPin]:
    yield RequestedPin(guest.uuid, "emulator", guest.emulator.pin)
    yield from (RequestedPin(guest.uuid, "vcpu", each.pin, each.id) for each in guest.vcpus if each.thread)
    yield from (RequestedPin(guest.uuid, "iothread", each.pin, each.id) for each in guest.iothreads if each.thread)
