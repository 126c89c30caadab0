"""Receive buffers of UDP (admin-guide/sysctl/net.rst, networking/snmp_counter.rst) inside guests."""

import re

from pinner.host.settings.inside.agent import Agents, GuestAgent
from pinner.host.settings.inside.guests import Inside, Question, conversation, written
from pinner.host.settings.row import HostRow
from pinner.model.change import Target
from pinner.model.settings.inside import BUFFERS, GuestSysctls
from pinner.model.states import Number

_KEY = re.compile("|".join(map(re.escape, BUFFERS)))
_SNMP = "/proc/net/snmp"
_LOST = "RcvbufErrors"
_UDP = re.compile(r"^Udp:((?: [A-Za-z]{1,20}){1,20})\nUdp:((?: [0-9]{1,15}){1,20})$", re.MULTILINE)


def read_sysctls(inside: Inside) -> GuestSysctls:
    values = {key: inside.agent.number(_path(key)) for key in BUFFERS}
    return GuestSysctls(inside.guest.uuid, inside.guest.name, inside.boot, values, _lost(inside.agent))


def _lost(agent: GuestAgent) -> int:
    counters = _UDP.search(agent.read(_SNMP))
    if counters is None:
        return 0
    return int(dict(zip(counters[1].split(), counters[2].split(), strict=False)).get(_LOST, "0"))


def value_of(agents: Agents | None, target: Target) -> Number:
    """Raises Gone also where the guest has restarted."""
    agent, path = _file(agents, target)
    return Number(agent.number(path))


def set_value(agents: Agents | None, target: Target, wanted: Number) -> None:
    agent, path = _file(agents, target)
    with written(target, wanted, lambda: Number(agent.number(path))):
        agent.write(path, f"{wanted}\n")


def _file(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    agent, (key,) = conversation(agents, target, _KEY)
    return agent, _path(key)


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


ROW: HostRow[Number] = HostRow(
    lambda access, target: value_of(access.agents, target),
    lambda access, target, state: set_value(access.agents, target, state),
    inside=Question(GuestSysctls, read_sysctls, fewest_vcpus=1),
)
