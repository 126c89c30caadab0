"""The virsh commands that tests use most, as calls of libvirt-python: a start of virsh costs more than the call."""

import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import libvirt

from pinner.model.cpuset import CpuSet

_Domain = Any
"""libvirt-python has no types."""
_WHERE = {"--live": libvirt.VIR_DOMAIN_AFFECT_LIVE, "--config": libvirt.VIR_DOMAIN_AFFECT_CONFIG}
_PAUSED = {"--paused": libvirt.VIR_DOMAIN_START_PAUSED}
_XML = {
    "--inactive": libvirt.VIR_DOMAIN_XML_INACTIVE,
    "--migratable": libvirt.VIR_DOMAIN_XML_MIGRATABLE,
    "--security-info": libvirt.VIR_DOMAIN_XML_SECURE,
}
_SAVED = {"--managed-save": libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE}

_CALLS: dict[str, tuple[dict[str, int], Callable[..., object]]] = {
    "destroy": ({}, lambda domain, _: domain.destroy()),
    "domuuid": ({}, lambda domain, _: domain.UUIDString()),
    "dumpxml": (_XML, lambda domain, flags: domain.XMLDesc(flags)),
    "emulatorpin": (_WHERE, lambda domain, flags, cpus: domain.pinEmulator(_map(cpus), flags)),
    "iothreadadd": (_WHERE, lambda domain, flags, thread: domain.addIOThread(int(thread), flags)),
    "iothreadpin": (_WHERE, lambda domain, flags, thread, cpus: domain.pinIOThread(int(thread), _map(cpus), flags)),
    "managedsave": ({}, lambda domain, _: domain.managedSave()),
    "reset": ({}, lambda domain, _: domain.reset()),
    "resume": ({}, lambda domain, _: domain.resume()),
    "setvcpus": (_WHERE, lambda domain, flags, count: domain.setVcpusFlags(int(count), flags)),
    "start": (_PAUSED, lambda domain, flags: domain.createWithFlags(flags)),
    "suspend": ({}, lambda domain, _: domain.suspend()),
    "undefine": (_SAVED, lambda domain, flags: domain.undefineFlags(flags)),
    "vcpupin": (_WHERE, lambda domain, flags, vcpu, cpus: domain.pinVcpuFlags(int(vcpu), _map(cpus), flags)),
}
"""The options of each command, and its call, which gets the domain, the flags and the other words."""


def run(uri: str, command: str, *words: str) -> str | None:
    """The output of a command of one domain; None where the command or an option is not known here.

    Raises CalledProcessError as virsh does.
    """
    options, call = _CALLS.get(command, ({}, None))
    given = [word for word in words if word.startswith("--")]
    if call is None or not options.keys() >= set(given):
        return None
    name, *rest = (word for word in words if not word.startswith("--"))
    try:
        result = call(_connection(uri).lookupByName(name), sum(options[option] for option in given), *rest)
    except libvirt.libvirtError as error:
        raise subprocess.CalledProcessError(1, ["virsh", command, *words], stderr=f"error: {error}") from error
    return result if isinstance(result, str) else ""


def create(uri: str, xml: str, *, paused: bool) -> None:
    """Start a transient guest. Raises CalledProcessError."""
    _made(uri, "create", lambda connection: connection.createXML(xml, sum(_PAUSED.values()) if paused else 0))


def define(uri: str, xml: str) -> None:
    """Define a persistent guest. Raises CalledProcessError."""
    _made(uri, "define", lambda connection: connection.defineXML(xml))


def _made(uri: str, command: str, call: Callable[[Any], object]) -> None:
    try:
        call(_connection(uri))
    except libvirt.libvirtError as error:
        raise subprocess.CalledProcessError(1, ["virsh", command], stderr=f"error: {error}") from error


def _connection(uri: str) -> Any:
    """A connection that works: the daemon may have been started anew, which isAlive() does not see."""
    try:
        _opened(uri).getLibVersion()
    except libvirt.libvirtError:
        _opened.cache_clear()
    return _opened(uri)


@cache
def _opened(uri: str) -> Any:
    libvirt.registerErrorHandler(lambda *_: None, None)  # else each error is also written to stderr
    return libvirt.open(uri)


def _map(cpus: str) -> tuple[bool, ...]:
    """The CPUs of a list such as 0,2-3, as libvirt wants them."""
    chosen = CpuSet.parse(cpus).bits
    return tuple(bool(chosen >> cpu & 1) for cpu in range(chosen.bit_length()))
