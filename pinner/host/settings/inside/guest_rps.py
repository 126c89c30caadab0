"""Receive packet steering (networking/scaling.rst) inside guests."""

from pinner.host.settings.inside.agent import NUMBER, Agents, GuestAgent
from pinner.host.settings.inside.guests import (
    NAME,
    Card,
    Inside,
    Question,
    conversation,
    name_now,
    present,
    queue_folder,
    queues_of,
    written,
)
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus


def read_rps(inside: Inside) -> GuestRps:
    def read(card: Card, number: int) -> GuestQueue:
        return GuestQueue(card.interface, card.index, number, inside.agent.mask(_path(card.interface, number)))

    return GuestRps(inside.guest.uuid, inside.guest.name, inside.boot, inside.online, queues_of(inside, read))


def vcpus_of(agents: Agents | None, target: Target) -> GuestCpus:
    """Raises Gone also where the guest has restarted."""
    agent, path = _queue(agents, target)
    return present(target, lambda: GuestCpus(agent.mask(path)))


def set_vcpus(agents: Agents | None, target: Target, wanted: GuestCpus) -> None:
    """An empty set turns it off."""
    agent, path = _queue(agents, target)
    with written(target, wanted, lambda: GuestCpus(agent.mask(path))):
        agent.write(path, f"{wanted.vcpus.mask()}\n")


def _queue(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    if target.part is None or target.part < 0:
        raise Invalid("guest_rps", str(target)[:80], "the number of a queue")
    agent, (interface, index) = conversation(agents, target, NAME, NUMBER)
    return agent, _path(name_now(agent, target, interface, index), target.part)


def _path(interface: str, queue: int) -> str:
    return f"{queue_folder(interface, queue)}/rps_cpus"


ROW: HostRow[GuestCpus] = HostRow(
    lambda access, target: vcpus_of(access.agents, target),
    lambda access, target, state: set_vcpus(access.agents, target, state),
    inside=Question(GuestRps, read_rps),
)
