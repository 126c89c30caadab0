"""The report of `pinner nova check`."""

from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.guest.nova import NovaGuest

DEFAULT_TOPIC = "versioned_notifications"
"""Nova's default. Other programs may listen to it too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """[nova_listener] of pinner's configuration."""

    topics: tuple[str, ...] = (DEFAULT_TOPIC,)
    pool: str = "pinner"
    """pinner's own queue beside those of other listeners; empty: none."""
    is_durable: bool = False
    """Queues and exchanges outlive the broker: amqp_durable_queues or rabbit_quorum_queue."""
    is_quorum: bool = False
    """rabbit_quorum_queue"""


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    """The option, guest or service."""
    why: str
    """With the values."""
    remedy: str
    """The corrected line, or a command."""
    where: str
    """File and section of the line; empty for a command."""


@dataclass(frozen=True, slots=True)
class NovaReport:
    host: str
    files: tuple[str, ...]
    """Nova's; none: the host has no Nova."""
    dedicated: CpuSet
    """cpu_dedicated_set"""
    shared: CpuSet
    """cpu_shared_set"""
    guests: tuple[NovaGuest, ...]
    """Those that Nova pinned."""
    unused: CpuSet
    """Nova's CPUs that are offline now, for instance powered down by Nova."""
    for_vcpus: CpuSet
    """For floating vCPUs; housekeeping and emulators take theirs from them too."""
    for_others: CpuSet
    """For busy processes and emulator threads."""
    findings: tuple[Finding, ...]
    source: str = ""
    """The process, the deployment or the option of pinner that names the files."""
