"""Receive flow steering (networking/scaling.rst) inside guests: the flows that the guest's kernel knows, and those of
each queue. Both must be set."""

from pinner.host.settings.inside.agent import NUMBER, Agents, GuestAgent
from pinner.host.settings.inside.common import conversation, name_now, row
from pinner.host.settings.inside.guests import NAME, Card, Inside, Question, queue_folder, queues_of
from pinner.model.change import Target
from pinner.model.settings.inside import FlowQueue, GuestRfs
from pinner.model.states import Number

_ENTRIES = "/proc/sys/net/core/rps_sock_flow_entries"


def read_rfs(inside: Inside) -> GuestRfs:
    def read(card: Card, number: int) -> FlowQueue:
        flows = inside.agent.number(_path(card.interface, number))
        return FlowQueue(card.interface, card.index, number, flows)

    queues = queues_of(inside, read)
    # Without such a queue, the kernel's number is of no use.
    entries = inside.agent.number(_ENTRIES) if queues else 0
    return GuestRfs(inside.guest.uuid, inside.guest.name, inside.boot, entries, queues)


def _file(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    if target.owner.count(" ") == 1:
        agent, _ = conversation(agents, target)
        return agent, _ENTRIES
    agent, (interface, index, queue) = conversation(agents, target, NAME, NUMBER, NUMBER)
    return agent, _path(name_now(agent, target, interface, index), int(queue))


def _path(interface: str, queue: int) -> str:
    return f"{queue_folder(interface, queue)}/rps_flow_cnt"


ROW = row(Question(GuestRfs, read_rfs), _file, lambda agent, path: Number(agent.number(path)))
