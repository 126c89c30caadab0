"""Receive flow steering (RFS) inside guests. Numbers that are set already stay: the guest's owner has chosen them."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Wanted
from pinner.model.settings.inside import FLOWS, GuestRfs
from pinner.model.states import Number, State
from pinner.planning.settings.inside.common import STAYS, row

_WHY = "the vCPU of the program that reads a flow takes its packets"


def _wanted(rfs: GuestRfs) -> Iterator[Wanted]:
    for target, state in rfs.states.items():
        yield Wanted(target, CpuSet(), STAYS if state != Number(0) else _WHY, FLOWS if state == Number(0) else state)


def _commands(target: Target, state: State) -> Iterator[str]:
    _, _, *queue = target.owner.split(" ")
    if not queue:
        yield f"# inside the guest: sysctl -w net.core.rps_sock_flow_entries={state}"
    else:
        interface, _, number = queue
        path = f"/sys/class/net/{quote(interface)}/queues/rx-{quote(number)}/rps_flow_cnt"
        yield f"# inside the guest: echo {state} > {path}"


ROW = row("guest_rfs", "RFS", _wanted, _commands)
