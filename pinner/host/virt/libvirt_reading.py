"""Reads guests of an open connection to libvirt. The functions here raise libvirt's own errors."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import libvirt  # type: ignore[import-untyped]

from pinner.host.virt import domain_xml
from pinner.host.virt.guests import DomainDescription
from pinner.model.change import PartPin
from pinner.model.errors import ApplyFailed, Busy, Gone
from pinner.model.guest import pins_metadata
from pinner.model.guest.guest import GuestState, InactiveGuest

_STATES: dict[int, GuestState] = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "blocked",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "suspended",
}
_MIGRATIONS = {libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}


def occupied(domain: libvirt.virDomain) -> float:
    """Seconds that a call has waited for the guest's QEMU."""
    state, _, milliseconds = domain.controlInfo()
    return milliseconds / 1000 if state == libvirt.VIR_DOMAIN_CONTROL_OCCUPIED else 0.0


def _is_migrating(domain: libvirt.virDomain) -> bool:
    """libvirt refuses to pin the guest then (virDomainGetJobStats). A QEMU that does not answer is not asked."""
    if occupied(domain):
        return False
    try:
        return domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION) in _MIGRATIONS
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, libvirt.VIR_ERR_OPERATION_INVALID):
            raise
        # The statistics of an incoming migration are at its source. A guest that has ended has none either.
        return bool(domain.isActive())


def saved_xml(domain: libvirt.virDomain) -> str:
    """The XML with passwords; empty without a saved image."""
    if not domain.hasManagedSaveImage(0):
        return ""
    return str(domain.managedSaveGetXMLDesc(libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))


def named_pins(domain: libvirt.virDomain, flags: int) -> tuple[PartPin, ...] | None:
    """None for the live XML of a guest that does not run, and for the definition of a transient one."""
    try:
        element = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, pins_metadata.NAMESPACE, flags)
    except libvirt.libvirtError as error:
        match error.get_error_code():
            case libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                return ()
            case libvirt.VIR_ERR_OPERATION_INVALID:
                return None
        raise
    return domain_xml.named_pins(element)


def descriptions(connection: libvirt.virConnect) -> list[DomainDescription]:
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
    described_guests = []
    for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags):
        try:
            described_guests.append(_description(domain, stats.get("state.state", 0)))
        except libvirt.libvirtError as error:
            if error.get_error_domain() == libvirt.VIR_FROM_RPC or not connection.isAlive():
                raise
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                nothing = DomainDescription(domain.UUIDString(), domain.name(), "unknown", "", None)
                described_guests.append(nothing.without_xml(f"libvirt: {error}"))
    return described_guests


def inactive(connection: libvirt.virConnect) -> tuple[InactiveGuest, ...]:
    domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE)
    return tuple(sorted(InactiveGuest(domain.name(), domain.UUIDString()) for domain in domains))


def active_description(domain: libvirt.virDomain) -> DomainDescription:
    """Raises Gone where the guest does not run."""
    if not domain.isActive():
        raise Gone(f"guest {domain.name()}")
    return _description(domain, domain.state()[0])


def _description(domain: libvirt.virDomain, number: int) -> DomainDescription:
    persistent = bool(domain.isPersistent())
    return DomainDescription(
        uuid=domain.UUIDString(),
        name=domain.name(),
        state="migrating" if _is_migrating(domain) else _STATES.get(number, "unknown"),
        xml=domain.XMLDesc(0),
        definition=domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) if persistent else None,
    )


UNANSWERED = "libvirt does not answer about it; another call about this guest, such as a dump, has not ended"
_AT_ONCE = 8
"""A few guests that do not answer must not delay the others."""


def described(names: Mapping[str, str], describe: Callable[[str, str], DomainDescription]) -> list[DomainDescription]:
    """A guest that does not answer is unread.

    ``describe`` gets UUID and name. It raises Gone, and Busy where libvirt does not answer in time. Other errors are a
    part of the description.
    """
    with ThreadPoolExecutor(_AT_ONCE, "guest") as threads:
        read_guests: Iterable[DomainDescription | None] = threads.map(_one, names, names.values(), repeat(describe))
        return [description for description in read_guests if description is not None]


def _one(uuid: str, name: str, describe: Callable[[str, str], DomainDescription]) -> DomainDescription | None:
    try:
        return describe(uuid, name)
    except Gone:
        return None
    except Busy:
        why = UNANSWERED
    except ApplyFailed as error:
        why = str(error)
    return DomainDescription(uuid, name, "unknown", "", None).without_xml(why)
