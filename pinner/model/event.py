"""What others tell of guests: libvirt's hook script, Nova. They say when to look, never that something is so."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.guest import NovaIdentity

Happening = Literal["started", "leaving", "gone"]
"""started  it runs here now, anew or again: it is to be placed
leaving  it is about to be migrated away: it gets back the CPUs that it had, and is left alone
gone     it will not come back to this host: what was told of it is forgotten"""


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """Something happened to a guest, as somebody tells who cannot be asked again."""

    guest: str
    """UUID."""
    happened: Happening
    event: str
    """In the teller's words: ``instance.reboot.end``, libvirt's ``started``."""
    teller: str
    """Who told it, for the audit trail: ``nova req-...``, ``libvirt hook``."""
    at: datetime
    """When it happened. What happened before something that is known already changes nothing of that."""
    nova: NovaIdentity | None = None
    cpus: CpuSet = CpuSet()
    """Of ``leaving``: the CPUs that its destination has, where they are known; else none."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a guest by events alone."""

    guest: str
    host: str
    at: datetime
    """Of the latest event."""
    nova: NovaIdentity | None = None
    leaving_until: datetime | None = None
    """It is being migrated away; after this moment that is no longer believed."""
