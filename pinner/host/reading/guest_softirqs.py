"""Which vCPUs of guests receive packets, as their agents tell it (filesystems/proc.rst 1.2.8, /proc/softirqs)."""

import re

from pinner.host.settings.inside.guests import Inside, Question
from pinner.model.reading import GuestSoftirqs

MAX_TABLE = 1 << 18
"""Bytes of /proc/softirqs."""
_TABLE = "/proc/softirqs"
_CPU = re.compile(r"CPU([0-9]{1,5})")
_ROW = re.compile(r"^ *NET_RX:((?: +[0-9]{1,15})+) *$", re.MULTILINE)


def _read(inside: Inside) -> GuestSoftirqs:
    text = inside.agent.read(_TABLE, MAX_TABLE)
    row = _ROW.search(text)
    vcpus = [int(vcpu) for vcpu in _CPU.findall(text.partition("\n")[0])]
    counts = [int(count) for count in row[1].split()] if row else []
    if not counts or not len({*vcpus}) == len(vcpus) == len(counts):
        raise inside.agent.strange(_TABLE, text)
    received = {vcpu: count for vcpu, count in zip(vcpus, counts, strict=True) if count}
    # The kernel names each possible CPU: those that libvirt did not give to the guest have counted nothing.
    if any(vcpu >= len(inside.guest.vcpus) for vcpu in received):
        raise inside.agent.strange(_TABLE, text)
    return GuestSoftirqs(inside.guest.uuid, inside.guest.name, inside.boot, received)


SOFTIRQS = Question(GuestSoftirqs, _read)
