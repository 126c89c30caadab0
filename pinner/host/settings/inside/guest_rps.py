"""Receive packet steering (networking/scaling.rst) inside guests."""

from pinner.host.settings.inside.agent import NUMBER, Agents, GuestAgent
from pinner.host.settings.inside.common import conversation, name_now, row
from pinner.host.settings.inside.guests import NAME, Card, Inside, Question, queue_folder, queues_of
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus


def read_rps(inside: Inside) -> GuestRps:
    def read(card: Card, number: int) -> GuestQueue:
        return GuestQueue(card.interface, card.index, number, inside.agent.mask(_path(card.interface, number)))

    return GuestRps(inside.guest.uuid, inside.guest.name, inside.boot, inside.online, queues_of(inside, read))


def _queue(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    if target.part is None or target.part < 0:
        raise Invalid("guest_rps", str(target)[:80], "the number of a queue")
    agent, (interface, index) = conversation(agents, target, NAME, NUMBER)
    return agent, _path(name_now(agent, target, interface, index), target.part)


def _path(interface: str, queue: int) -> str:
    return f"{queue_folder(interface, queue)}/rps_cpus"


ROW = row(
    Question(GuestRps, read_rps),
    _queue,
    lambda agent, path: GuestCpus(agent.mask(path)),
    lambda state: state.vcpus.mask(),
)
