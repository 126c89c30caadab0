"""A guest that libvirt does not know runs on the CPUs 4-11 of guest g1.

Right: nothing to paste where its vCPUs have pins of their own, or where its cgroup allows no CPU of the host.
"""

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.machine.process import CpuLimit

GUEST = guest(1, 8, cpus("2-3"), pins=["4-11"] * 8)


def foreign(*masks: str, **more):
    other = process(5000, 1.0, *masks, name="qemu-kvm", immovable_reason="guest", **more)
    return snapshot(plain(16), [GUEST], [other])


PINNED = foreign(*map(str, range(4, 12)))
LIMITED = foreign("4-7", "4-7", cpu_limits=(CpuLimit("kata.slice", cpus("4-7")),))
FREE = foreign("4-11", "4-11")
