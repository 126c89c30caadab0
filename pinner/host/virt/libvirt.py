"""Reads the active guests from libvirt, and pins them (https://libvirt.org/html/libvirt-libvirt-domain.html).

It avoids calls that need an answer of QEMU (thread ids, iothread info, vCPU statistics): a stopped QEMU would block
them.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import libvirt  # type: ignore[import-untyped]
import libvirt_qemu  # type: ignore[import-untyped]

from pinner.host.processes import qemu
from pinner.host.virt import domain_xml
from pinner.host.virt import libvirt_reading as reading
from pinner.host.virt.guests import ActiveDomain, DomainDescription, read_guests
from pinner.host.virt.libvirt_connections import Connections
from pinner.host.virt.libvirt_reading import described
from pinner.model.change import NamedPins, PartPin, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy
from pinner.model.guest import pins_metadata
from pinner.model.guest.guest import Guest, InactiveGuest

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
    """One libvirtd. Connects at the first call, and again after a lost connection. Threads may share it.

    Every method raises HostUnreachable where libvirt does not answer, NotPermitted where it refuses, and Busy where the
    call takes longer than ``call_timeout`` seconds. An overdue call is not cancelled, and later calls about the same
    guest are made after it. A method about one guest (by UUID) or target raises Gone, and a change raises ApplyFailed
    with libvirt's message.
    """

    def __init__(self, uri: str, call_timeout: float = CALL_TIMEOUT, occupied_seconds: float = OCCUPIED) -> None:
        self._occupied_seconds = occupied_seconds
        self._daemon = Connections(uri, call_timeout)
        self.host_calls = self._daemon.host_calls
        self._inactive: tuple[InactiveGuest, ...] = ()  # as inactive() found them last
        self._parsed: Mapping[str, domain_xml.Domain] = {}
        """XML changes rarely, and is read twice for each run."""
        self.users: Mapping[str, int | None] = {}  # of each guest's QEMU, by UUID, as active() found them last

    def capabilities(self) -> str:
        """The host's capabilities as XML (virConnectGetCapabilities)."""
        return str(self._daemon.ask("the capabilities", lambda connection: connection.getCapabilities()))

    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]:
        """A guest that ends meanwhile is left out."""
        domains = self.active()
        processes = qemu.find(root, {domain.uuid for domain in domains}, self.users)
        return read_guests(root, domains, processes, memory=memory)

    def inactive(self) -> tuple[InactiveGuest, ...]:
        """While a guest blocks libvirt, the last answer is given."""
        self._inactive = self._listed("the inactive guests", reading.inactive, lambda: self._inactive)
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
        return self._listed("the guests", reading.descriptions, lambda: described(qemu.named(_ROOT), self._description))

    def _description(self, uuid: str, name: str) -> DomainDescription:
        return self._daemon.ask_listed(f"guest {name}", uuid, reading.active_description)

    def _listed(self, what: str, work: Callable[[libvirt.virConnect], T], otherwise: Callable[[], T]) -> T:
        """The answer of a call that one guest can block; ``otherwise`` while libvirt answers only other calls."""
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

        libvirt silently drops CPUs that the host does not have: the caller reads the mask back from the kernel.
        """
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
        seconds = self._daemon.ask_domain(str(target), target.owner, reading.occupied, key=f"{target.owner} control")
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
        """``definition`` is a result of ``definition()``. The rest of the definition, including passwords, stays, and a
        guest that was undefined since is not defined again."""

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
        """See virDomainGetMetadata."""

        def work(domain: libvirt.virDomain) -> NamedPins:
            live = reading.named_pins(domain, _LIVE)
            saved = reading.saved_xml(domain) if live is None else ""
            return NamedPins(live, reading.named_pins(domain, _CONFIG), domain_xml.named_in(saved) if saved else None)

        # A key of its own: this call needs no job, so it need not wait for an overdue call.
        return self._daemon.ask_domain(f"guest {guest}", guest, work, key=f"{guest} metadata")

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        return domain_xml.pins_in(self._daemon.ask_domain(f"guest {guest}", guest, lambda domain: domain.XMLDesc(0)))

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        """See virDomainManagedSaveDefineXML. Without a saved image, nothing happens."""

        def work(domain: libvirt.virDomain) -> None:
            if xml := reading.saved_xml(domain):
                domain.managedSaveDefineXML(domain_xml.restored(xml, pins, former, names), 0)

        self._daemon.ask_domain(str(target), target.owner, work, change=True)

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        """See virDomainSetMetadata."""
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
        """Since libvirt 8.0 the nodes can be changed only in mode restrictive. pinner never creates a numatune, because
        it could not remove it again. Raises ApplyFailed, too."""
        parameters = self._daemon.ask_domain(str(target), target.owner, lambda domain: domain.numaParameters(_LIVE))
        restrictive = parameters.get(libvirt.VIR_DOMAIN_NUMA_MODE) == libvirt.VIR_DOMAIN_NUMATUNE_MEM_RESTRICTIVE
        return str(parameters.get(libvirt.VIR_DOMAIN_NUMA_NODESET, "")) if restrictive else ""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """See virDomainSetNumaParameters."""
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
