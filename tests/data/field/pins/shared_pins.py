"""Two guests of 4 vCPUs whose operator pinned all 8 to CPUs 8-15, on a host of 32 CPUs."""

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import OperatorPin

OWNED = cpus("8-15")
PINS = tuple(OperatorPin("vcpu", vcpu, OWNED, "definition") for vcpu in range(4))

HOST = snapshot(
    plain(32),
    [guest(n, 4, cpus("0-31"), pins=["8-15"] * 4, operator_pins=PINS) for n in (1, 2)] + [guest(3, 4, cpus("0-31"))],
    [process(300, 40.0, "0-31")],
)

# Both together have a vCPU for each core of 8-15, which nothing else gets.
HOUSEKEEPING, EMULATOR, VCPU = cpus("0-3"), cpus("4-7"), cpus("16-31")
WHY = "it owns CPUs 8-15 (it shares CPUs 8-15 with guest g{}, which an operator pinned)"
