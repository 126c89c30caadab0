"""Receive packet steering (networking/scaling.rst) inside guests."""

from collections.abc import Iterator

from pinner.host.settings.inside.agent import NUMBER, Agents, GuestAgent
from pinner.host.settings.inside.guests import (
    MAX_QUEUES,
    NAME,
    NET,
    Card,
    Inside,
    Question,
    conversation,
    require_same_card,
)
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Invalid
from pinner.model.kinds import GuestCpus
from pinner.model.settings.inside import GuestQueue, GuestRps


def read_rps(inside: Inside) -> GuestRps:
    boot, online = inside.boot, inside.online
    queues: list[GuestQueue] = []
    for card in inside.cards:
        of_card = tuple(_queues(inside.agent, card, min(len(online), MAX_QUEUES)))
        queues += of_card if len(of_card) < len(online) else ()
    return GuestRps(inside.guest.uuid, inside.guest.name, boot, online, tuple(queues))


def _queues(agent: GuestAgent, card: Card, most: int) -> Iterator[GuestQueue]:
    """The agent cannot list a folder, so the first error ends the queues."""
    for number in range(most):
        try:
            vcpus = agent.mask(_path(card.interface, number))
        except ApplyFailed:
            if number == 0:
                raise
            return
        yield GuestQueue(card.interface, card.index, number, vcpus)


def vcpus_of(agents: Agents | None, target: Target) -> GuestCpus:
    """Raises Gone also where the guest has restarted."""
    agent, path = _queue(agents, target)
    return GuestCpus(agent.mask(path))


def set_vcpus(agents: Agents | None, target: Target, wanted: GuestCpus) -> None:
    """An empty set turns it off."""
    agent, path = _queue(agents, target)
    agent.write(path, f"{wanted.vcpus.mask()}\n")
    if (now := agent.mask(path)) != wanted.vcpus:
        requested, says = (str(each) or "none" for each in (wanted.vcpus, now))
        raise ApplyFailed(str(target), f"asked for vCPUs {requested}, the guest says {says}", granted=says)


def _queue(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    if target.part is None or target.part < 0:
        raise Invalid("guest_rps", str(target)[:80], "the number of a queue")
    agent, (interface, index) = conversation(agents, target, NAME, NUMBER)
    require_same_card(agent, target, interface, index)
    return agent, _path(interface, target.part)


def _path(interface: str, queue: int) -> str:
    return f"{NET}/{interface}/queues/rx-{queue}/rps_cpus"


ROW: HostRow[GuestCpus] = HostRow(
    lambda access, target: vcpus_of(access.agents, target),
    lambda access, target, state: set_vcpus(access.agents, target, state),
    inside=Question(GuestRps, read_rps),
)
