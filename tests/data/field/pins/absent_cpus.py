"""A guest with <vcpu cpuset='30-33'>, and one with pins to CPU 40, on a host of 32 CPUs."""

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.guest.guest import OperatorPin

HOST = snapshot(
    plain(32),
    [
        guest(1, 2, cpus("30-31"), restriction=cpus("30-33")),
        guest(2, 2, cpus("0-31"), operator_pins=(OperatorPin("vcpu", 0, cpus("20,40"), "definition"),)),
    ],
)

# g1 gets the CPUs that exist; the pin of g2 owns CPU 20 alone.
INSIDE, OWNED = cpus("30-31"), cpus("20")
WARNINGS = (
    "guest g1: <vcpu cpuset='30-33'> names CPUs 32-33, which the host lacks",
    "guest g2: an operator's pins name CPUs 40, which the host lacks",
)
