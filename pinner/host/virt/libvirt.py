"""Reads the active guests from libvirt, and pins them (https://libvirt.org/html/libvirt-libvirt-domain.html). It avoids
calls that need an answer of QEMU (thread ids, iothread info, vCPU statistics): a stopped QEMU would block them."""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import TypeVar

import libvirt  # type: ignore[import-untyped]
import libvirt_qemu  # type: ignore[import-untyped]

from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt.guests import ActiveDomain, DomainDescription, read_guests
from pinner.host.virt.libvirt_connections import Connections
from pinner.model.change import NamedPins, PartPin, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Gone
from pinner.model.guest import pins_metadata
from pinner.model.guest.guest import Guest, GuestState, InactiveGuest

T = TypeVar("T")

CALL_TIMEOUT = 10.0
OCCUPIED = 1.0
"""Seconds. A command of QEMU takes milliseconds."""

AGENT_TIMEOUT = 3
"""Seconds. An agent answers in milliseconds."""

_ROOT = Path("/")
_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_CONFIG = libvirt.VIR_DOMAIN_AFFECT_CONFIG
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE


class Libvirt:
    """One libvirtd. Connects at the first call, and again after a lost connection. Threads may share it. Every method
    raises HostUnreachable where libvirt does not answer, NotPermitted where it refuses, and Busy after ``call_timeout``
    seconds: the overdue call goes on, and later calls about the guest wait for it. A method about one guest (by UUID)
    or target raises Gone, and a change raises ApplyFailed with libvirt's message."""

    def __init__(self, uri: str, call_timeout: float = CALL_TIMEOUT, occupied_seconds: float = OCCUPIED) -> None:
        self._occupied_seconds = occupied_seconds
        self._daemon = Connections(uri, call_timeout)
        self.host_calls = self._daemon.host_calls
        self._inactive: tuple[InactiveGuest, ...] = ()  # as inactive() found them last
        self._parsed: Mapping[str, domain_xml.Domain] = {}
        """XML changes rarely, and is read twice for each run."""
        self.users: Mapping[str, int | None] = {}  # of each guest's QEMU, by UUID, as active() found them last

    def capabilities(self) -> str:
        return str(self._daemon.ask("the capabilities", lambda connection: connection.getCapabilities()))

    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]:
        """A guest that ends meanwhile is left out."""
        domains = self.active()
        processes = qemu.find(root, {domain.uuid for domain in domains}, self.users)
        return read_guests(root, domains, processes, memory=memory)

    def inactive(self) -> tuple[InactiveGuest, ...]:
        """While a guest blocks libvirt, the last answer is given."""
        self._inactive = self._listed("the inactive guests", inactive, lambda: self._inactive)
        return self._inactive

    def active(self) -> list[ActiveDomain]:
        """A guest that libvirt does not describe is excluded."""
        known_xml, parsed = self._parsed, dict[str, domain_xml.Domain]()

        def parse(xml: str) -> domain_xml.Domain:
            parsed[xml] = known_xml.get(xml) or domain_xml.parse(xml)
            return parsed[xml]

        domains = [description.parsed_or_left_alone(parse) for description in self.descriptions()]
        self._parsed = parsed
        known = self.users
        self.users = {
            domain.uuid: known.get(domain.uuid) if domain.unread else qemu.user_id(domain.xml.user)
            for domain in domains
        }
        return domains

    def descriptions(self) -> list[DomainDescription]:
        """The XML has no passwords. One guest's error is a part of its description."""
        return self._listed("the guests", descriptions, lambda: described(qemu.named(_ROOT), self._description))

    def _description(self, uuid: str, name: str) -> DomainDescription:
        return self._daemon.ask_listed(f"guest {name}", uuid, active_description)

    def _listed(self, what: str, work: Callable[[libvirt.virConnect], T], otherwise: Callable[[], T]) -> T:
        """``otherwise`` while one guest blocks the call."""
        with suppress(Busy):
            # While one guest blocks a call, it blocks all calls of this kind.
            if self._daemon.listings.overdue is None:
                return self._daemon.ask(what, work, self._daemon.listings)
        try:
            self._daemon.ask("the host name", lambda connection: connection.getHostname(), self._daemon.listings)
        except Busy:
            return self._daemon.ask(what, work)
        return otherwise()

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Raises Busy where another job blocks the guest.

        libvirt silently drops CPUs that the host does not have: the caller reads the mask back from the kernel."""
        flags = _LIVE | (_CONFIG if persist else 0)
        mask = tuple(cpu in cpus for cpu in range(max(cpus, default=0) + 1))

        def work(domain: libvirt.virDomain) -> None:
            match target.kind, target.part:
                case "emulator", None:
                    domain.pinEmulator(mask, flags)
                case "vcpu", int(part):
                    domain.pinVcpuFlags(part, mask, flags)
                case "iothread", int(part):
                    domain.pinIOThread(part, mask, flags)
                case _:
                    raise ApplyFailed(str(target), "libvirt can pin only emulators, vCPUs and iothreads")

        self._daemon.ask_domain(str(target), target.owner, work, change=True)

    def require_answering(self, target: Target) -> None:
        """Raises Busy where a call has waited for the guest's QEMU for ``occupied_seconds`` or longer
        (virDomainGetControlInfo, which does not wait itself)."""
        # A key of its own: it must not wait for an overdue call.
        seconds = self._daemon.ask_domain(str(target), target.owner, occupied, key=f"{target.owner} control")
        if seconds >= self._occupied_seconds:
            raise Busy(str(target), f"its QEMU has not answered libvirt for {seconds:.0f} s", overdue=False)

    def pin_of(self, target: Target) -> CpuSet | None:
        domain = domain_xml.parse(self._daemon.ask_domain(str(target), target.owner, lambda domain: domain.XMLDesc(0)))
        return domain.pin_of(target.kind, target.part)

    def persistent(self, guest: str) -> bool:
        return self._daemon.ask_domain(f"guest {guest}", guest, lambda domain: bool(domain.isPersistent()))

    def definition(self, guest: str) -> str:
        xml = self._daemon.ask_domain(
            f"guest {guest}", guest, lambda it: it.XMLDesc(_INACTIVE) if it.isPersistent() else ""
        )
        return domain_xml.cputune(xml) if xml else ""

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        """The rest of the definition, also passwords, stays. A guest that was undefined since is not defined again."""

        def work(domain: libvirt.virDomain) -> None:
            xml = domain.XMLDesc(_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
            pin, saved = domain_xml.pin_in(xml, target), domain_xml.pin_in(definition, target)
            if pin == saved or not domain.isPersistent():
                return
            if pin not in given:
                now = "its pin was removed" if pin is None else f"it is pinned to {pin}"
                why = f"{now} by an operator or another program since, and stays so"
                raise ApplyFailed(str(target), why)
            domain.connect().defineXML(domain_xml.with_pin_of(xml, target, definition))

        self._daemon.ask_domain(str(target), target.owner, work, change=True)

    def named_pins(self, guest: str) -> NamedPins:
        def work(domain: libvirt.virDomain) -> NamedPins:
            live = named_pins(domain, _LIVE)
            saved = saved_xml(domain) if live is None else ""
            return NamedPins(live, named_pins(domain, _CONFIG), domain_xml.named_in(saved) if saved else None)

        # A key of its own: this call needs no job, so it need not wait for an overdue call.
        return self._daemon.ask_domain(f"guest {guest}", guest, work, key=f"{guest} metadata")

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        return domain_xml.pins_in(self._daemon.ask_domain(f"guest {guest}", guest, lambda domain: domain.XMLDesc(0)))

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        """Without a saved image, nothing happens."""

        def work(domain: libvirt.virDomain) -> None:
            if xml := saved_xml(domain):
                domain.managedSaveDefineXML(domain_xml.restored(xml, pins, former, names), 0)

        self._daemon.ask_domain(str(target), target.owner, work, change=True)

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        both = pins.live == pins.definition
        writes = {_LIVE | _CONFIG: pins.live} if both else {_LIVE: pins.live, _CONFIG: pins.definition}

        def work(domain: libvirt.virDomain) -> None:
            for flags, names in writes.items():
                if names is not None:
                    text = pins_metadata.text_of(names) or None
                    domain.setMetadata(_ELEMENT, text, pins_metadata.PREFIX, pins_metadata.NAMESPACE, flags)
            if pins.definition == ():
                # libvirt leaves an empty <metadata> in the definition, which it did not have before.
                xml = domain.XMLDesc(_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
                domain.connect().defineXML(domain_xml.without_named_pins(xml))

        self._daemon.ask_domain(str(target), target.owner, work, change=True)

    def numatune(self, target: Target) -> str:
        """Since libvirt 8.0 the nodes can be changed only in mode restrictive. pinner creates no numatune: it could not
        remove it again. Raises ApplyFailed, too."""
        parameters = self._daemon.ask_domain(str(target), target.owner, lambda domain: domain.numaParameters(_LIVE))
        restrictive = parameters.get(libvirt.VIR_DOMAIN_NUMA_MODE) == libvirt.VIR_DOMAIN_NUMATUNE_MEM_RESTRICTIVE
        return str(parameters.get(libvirt.VIR_DOMAIN_NUMA_NODESET, "")) if restrictive else ""

    def set_numatune(self, target: Target, nodes: str) -> None:
        new = {libvirt.VIR_DOMAIN_NUMA_NODESET: nodes}
        self._daemon.ask_domain(str(target), target.owner, lambda it: it.setNumaParameters(new, _LIVE), change=True)

    def ask_guest_agent(self, guest: str, command: str) -> str:
        """Raises Busy where the guest is paused or saved, or the agent does not answer within AGENT_TIMEOUT;
        ApplyFailed where the guest has no agent, or it refuses (virDomainQemuAgentCommand)."""

        def work(domain: libvirt.virDomain) -> str:
            try:
                return str(libvirt_qemu.qemuAgentCommand(domain, command, AGENT_TIMEOUT, 0))
            except libvirt.libvirtError as error:
                # libvirt calls a guest that is paused or saved "not running", too. It has not ended.
                waits = error.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID and (
                    domain.isActive() or domain.hasManagedSaveImage()
                )
                if waits:
                    raise Busy(f"guest {guest}", f"libvirt: {error}; is it paused or saved?", overdue=False) from None
                raise

        # A key of its own: a pin must not wait for the agent.
        return self._daemon.ask_domain(f"guest {guest}", guest, work, key=f"{guest} agent")

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """The mark is in the live XML and in the definition (virDomainSetMetadata)."""

        def work(domain: libvirt.virDomain) -> None:
            flags = _LIVE | (_CONFIG if domain.isPersistent() else 0)
            mark = domain_xml.EXCLUDED if excluded else None
            domain.setMetadata(_ELEMENT, mark, "pinner", domain_xml.PINNER, flags)

        self._daemon.ask_domain(f"guest {guest}", guest, work)


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
    """A guest that does not answer is unread. ``describe`` gets UUID and name; it raises Gone, and Busy where libvirt
    does not answer in time. Other errors are a part of the description."""
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
