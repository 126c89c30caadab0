"""A guest whose operator pinned its vCPUs to CPUs of two other guests: 10-13, where g1 has 8-11 and g2 has 12-15."""

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.guest.guest import Guest, OperatorPin


def _pinned(number: int, pin: str) -> Guest:
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(pin), "definition") for vcpu in range(4))
    return guest(number, 4, cpus("0-31"), pins=[pin] * 4, operator_pins=pins)


HOST = snapshot(plain(32), [_pinned(1, "8-11"), _pinned(2, "12-15"), _pinned(3, "10-13"), guest(4, 4, cpus("0-31"))])

VCPU = cpus("16-31")
WHY = (
    "it owns CPUs 10-13 (it shares CPUs 10-11 with guest g1, which an operator pinned, CPUs 12-13 with guest g2, which "
    "an operator pinned)"
)
