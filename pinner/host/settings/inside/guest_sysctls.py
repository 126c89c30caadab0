"""Receive buffers of UDP (admin-guide/sysctl/net.rst, networking/snmp_counter.rst) inside guests."""

import re

from pinner.host.settings.inside.agent import Agents, GuestAgent
from pinner.host.settings.inside.common import conversation, row
from pinner.host.settings.inside.guests import Inside, Question
from pinner.model.change import Target
from pinner.model.settings.inside import BUFFERS, GuestSysctls
from pinner.model.states import Number

_KEY = re.compile("|".join(map(re.escape, BUFFERS)))
_SNMP = "/proc/net/snmp"
MAX_SNMP = 1 << 14
"""Bytes. Each type of ICMP message that the guest has seen adds to it."""
_LOST = "RcvbufErrors"
_UDP = re.compile(r"^Udp:((?: [A-Za-z]{1,20}){1,20})\nUdp:((?: [0-9]{1,15}){1,20})$", re.MULTILINE)


def read_sysctls(inside: Inside) -> GuestSysctls:
    values = {key: inside.agent.number(_path(key)) for key in BUFFERS}
    return GuestSysctls(inside.guest.uuid, inside.guest.name, inside.boot, values, _lost(inside.agent))


def _lost(agent: GuestAgent) -> int:
    counters = _UDP.search(agent.read(_SNMP, MAX_SNMP))
    if counters is None:
        return 0
    return int(dict(zip(counters[1].split(), counters[2].split(), strict=False)).get(_LOST, "0"))


def _file(agents: Agents | None, target: Target) -> tuple[GuestAgent, str]:
    agent, (key,) = conversation(agents, target, _KEY)
    return agent, _path(key)


def _path(key: str) -> str:
    return f"/proc/sys/{key.replace('.', '/')}"


ROW = row(Question(GuestSysctls, read_sysctls, fewest_vcpus=1), _file, lambda agent, path: Number(agent.number(path)))
