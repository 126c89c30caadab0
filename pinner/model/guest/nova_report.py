"""The report of `pinner nova check`."""

from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.guest.nova import NovaGuest

DEFAULT_TOPIC = "versioned_notifications"
"""Nova's default topic. Other programs may listen to it too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The source of Nova's notifications for pinner's listener: [nova_listener] of its configuration."""

    topics: tuple[str, ...] = (DEFAULT_TOPIC,)
    pool: str = "pinner"
    """The name of pinner's own queue beside those of other listeners; empty: none."""
    is_durable: bool = False
    """Whether its queues and exchanges outlive the broker: amqp_durable_queues or rabbit_quorum_queue."""
    is_quorum: bool = False
    """rabbit_quorum_queue"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting that is wrong, and its correction."""

    what: str
    """The option, guest or service."""
    why: str
    """Why it is wrong, with the values."""
    remedy: str
    """The corrected line, or a command."""
    where: str
    """The file and the section of the line; empty for a command."""


@dataclass(frozen=True, slots=True)
class NovaReport:
    """The CPUs that Nova and pinner may use on a host, and the settings that are wrong."""

    host: str
    files: tuple[str, ...]
    """Nova's configuration files; none: the host has no Nova."""
    dedicated: CpuSet
    """cpu_dedicated_set"""
    shared: CpuSet
    """cpu_shared_set; none: it is not set."""
    guests: tuple[NovaGuest, ...]
    """The guests that Nova pinned."""
    unused: CpuSet
    """Nova's CPUs that are offline now, for instance because Nova powered them down."""
    for_vcpus: CpuSet
    """The CPUs that pinner may use for floating vCPUs; housekeeping and emulators take their CPUs from them too."""
    for_others: CpuSet
    """The CPUs that pinner may use for busy processes and emulator threads."""
    findings: tuple[Finding, ...]
    source: str = ""
    """The process, the deployment or the option of pinner that names the files."""
