"""Hosts whose cgroups keep the guests on some of the CPUs."""

from support.hosts import cpus, guest, interleaved, plain, process, snapshot

from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding
from pinner.model.machine.process import CpuLimit

PAIRS = interleaved(12, 1)
"""One node, 12 cores of two threads: core c is CPUs c and c + 12."""
SLICE = CpuLimit("machine.slice", cpus("3-11,15-23"))
"""systemctl set-property machine.slice AllowedCPUs=3-11,15-23. Cores 0-2 belong to Ceph."""


def in_slice(*limits: CpuLimit, number: int = 1, vcpus: int = 4, top=PAIRS, **more):
    """A guest that starts on all CPUs that its cgroups allow."""
    return guest(number, vcpus, limits[-1].cpus if limits else top.online, cpu_limits=limits, **more)


MACHINE_SLICE = snapshot(
    PAIRS,
    [in_slice(SLICE, number=number, iothreads=1, vhost_threads=1) for number in (1, 2)],
    [process(300, 40.0, "0-23")],
)
"""No guest's thread can leave 3-11,15-23. An eighth of 24 CPUs in whole cores is one core for each of the two sets:
housekeeping is the first core outside, 0,12; emulators the first one inside, 3,15; vCPUs the rest inside."""
MACHINE_SLICE_SETS = ("0,12", "3,15", "4-11,16-23")

WITH_CEPH = snapshot(
    PAIRS,
    MACHINE_SLICE.guests,
    [
        process(300, 40.0, "0-23"),
        *(
            process(400 + 10 * n, 90.0, "0-2,12-14", name="ceph-osd", reasons=["restricted"], reserves="configured")
            for n in range(3)
        ),
    ],
)
"""[host] affinity_owners names ceph-osd. Its CPUs are kept out of every set: housekeeping gets the first core that is
left, 3,15; then as above."""
WITH_CEPH_SETS = ("3,15", "4,16", "5-11,17-23")

TENANTS = tuple(
    CpuLimit(f"machine.slice/machine-{name}.slice", cpus(mask)) for name, mask in (("a", "4-7"), ("b", "8-11"))
)
TWO_SLICES = snapshot(
    plain(16), [in_slice(limit, number=number, vcpus=2) for number, limit in enumerate(TENANTS, start=1)]
)
"""16 cores of one thread, an eighth is 2: housekeeping is 0-1, outside both. Emulators get 4-5, the first two of the
CPUs of any guest. Slice b has none of these, so its first core, 8, is an emulator CPU, too."""
TWO_SLICES_SETS = ("0-1", "4-5,8", "6-7,9-11")
TWO_SLICES_PLACES = {"g1": ("4-5", "6-7"), "g2": ("8", "9-11")}
"""By guest: emulator, vCPUs."""

NOTHING_IN_COMMON = snapshot(
    plain(16, 2),
    [
        in_slice(
            CpuLimit("machine.slice", cpus("2-7")),
            vcpus=2,
            top=plain(16, 2),
            numa=GuestNuma(memory=MemoryBinding("strict", (1,))),
        )
    ],
)
"""The guest's memory is on node 1 (CPUs 8-15), its slice has CPUs of node 0 only: it has no CPU at all."""

TENANT = CpuLimit("machine.slice/machine-tenant.slice", cpus("0-3"))
WIDE = plain(32)
SLICE_BESIDE_FREE = snapshot(
    WIDE,
    [in_slice(TENANT, top=WIDE), in_slice(number=2, vcpus=8, top=WIDE)],
    [process(300, 40.0, "0-31")],
)
"""32 cores of one thread, an eighth is 4. The four vCPUs of g1 need the whole slice, so both sets begin outside:
housekeeping 4-7, emulators 8-11. The emulator of g1 cannot leave the slice and shares its first CPU with vCPUs."""
SLICE_BESIDE_FREE_SETS = ("4-7", "0,8-11", "0-3,12-31")

TWO_STEPS = snapshot(
    WIDE,
    [in_slice(CpuLimit("machine.slice", cpus("24-31")), number=number, top=WIDE) for number in (1, 2)],
    [process(300, 40.0, "0-31")],
)
"""All guests are in a slice of two steps. Housekeeping is outside, 0-3. Eight vCPUs need all CPUs of the slice, so
emulators get one core, 24, instead of a step of four."""
TWO_STEPS_SETS = ("0-3", "24", "25-31")
