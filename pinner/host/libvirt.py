"""Reads the active guests from libvirt, and pins them. Only this module and libvirt_events ``import libvirt``.

Calls and flags: https://libvirt.org/html/libvirt-libvirt-domain.html; error numbers: libvirt-virterror.html. This
module avoids calls that need an answer of QEMU (thread ids, iothread info, vCPU statistics), because a stopped QEMU
would block them.
"""

import errno
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import libvirt  # type: ignore[import-untyped]

from pinner.host import domain_xml, qemu, stored_pins
from pinner.host.guests import ActiveDomain, DomainDescription, read_guests
from pinner.host.one_by_one import described
from pinner.host.timed_calls import TimedCalls, answer_in_time
from pinner.model import pins_metadata
from pinner.model.change import NamedPins, PartPin, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable, NotPermitted, PinnerError
from pinner.model.guest import Guest, GuestState, InactiveGuest

T = TypeVar("T")

CALL_TIMEOUT = 10.0
OCCUPIED = 1.0
"""Seconds. A command of QEMU takes milliseconds: a guest whose QEMU takes longer than this is not waited for."""
_HOST_CALL_FACTOR = 6
"""The timeout of calls about the whole host is this multiple of ``call_timeout``: a restarted libvirtd first queries
each QEMU."""
_LISTING_PART = 0.1
"""The part of ``call_timeout`` after which guests are read one by one. libvirt lists hundreds of guests in less."""
_RETRY_SECONDS = 0.1

_STATES: dict[int, GuestState] = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "blocked",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "suspended",
}
_DENIED = {
    libvirt.VIR_ERR_OPERATION_DENIED,
    libvirt.VIR_ERR_ACCESS_DENIED,
    libvirt.VIR_ERR_AUTH_FAILED,
    libvirt.VIR_ERR_AUTH_CANCELLED,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE,
}
_BUSY = {libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_ERR_RESOURCE_BUSY, libvirt.VIR_ERR_AGENT_UNRESPONSIVE}
_MIGRATIONS = {libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}
_ROOT = Path("/")
_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
_CONFIG = libvirt.VIR_DOMAIN_AFFECT_CONFIG
_ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT
_INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE
_NOT_RUNNING = libvirt.VIR_CONNECT_LIST_DOMAINS_INACTIVE

# Without a handler libvirt prints every error to the terminal, although it raises it too.
libvirt.registerErrorHandler(lambda *_: None, None)


class _Link:
    """A connection for one call at a time, because a call that hangs blocks other calls on its connection."""

    def __init__(self, connection: libvirt.virConnect) -> None:
        self.connection = connection
        self._domains: dict[str, libvirt.virDomain] = {}

    def domain(self, uuid: str) -> libvirt.virDomain:
        """The domain of this UUID, searched once."""
        if uuid not in self._domains:
            self._domains[uuid] = self.connection.lookupByUUIDString(uuid)
        return self._domains[uuid]


class Libvirt:
    """One libvirtd, named by its connection URI. Connects at the first call, and again after a lost connection.

    Every method raises HostUnreachable where libvirt does not answer, NotPermitted where it refuses, and Busy where
    the call takes longer than ``call_timeout`` seconds. An overdue call is not cancelled, and later calls about the
    same guest are made after it. Several threads may use one object.
    """

    def __init__(self, uri: str, call_timeout: float = CALL_TIMEOUT, occupied_seconds: float = OCCUPIED) -> None:
        self._uri = uri
        self._occupied_seconds = occupied_seconds
        self._calls = TimedCalls(call_timeout)
        self.host_calls = TimedCalls(_HOST_CALL_FACTOR * call_timeout)
        self._listings = TimedCalls(_LISTING_PART * call_timeout)
        self._inactive: tuple[InactiveGuest, ...] = ()  # as inactive() found them last
        self._down = False  # whether the latest wait for a restarted libvirtd failed
        self._idle: list[_Link] = []
        self.users: Mapping[str, int | None] = {}  # of each guest's QEMU, by UUID, as active() found them last

    def capabilities(self) -> str:
        """The host's capabilities as XML (virConnectGetCapabilities)."""
        return str(self._ask("the capabilities", lambda connection: connection.getCapabilities()))

    def guests(self, root: Path) -> tuple[Guest, ...]:
        """The active guests by name, with their threads below ``root``. A guest that ends meanwhile is left out."""
        domains = self.active()
        return read_guests(root, domains, qemu.find(root, {domain.uuid for domain in domains}, self.users))

    def inactive(self) -> tuple[InactiveGuest, ...]:
        """The guests by name that are defined and do not run; those of the last answer while a guest blocks libvirt."""
        self._inactive = self._listed("the inactive guests", _inactive, lambda: self._inactive)
        return self._inactive

    def active(self) -> list[ActiveDomain]:
        """The active guests as libvirt describes them. A guest that it does not describe is excluded."""
        found = [description.parsed_or_left_alone() for description in self.descriptions()]
        known = self.users
        self.users = {each.uuid: known.get(each.uuid) if each.unread else qemu.user_id(each.xml.user) for each in found}
        return found

    def descriptions(self) -> list[DomainDescription]:
        """The active guests with libvirt's XML, without passwords. One guest's error is a part of its description."""
        return self._listed("the guests", _descriptions, lambda: described(qemu.named(_ROOT), self._description))

    def _description(self, uuid: str, name: str) -> DomainDescription:
        what = f"guest {name}"

        def answer() -> DomainDescription:
            return self._answer(what, lambda link: _active_description(link.domain(uuid)), retry=False)

        return answer_in_time(self._listings, uuid, what, answer, change=False)

    def _listed(self, what: str, work: Callable[[libvirt.virConnect], T], otherwise: Callable[[], T]) -> T:
        """The answer of a call that one guest can block; while libvirt answers only other calls, ``otherwise``."""
        with suppress(Busy):
            # While one guest blocks a call, it blocks all calls of this kind.
            if self._listings.overdue is None:
                return self._ask(what, work, self._listings)
        try:
            self._ask("the host name", lambda connection: connection.getHostname(), self._listings)
        except Busy:
            return self._ask(what, work)
        return otherwise()

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Pin an emulator, vCPU or iothread in the running guest, and with ``persist`` in its definition too.

        Raises Gone, Busy where another job blocks the guest, and ApplyFailed with libvirt's message. libvirt silently
        drops CPUs that the host does not have, so the caller must read the mask back from the kernel.
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

        self._ask_domain(str(target), target.owner, work, change=True)

    def require_answering(self, target: Target) -> None:
        """Raises Busy where a call of libvirt has waited for the guest's QEMU for ``occupied_seconds`` or longer
        (virDomainGetControlInfo, which does not wait itself): a pin would wait, too. Raises Gone."""

        # A key of its own: it must not wait for an overdue call.
        seconds = self._ask_domain(str(target), target.owner, _occupied, key=f"{target.owner} control")
        if seconds >= self._occupied_seconds:
            raise Busy(str(target), f"its QEMU has not answered libvirt for {seconds:.0f} s", overdue=False)

    def pin_of(self, target: Target) -> CpuSet | None:
        """The pin of an emulator, vCPU or iothread in libvirt's live XML; None where it has none. Raises Gone."""
        domain = domain_xml.parse(self._ask_domain(str(target), target.owner, lambda domain: domain.XMLDesc(0)))
        return domain.pin_of(target.kind, target.part)

    def persistent(self, guest: str) -> bool:
        """Whether the guest (by UUID) has a persistent definition. Raises Gone."""
        return self._ask_domain(f"guest {guest}", guest, lambda domain: bool(domain.isPersistent()))

    def definition(self, guest: str) -> str:
        """The <cputune> of the guest's persistent definition, empty where it has none. Raises Gone."""
        xml = self._ask_domain(f"guest {guest}", guest, lambda it: it.XMLDesc(_INACTIVE) if it.isPersistent() else "")
        return domain_xml.cputune(xml) if xml else ""

    def restore_definition(self, target: Target, definition: str, given: Collection[CpuSet]) -> None:
        """Restore the target's pin from ``definition`` (a result of ``definition()``), or remove it if that has none.

        The rest of the definition, including passwords, stays, and a guest that was undefined since is not defined
        again. Raises Gone, and ApplyFailed also where the present pin is none of the ``given`` CPUs: then it stays.
        """

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

        self._ask_domain(str(target), target.owner, work, change=True)

    def named_pins(self, guest: str) -> NamedPins:
        """The pins that pinner's metadata of the guest (by UUID) names (virDomainGetMetadata). Raises Gone."""

        def work(domain: libvirt.virDomain) -> NamedPins:
            live = _named_pins(domain, _LIVE)
            saved = _saved_xml(domain) if live is None else ""
            return NamedPins(live, _named_pins(domain, _CONFIG), stored_pins.named_in(saved) if saved else None)

        # A key of its own: this call needs no job, so it need not wait for an overdue call.
        return self._ask_domain(f"guest {guest}", guest, work, key=f"{guest} metadata")

    def pins(self, guest: str) -> tuple[PartPin, ...]:
        """The pins in the live XML of the guest (by UUID), whoever made them. Raises Gone."""
        return stored_pins.pins_in(self._ask_domain(f"guest {guest}", guest, lambda domain: domain.XMLDesc(0)))

    def restore_saved(
        self, target: Target, pins: Collection[PartPin], former: Collection[PartPin], names: tuple[PartPin, ...]
    ) -> None:
        """Restore the guest's saved image (virDomainManagedSaveDefineXML), see stored_pins.restored. Nothing is done
        where it has none any more. Raises Gone, ApplyFailed."""

        def work(domain: libvirt.virDomain) -> None:
            if xml := _saved_xml(domain):
                domain.managedSaveDefineXML(stored_pins.restored(xml, pins, former, names), 0)

        self._ask_domain(str(target), target.owner, work, change=True)

    def name_pins(self, target: Target, pins: NamedPins) -> None:
        """Write the pins that pinner's metadata of the guest names (virDomainSetMetadata); a part that is None stays
        unchanged. Raises Gone, ApplyFailed."""
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

        self._ask_domain(str(target), target.owner, work, change=True)

    def numatune(self, target: Target) -> str:
        """The nodes of the guest's live numatune, empty where libvirt cannot change them. Raises Gone, ApplyFailed.

        Since libvirt 8.0 they can be changed only in mode restrictive. pinner never creates a numatune, because it
        could not remove it again.
        """
        found = self._ask_domain(str(target), target.owner, lambda domain: domain.numaParameters(_LIVE))
        restrictive = found.get(libvirt.VIR_DOMAIN_NUMA_MODE) == libvirt.VIR_DOMAIN_NUMATUNE_MEM_RESTRICTIVE
        return str(found.get(libvirt.VIR_DOMAIN_NUMA_NODESET, "")) if restrictive else ""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """Set the nodes of the guest's live numatune (virDomainSetNumaParameters). Raises Gone, ApplyFailed."""
        new = {libvirt.VIR_DOMAIN_NUMA_NODESET: nodes}
        self._ask_domain(str(target), target.owner, lambda it: it.setNumaParameters(new, _LIVE), change=True)

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Mark the guest (by UUID) as excluded, or remove the mark, in its live XML and its definition
        (virDomainSetMetadata). Raises Gone, ApplyFailed."""

        def work(domain: libvirt.virDomain) -> None:
            flags = _LIVE | (_CONFIG if domain.isPersistent() else 0)
            mark = domain_xml.EXCLUDED if excluded else None
            domain.setMetadata(_ELEMENT, mark, "pinner", domain_xml.PINNER, flags)

        self._ask_domain(f"guest {guest}", guest, work)

    def _ask_domain(
        self, what: str, uuid: str, work: Callable[[libvirt.virDomain], T], *, change: bool = False, key: str = ""
    ) -> T:
        def answer() -> T:
            return self._answer(what, lambda link: work(link.domain(uuid)), retry=True)

        return answer_in_time(self._calls, key or uuid, what, answer, change=change)

    def _ask(self, what: str, work: Callable[[libvirt.virConnect], T], calls: TimedCalls | None = None) -> T:
        what = f"{what} at {self._uri}"

        def answer() -> T:
            return self._answer(what, lambda link: work(link.connection), retry=False)

        return answer_in_time(calls or self.host_calls, what, what, answer, change=False)

    def _answer(self, what: str, work: Callable[[_Link], T], *, retry: bool) -> T:
        """Do the work. If the connection is lost and the outcome unknown, repeat the work over a new connection.

        All calls of this class can be repeated. With ``retry`` the first connection waits for a restarted libvirtd.
        """
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._open(retry=retry)
        try:
            return self._work(link, work)
        except libvirt.libvirtError as error:
            if link.connection.isAlive():
                raise self._translated(what, error) from None
        try:
            return self._work(self._open(retry=True), work)
        except libvirt.libvirtError as error:
            raise self._translated(what, error) from None

    def _work(self, link: _Link, work: Callable[[_Link], T]) -> T:
        try:
            return work(link)
        finally:
            if link.connection.isAlive():
                self._idle.append(link)
            else:
                self._idle.clear()

    def _open(self, *, retry: bool) -> _Link:
        """A new connection. With ``retry`` it waits for a restarted libvirtd, unless an earlier wait failed."""
        deadline = time.monotonic() + (self._calls.seconds / 2 if retry and not self._down else 0)
        while True:
            try:
                link = _Link(libvirt.open(self._uri))
            except libvirt.libvirtError as error:
                if time.monotonic() >= deadline:
                    self._down = self._down or retry
                    raise self._unreachable(error) from None
            else:
                self._down = False
                return link
            time.sleep(_RETRY_SECONDS)

    def _translated(self, what: str, error: libvirt.libvirtError) -> PinnerError:
        code, message = error.get_error_code(), str(error)
        if code in _DENIED:
            return NotPermitted(what, message)
        if error.get_error_domain() == libvirt.VIR_FROM_RPC:
            return self._unreachable(error)
        if code == libvirt.VIR_ERR_NO_DOMAIN or _errno(error) == errno.ESRCH or message.endswith("is not running"):
            return Gone(what)
        if code in _BUSY:
            return Busy(what, f"libvirt: {message}", overdue=False)
        return ApplyFailed(what, f"libvirt: {message}", libvirt_code=code)

    def _unreachable(self, error: libvirt.libvirtError) -> PinnerError:
        if error.get_error_code() in _DENIED or _errno(error) in (errno.EACCES, errno.EPERM):
            return NotPermitted(f"libvirt at {self._uri}", f"{error}; run pinner as root or in the group libvirt")
        hint = "start libvirtd or set [libvirt] uri"
        return HostUnreachable(socket.gethostname(), f"libvirt does not answer at {self._uri}: {error}; {hint}")


def _occupied(domain: libvirt.virDomain) -> float:
    """For how many seconds a call has waited for the guest's QEMU."""
    state, _, milliseconds = domain.controlInfo()
    return milliseconds / 1000 if state == libvirt.VIR_DOMAIN_CONTROL_OCCUPIED else 0.0


def _is_migrating(domain: libvirt.virDomain) -> bool:
    """Whether a migration of the guest has not ended: libvirt refuses to pin the guest then (virDomainGetJobStats).

    A guest whose QEMU does not answer is not asked, because the answer would have to wait for that QEMU.
    """
    if _occupied(domain):
        return False
    try:
        return domain.jobStats().get(libvirt.VIR_DOMAIN_JOB_OPERATION) in _MIGRATIONS
    except libvirt.libvirtError as error:
        if error.get_error_code() not in (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, libvirt.VIR_ERR_OPERATION_INVALID):
            raise
        # The statistics of an incoming migration are at its source. A guest that has ended has none either.
        return bool(domain.isActive())


def _errno(error: libvirt.libvirtError) -> int:
    """The system's error number of a VIR_ERR_SYSTEM_ERROR, 0 for another error."""
    return error.get_int1() if error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR else 0


def _saved_xml(domain: libvirt.virDomain) -> str:
    """The XML of the guest's saved image, with passwords; empty where it has none."""
    if not domain.hasManagedSaveImage(0):
        return ""
    return str(domain.managedSaveGetXMLDesc(libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE))


def _named_pins(domain: libvirt.virDomain, flags: int) -> tuple[PartPin, ...] | None:
    """None for the live XML of a guest that does not run, and for the definition of a transient one."""
    try:
        element = domain.metadata(_ELEMENT, pins_metadata.NAMESPACE, flags)
    except libvirt.libvirtError as error:
        match error.get_error_code():
            case libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                return ()
            case libvirt.VIR_ERR_OPERATION_INVALID:
                return None
        raise
    return domain_xml.named_pins(element)


def _descriptions(connection: libvirt.virConnect) -> list[DomainDescription]:
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
    found = []
    for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags):
        try:
            found.append(_description(domain, stats.get("state.state", 0)))
        except libvirt.libvirtError as error:
            if error.get_error_domain() == libvirt.VIR_FROM_RPC or not connection.isAlive():
                raise
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                nothing = DomainDescription(domain.UUIDString(), domain.name(), "unknown", "", None)
                found.append(nothing.without_xml(f"libvirt: {error}"))
    return found


def _inactive(connection: libvirt.virConnect) -> tuple[InactiveGuest, ...]:
    found = connection.listAllDomains(_NOT_RUNNING)
    return tuple(sorted(InactiveGuest(each.name(), each.UUIDString()) for each in found))


def _active_description(domain: libvirt.virDomain) -> DomainDescription:
    """The description of one guest; raises Gone where it does not run."""
    if not domain.isActive():
        raise Gone(f"guest {domain.name()}")
    return _description(domain, domain.state()[0])


def _description(domain: libvirt.virDomain, number: int) -> DomainDescription:
    """The description of a guest; ``number`` is libvirt's number of its state."""
    persistent = bool(domain.isPersistent())
    return DomainDescription(
        uuid=domain.UUIDString(),
        name=domain.name(),
        state="migrating" if _is_migrating(domain) else _STATES.get(number, "unknown"),
        xml=domain.XMLDesc(0),
        definition=domain.XMLDesc(_INACTIVE) if persistent else None,
    )
