"""Receive packet steering (RPS) inside guests. A queue with RPS keeps its vCPUs: the guest's owner has chosen them."""

from collections.abc import Iterator
from shlex import quote

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Wanted
from pinner.model.settings.inside import GuestRps
from pinner.model.states import GuestCpus, State
from pinner.planning.settings.inside.common import STAYS, row


def _wanted(rps: GuestRps) -> Iterator[Wanted]:
    why = f"the card has fewer queues than the guest has vCPUs ({len(rps.online)}): all of them take its packets"
    for queue in rps.queues:
        vcpus = queue.vcpus or rps.online
        yield Wanted(rps.target(queue), CpuSet(), STAYS if queue.vcpus else why, GuestCpus(vcpus))


def _commands(target: Target, state: State) -> Iterator[str]:
    mask = state.vcpus.mask() if isinstance(state, GuestCpus) else ""
    interface = target.owner.split(" ")[2]
    path = f"/sys/class/net/{quote(interface)}/queues/rx-{target.part}/rps_cpus"
    yield f"# inside the guest: echo {mask} > {path}"


ROW = row("guest_rps", "RPS", _wanted, _commands)
