"""nova.conf has vcpu_pin_set = 4-15, and the kernel isolates some of these CPUs; and a set that leaves a node's guests
no CPU.

Right for vcpu_pin_set: isolated CPUs, and those of pinned guests, in cpu_dedicated_set; the others in cpu_shared_set;
and vcpu_pin_set goes, because nova-compute does not start with both. Nova has these sets since 20.0 (Train). Where all
its guests are pinned, isolated CPUs are right.
"""

from support.hosts import GIB, KERNEL, cpus, guest, plain, snapshot

from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import NovaConf

NOVA = NovaIdentity("i-1", "p-1", "u-1", "m1.small")
CONF = {"nova": NovaConf((), pin_set="4-15"), "shared": cpus("4-15")}
PINNED = guest(1, 2, cpus("4"), pins=["8", "9"], nova=NOVA, dedicated=True)

ALL = snapshot(plain(16, isolated="4-15"), **CONF)
SOME = snapshot(plain(16, isolated="8-15"), **CONF)
PINS_ALONE = snapshot(plain(16, isolated="4-15"), [PINNED], **CONF)
FLOATS = snapshot(plain(16, isolated="8-15"), [guest(1, 2, cpus("4-15"), nova=NOVA)], **CONF)
WITH_PINNED = snapshot(plain(16), [PINNED], **CONF)
BOTH = snapshot(plain(16), [PINNED, guest(2, 2, cpus("4-15"), nova=NOVA)], **CONF)

NODE_1 = snapshot(
    plain(16, 2, isolated="10-15", kernel=KERNEL),
    [guest(1, 2, cpus("10-15"), memory={1: 2 * GIB}, nova=NOVA)],
    shared=cpus("2-7,10-15"),
)
"""Right: no line of cpu_shared_set, because 2-7 alone takes the guest from the node of its memory."""
