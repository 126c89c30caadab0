"""The health of the parts that read this host."""

from pinner.host.virt.libvirt import Libvirt
from pinner.host.watch.events import HostWatcher
from pinner.model.machine.health import Check


def checks(watcher: HostWatcher, libvirt: Libvirt) -> tuple[Check, ...]:
    """The checks of libvirt and of the watcher. They ask nobody, so they never wait."""
    return (_libvirt(watcher, libvirt), Check("events", not watcher.failure, watcher.failure))


def _libvirt(watcher: HostWatcher, libvirt: Libvirt) -> Check:
    if (overdue := libvirt.host_calls.overdue) is not None:
        why = f"libvirt has not answered for {overdue:.0f} s; check whether libvirtd hangs"
        return Check("libvirt", ok=False, why=why)
    if (lost := watcher.libvirt_lost) is not None:
        return Check("libvirt", ok=False, why=f"no connection to libvirt for {lost:.0f} s")
    return Check("libvirt", ok=True)
