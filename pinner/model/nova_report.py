"""What `pinner nova check` tells of a host."""

from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.nova import NovaGuest

DEFAULT_TOPIC = "versioned_notifications"
"""Nova's, on which others may listen, too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where pinner's listener gets Nova's notifications from: [nova_listener] of its configuration."""

    topics: tuple[str, ...] = (DEFAULT_TOPIC,)
    pool: str = "pinner"
    """A queue of its own beside those of others; empty: none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is misconfigured."""

    what: str
    """The option, guest or service."""
    why: str
    """What is wrong with it, with the values."""
    remedy: str
    """The line to change, as it should be, or the command."""
    where: str
    """The file and the section that the line stands in; empty for a command."""


@dataclass(frozen=True, slots=True)
class NovaReport:
    """Who may use which CPUs of a host, and what is misconfigured."""

    host: str
    files: tuple[str, ...]
    """Nova's configuration files; none: the host has no Nova."""
    dedicated: CpuSet
    """cpu_dedicated_set"""
    shared: CpuSet
    """cpu_shared_set; none: it is not set."""
    guests: tuple[NovaGuest, ...]
    """Those that Nova pinned."""
    unused: CpuSet
    """Nova's CPUs that are offline now, for instance because Nova powered them down."""
    for_vcpus: CpuSet
    """The CPUs that pinner may let vCPUs float over, less housekeeping and emulators."""
    for_others: CpuSet
    """The CPUs that pinner may give to busy processes and emulator threads, too."""
    findings: tuple[Finding, ...]
