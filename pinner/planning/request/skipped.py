"""Why a plan skips a guest, for people."""

from pinner.model.guest.dedicated import nova_cpus
from pinner.model.guest.guest import Guest
from pinner.model.plan.request import Request
from pinner.model.text import listed
from pinner.planning.available import flavors
from pinner.planning.available.allocatable_cpus import AllocatableCpus
from pinner.planning.available.exclusions import is_excluded_guest, is_named

_NAMED = 4
"""How many pins of an operator a reason names."""


def why_skipped(guest: Guest, allocatable: AllocatableCpus, request: Request) -> str:
    """Why the plan does not place a guest that is excluded, or that Nova or an operator pinned."""
    if guest.unread:
        return f"it cannot be read: {guest.unread}"
    if guest.dedicated:
        return f"Nova dedicates CPUs {nova_cpus(guest, allocatable.online)} to it{_emulators(guest, request)}"
    if flavors.excluded(guest):
        return f"its flavor excludes it ({flavors.EXCLUDED})"
    if guest.is_migrating:
        return "its migration has not ended"
    if guest.leaving:
        return "it is being migrated away"
    if guest.excluded:
        return "its metadata excludes it (pin-off)"
    if is_named(guest, request.excluded_guests):
        return "the request excludes it (excluded_guests)"
    return _operators_pins(guest)


def _operators_pins(guest: Guest) -> str:
    """The pins of an operator in words: those of the definition, or else those of the running guest."""
    defined = [pin for pin in guest.operator_pins if pin.written == "definition"]
    pins = defined or guest.operator_pins
    parts = [f"{pin.kind}{'' if pin.part is None else f' {pin.part}'} to {pin.cpus}" for pin in pins]
    where = "in its definition" if defined else "through libvirt while it runs"
    return f"an operator pinned it {where}: {listed(parts, _NAMED)}; to place it, name it in guests (--guest)"


def _emulators(guest: Guest, request: Request) -> str:
    """A note whether the plan places the emulator threads; empty if the request does not ask for that."""
    if not request.nova_emulators or is_excluded_guest(guest, request):
        return ""
    if guest.emulator.policy:
        return f"; Nova pins its emulator threads too (hw:emulator_threads_policy {guest.emulator.policy})"
    return "; only its emulator threads are placed"
