"""The vCPUs of interrupts of virtio cards (core-api/irq/irq-affinity.rst) inside guests. The guest's kernel reuses
numbers: an interrupt is found by number and driver's name, unless another card has the card's name now."""

import re
from contextlib import suppress

from pinner.host.settings.inside.agent import NUMBER, Agents, GuestAgent, NoSuchFile
from pinner.host.settings.inside.common import conversation, row
from pinner.host.settings.inside.guests import MAX_CARDS, NAME, Card, Inside, Question
from pinner.model.change import Target
from pinner.model.errors import Gone, Invalid
from pinner.model.settings.inside import GuestIrq, GuestIrqs
from pinner.model.states import GuestCpus

MAX_TABLE = 1 << 19
"""Bytes of /proc/interrupts."""
_TABLE = "/proc/interrupts"
_DRIVER = r"virtio(?:0|[1-9][0-9]{0,3})-(?:input|output)\.(?:0|[1-9][0-9]{0,3})"
"""A number with zeros in front would name the same queue once more."""
_ROW = re.compile(rf"^ *(0|[1-9][0-9]{{0,5}}):.* ({_DRIVER})$", re.MULTILINE)
_NAME = re.compile(_DRIVER)


def read_irqs(inside: Inside) -> GuestIrqs:
    numbers = _numbers(inside.agent)
    devices = sorted({_of(name)[0] for name in numbers})[:MAX_CARDS]
    irqs: list[GuestIrq] = []
    for card in inside.cards:
        device = next((each for each in devices if _has_card(inside.agent, each, card)), None)
        if device is None:
            continue
        devices.remove(device)
        for name, number in numbers.items():
            # A card could show any number of queues.
            if _of(name)[0] == device and (queue := _of(name)[1]) < len(inside.online):
                vcpus = inside.agent.cpus(_path(number))
                irqs.append(GuestIrq(number, name, card.interface, card.index, queue, vcpus))
    return GuestIrqs(inside.guest.uuid, inside.guest.name, inside.boot, inside.online, tuple(irqs))


def _numbers(agent: GuestAgent) -> dict[str, int]:
    """By the driver's name."""
    return {match[2]: int(match[1]) for match in _ROW.finditer(agent.read(_TABLE, MAX_TABLE))}


def _of(name: str) -> tuple[int, int]:
    """The virtio device, and the queue."""
    device, _, queue = name.removeprefix("virtio").partition("-")
    return int(device), int(queue.rpartition(".")[2])


def _has_card(agent: GuestAgent, device: int, card: Card) -> bool:
    with suppress(NoSuchFile):
        return agent.number(_index_path(device, card.interface)) == card.index
    return False


def _file(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    if target.part is None or target.part < 0:
        raise Invalid("guest_irq", str(target)[:80], "the number of an interrupt")
    agent, (interface, index, name) = conversation(agents, target, NAME, NUMBER, _NAME)
    if _numbers(agent).get(name) != target.part:
        raise Gone(str(target))
    with suppress(NoSuchFile):  # the card has another name now
        if agent.number(_index_path(_of(name)[0], interface)) != int(index):
            raise Gone(str(target))
    return agent, _path(target.part)


def _index_path(device: int, interface: str) -> str:
    return f"/sys/bus/virtio/devices/virtio{device}/net/{interface}/ifindex"


def _path(number: int) -> str:
    return f"/proc/irq/{number}/smp_affinity_list"


ROW = row(Question(GuestIrqs, read_irqs), _file, lambda agent, path: GuestCpus(agent.cpus(path)))
