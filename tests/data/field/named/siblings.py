"""Guest g1 has CPU 4 for itself, whose sibling is CPU 20.

Right: g2's emulator threads on 20-21 and a busy daemon on 20 take half of g1's core. 21 alone does not.
"""

from dataclasses import replace

from support.hosts import cpus, guest, interleaved, process, snapshot

from pinner.model.machine.process import CpuLimit

PINNED = guest(1, 1, cpus("2"), pins=["4"])
EMULATOR = snapshot(interleaved(16), [PINNED, guest(2, 1, cpus("20-21"), pins=["6"])])
DAEMON = snapshot(interleaved(16), [PINNED], [process(900, 60.0, "20", name="ceph-osd")])
SERVICES = snapshot(interleaved(16), [PINNED], baseline=cpus("0-3,16-20"))
"""CPUAffinity of systemd has CPU 20."""
APART = snapshot(
    interleaved(16),
    [PINNED, guest(2, 1, cpus("21"), pins=["6"])],
    [process(900, 60.0, "21", name="ceph-osd")],
    baseline=cpus("0-3,16-19"),
)


def _limited(number: int, emulator: str, pin: str):
    limited = guest(number, 1, cpus(emulator), pins=[pin], cpu_limits=(CpuLimit("machine.slice", cpus("4-11,20-27")),))
    vcpu = limited.vcpus[0]
    return replace(limited, vcpus=(replace(vcpu, thread=replace(vcpu.thread, realtime="fifo")),))


LIMITED = snapshot(interleaved(16), [_limited(1, "4", "4"), _limited(2, "4,20-21", "6")])
"""g1's emulator is on its own real-time vCPU's CPU, g2's on g1's core, and machine.slice allows 4-11,20-27."""
