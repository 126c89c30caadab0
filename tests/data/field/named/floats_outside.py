"""cpu_shared_set is 4-15,20-31. Nova's guest g1 was started before the set was made smaller, and floats over all CPUs.

Right: 4-15,20-31 for its vCPUs.
"""

from dataclasses import replace

from support.hosts import cpus, guest, interleaved, snapshot

from pinner.model.guest.guest import NovaIdentity

SHARED, OUTSIDE = "4-15,20-31", "0-3,16-19"
NOVA = NovaIdentity("i-1", "p-1", "u-1", "m1.small")
HOST = snapshot(interleaved(16), [guest(1, 4, cpus("0-31"), nova=NOVA)], shared=cpus(SHARED))
INSIDE = replace(HOST, guests=(guest(1, 4, cpus(SHARED), nova=NOVA),))
OTHER = replace(HOST, guests=(guest(1, 4, cpus("0-31")),))
"""Not Nova's guest: the set is not for it."""
PINNED = guest(2, 1, cpus("0-3"), pins=["12"], nova=NOVA, dedicated=True)
ON_DEDICATED = replace(HOST, guests=(*HOST.guests, PINNED), shared=cpus("4-11,20-27"), dedicated=cpus("12-15,28-31"))
"""g1 may also run on CPU 12, which guest g2 has for itself."""
