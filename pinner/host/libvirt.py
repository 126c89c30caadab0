"""libvirt: the sole ``import libvirt`` but for libvirt_events. Reads the active guests, and pins them.

Calls and flags: https://libvirt.org/html/libvirt-libvirt-domain.html; error numbers: libvirt-virterror.html. What needs
QEMU's answer (thread ids, iothread info, vCPU statistics) is not asked for: a stopped QEMU would hold everything up.
"""

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import libvirt  # type: ignore[import-untyped]

from pinner.host import domain_xml, qemu
from pinner.host.guests import ActiveDomain, read_guest
from pinner.host.timed_calls import TimedCalls
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable, NotPermitted, PinnerError
from pinner.model.guest import Guest, GuestState

T = TypeVar("T")

CALL_TIMEOUT = 10.0
_HOST_CALL_FACTOR = 6
"""How many times as long a look at the whole host is waited for: a new libvirtd asks each QEMU what it can do."""
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

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE

# Without a handler libvirt prints every error to the terminal, although it raises it too.
libvirt.registerErrorHandler(lambda *_: None, None)


class _Link:
    """A connection, for one call at a time: one that hangs would hold up the others of its connection."""

    def __init__(self, connection: libvirt.virConnect) -> None:
        self.connection = connection
        self._domains: dict[str, libvirt.virDomain] = {}

    def domain(self, uuid: str) -> libvirt.virDomain:
        """Looked up only once."""
        if uuid not in self._domains:
            self._domains[uuid] = self.connection.lookupByUUIDString(uuid)
        return self._domains[uuid]


class Libvirt:
    """One libvirtd by its connection URI. Connects when first asked, and again when the connection was lost.

    Every method raises HostUnreachable where libvirt does not answer, NotPermitted where it refuses, and Busy where
    the call takes longer than ``call_timeout`` seconds: it is made all the same then, and what is asked of the same
    guest after it is made after it. May be used by several threads.
    """

    def __init__(self, uri: str, call_timeout: float = CALL_TIMEOUT) -> None:
        self._uri = uri
        self._calls = TimedCalls(call_timeout)
        self._host_calls = TimedCalls(_HOST_CALL_FACTOR * call_timeout)
        self._down = False
        """Whether the last one who had the patience has waited for libvirtd in vain."""
        self._idle: list[_Link] = []

    def capabilities(self) -> str:
        """The host's capabilities as XML (virConnectGetCapabilities)."""
        return str(self._ask("the capabilities", lambda connection: connection.getCapabilities()))

    def guests(self, root: Path) -> tuple[Guest, ...]:
        """The active guests by name, their threads read below ``root``. One that ends meanwhile is left out."""
        domains = self.active()
        processes = qemu.look(root, {domain.uuid for domain in domains})
        found = []
        for domain in sorted(domains, key=lambda domain: (domain.name, domain.uuid)):
            try:
                found.append(read_guest(root, domain, processes))
            except Gone:
                continue
        return tuple(found)

    def active(self) -> list[ActiveDomain]:
        """What libvirt itself says of the active guests."""
        return self._ask("the guests", _active)

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        """Pin an emulator, vCPU or iothread, live, and with ``persist`` in its definition too.

        Raises Gone, Busy where another job holds the guest, and ApplyFailed with libvirt's own words. CPUs that the
        host lacks are dropped by libvirt without a word: read the kernel back.
        """
        flags = _LIVE | (libvirt.VIR_DOMAIN_AFFECT_CONFIG if persist else 0)
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

        self._ask_domain(str(target), target.owner, work)

    def pin_of(self, target: Target) -> CpuSet | None:
        """Where libvirt remembers that an emulator, vCPU or iothread is pinned; None: nowhere. Raises Gone."""
        domain = domain_xml.parse(self._ask_domain(str(target), target.owner, lambda domain: domain.XMLDesc(0)))
        match target.kind, target.part:
            case "vcpu", int(part):
                return domain.vcpu_pins.get(part)
            case "iothread", int(part):
                return domain.iothread_pins.get(part)
        return domain.emulator_pin

    def persistent(self, guest: str) -> bool:
        """Whether the guest (by UUID) has a definition that outlives a shutdown. Raises Gone."""
        return self._ask_domain(f"guest {guest}", guest, lambda domain: bool(domain.isPersistent()))

    def definition(self, guest: str) -> str:
        """The <cputune> of the guest's persistent definition, empty where it has none. Raises Gone."""
        xml = self._ask_domain(f"guest {guest}", guest, _definition)
        return domain_xml.cputune(xml) if xml else ""

    def restore_definition(self, target: Target, definition: str) -> None:
        """Put the target's pin of ``definition`` (what ``definition()`` gave) back, or take the target's pin away.

        Everything else of the persistent definition stays, passwords included. Raises Gone, ApplyFailed.
        """

        def work(domain: libvirt.virDomain) -> None:
            xml = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE)
            domain.connect().defineXML(domain_xml.with_pin_of(xml, target, definition))

        self._ask_domain(str(target), target.owner, work)

    def numatune(self, target: Target) -> str:
        """The nodes of the guest's live numatune where they may be changed: in mode restrictive alone since libvirt
        8.0. None is made where there is none: it could not be taken away again. Raises Gone, ApplyFailed."""
        found = self._ask_domain(str(target), target.owner, lambda domain: domain.numaParameters(_LIVE))
        restrictive = found.get(libvirt.VIR_DOMAIN_NUMA_MODE) == libvirt.VIR_DOMAIN_NUMATUNE_MEM_RESTRICTIVE
        return str(found.get(libvirt.VIR_DOMAIN_NUMA_NODESET, "")) if restrictive else ""

    def set_numatune(self, target: Target, nodes: str) -> None:
        """Give the guest's live numatune other nodes (virDomainSetNumaParameters). Raises Gone, ApplyFailed."""
        wanted = {libvirt.VIR_DOMAIN_NUMA_NODESET: nodes}
        self._ask_domain(str(target), target.owner, lambda domain: domain.setNumaParameters(wanted, _LIVE))

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """Mark the guest (by UUID), live and in its definition, as one whose CPUs are left alone, or take the mark away
        (virDomainSetMetadata). Raises Gone, ApplyFailed."""

        def work(domain: libvirt.virDomain) -> None:
            flags = _LIVE | (libvirt.VIR_DOMAIN_AFFECT_CONFIG if domain.isPersistent() else 0)
            mark = domain_xml.EXCLUDED if excluded else None
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, mark, "pinner", domain_xml.PINNER, flags)

        self._ask_domain(f"guest {guest}", guest, work)

    def _ask_domain(self, what: str, uuid: str, work: Callable[[libvirt.virDomain], T]) -> T:
        def answer() -> T:
            return self._answer(what, lambda link: work(link.domain(uuid)), patient=True)

        return _timed(self._calls, uuid, what, answer)

    def _ask(self, what: str, work: Callable[[libvirt.virConnect], T]) -> T:
        def answer() -> T:
            return self._answer(what, lambda link: work(link.connection), patient=False)

        return _timed(self._host_calls, what, what, answer)

    def _answer(self, what: str, work: Callable[[_Link], T], *, patient: bool) -> T:
        """Do the work, once more over a new connection when the old one was lost and its outcome with it: all that is
        asked can be repeated."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._open(patient=patient)
        try:
            return self._work(link, work)
        except libvirt.libvirtError as error:
            if link.connection.isAlive():
                raise self._translated(what, error) from None
        try:
            return self._work(self._open(patient=True), work)
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

    def _open(self, *, patient: bool) -> _Link:
        """A new connection; who is ``patient`` waits for a libvirtd that is restarted, unless one did so in vain."""
        deadline = time.monotonic() + (self._calls.seconds / 2 if patient and not self._down else 0)
        while True:
            try:
                link = _Link(libvirt.open(self._uri))
            except libvirt.libvirtError as error:
                if time.monotonic() >= deadline:
                    self._down = self._down or patient
                    raise self._unreachable(error) from None
            else:
                self._down = False
                return link
            time.sleep(_RETRY_SECONDS)

    def _translated(self, what: str, error: libvirt.libvirtError) -> PinnerError:
        code, words = error.get_error_code(), str(error)
        if code in _DENIED:
            return NotPermitted(what, words)
        if error.get_error_domain() == libvirt.VIR_FROM_RPC:
            return self._unreachable(error)
        if code == libvirt.VIR_ERR_NO_DOMAIN or _errno(error) == errno.ESRCH or words.endswith("is not running"):
            return Gone(what)
        if code in _BUSY:
            return Busy(what, f"libvirt: {words}", overdue=False)
        return ApplyFailed(what, f"libvirt: {words}", libvirt_code=code)

    def _unreachable(self, error: libvirt.libvirtError) -> PinnerError:
        if error.get_error_code() in _DENIED or _errno(error) in (errno.EACCES, errno.EPERM):
            return NotPermitted(f"libvirt at {self._uri}", f"{error}; run pinner as root or in the group libvirt")
        why = f"libvirt does not answer at {self._uri}: {error}; start libvirtd or set [libvirt] uri"
        return HostUnreachable(socket.gethostname(), why)


def _timed(calls: TimedCalls, about: str, what: str, answer: Callable[[], T]) -> T:
    try:
        return calls.call(about, answer)
    except TimeoutError:
        why = f"no answer from libvirt within {calls.seconds:g} s ([libvirt] call_timeout)"
        raise Busy(what, why, overdue=True) from None


def _errno(error: libvirt.libvirtError) -> int:
    """The system's error number behind VIR_ERR_SYSTEM_ERROR, 0 for another error."""
    return error.get_int1() if error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR else 0


def _definition(domain: libvirt.virDomain) -> str:
    return domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) if domain.isPersistent() else ""


def _active(connection: libvirt.virConnect) -> list[ActiveDomain]:
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
    found = []
    for domain, stats in connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags):
        try:
            found.append(_active_domain(domain, _STATES.get(stats.get("state.state", 0), "unknown")))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
    return found


def _active_domain(domain: libvirt.virDomain, state: GuestState) -> ActiveDomain:
    persistent = bool(domain.isPersistent())
    return ActiveDomain(
        uuid=domain.UUIDString(),
        name=domain.name(),
        state=state,
        xml=domain_xml.parse(domain.XMLDesc(0)),
        definition=domain_xml.parse(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)) if persistent else None,
    )
