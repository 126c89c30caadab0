"""Hosts on which a plan makes the objective worse."""

from dataclasses import replace

from support.hosts import cpus, guest, plain, process, snapshot, topology, with_classes

from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Process
from pinner.model.snapshot import Snapshot

BOTH = cpus("0-1")


def _starved(pid: int) -> Process:
    """A process that gets 7.5 % of a CPU and wants a whole one: it waits thirteen times as long as it runs."""
    made = process(pid, 7.5, "0-1", name="build")
    threads = tuple(replace(thread, run_ns=1_000, delay_ns=13_000) for thread in made.threads)
    return replace(made, threads=threads)


TWO_BUSY_CPUS = snapshot(
    plain(2),
    [guest(1, 1, BOTH, iothreads=1, vhost_threads=1)],
    [_starved(300 + 10 * number) for number in range(16)],
)
"""Two CPUs, a guest of one vCPU, an emulator thread, an iothread and a vhost thread, and 16 busy processes that want a
CPU each (load x 14 = 1.05, at most 1) and get 1.2 together.

As it is, every thread may use both CPUs, and each CPU has 0.5 vCPUs, 1.5 of QEMU's threads and 0.6 of busy load:
    host_overload 16 - 2 = 14, vcpu_vs_host 2 x 0.5 x 0.6 = 0.6, vcpu_vs_emulator 2 x 0.5 x 1.5 = 1.5,
    emulator_vs_host 2 x 1 x 0.6 = 1.2, overcommit 0: together 17.3
With shared-pool the processes are on CPU 0, the guest on CPU 1:
    host_overload 16 - 1 = 15, vcpu_vs_emulator 1 x 3 = 3: together 18
Two cores leave no other sizes, and numa-local places the same. So the right answer is to leave the host as it is."""

STARVED_DAEMON = snapshot(
    plain(32),
    [guest(1, 4, cpus("0-31"))],
    [
        replace(
            process(300, 360.0, *["0-31"] * 8),
            threads=tuple(
                replace(thread, run_ns=1_000, delay_ns=2_000) for thread in process(300, 360.0, *["0-31"] * 8).threads
            ),
        )
    ],
)
"""32 CPUs, a guest of four vCPUs, and a daemon of eight threads that gets 3.6 CPUs and wants 8. Four housekeeping CPUs
are not full by the measured load (3.6 < 0.95 x 4), but 8 - 4 = 4 CPUs of work would wait, where now nothing of the
daemon has to (8 < 32). With two steps, housekeeping 0-7 and emulators 8-11, nothing waits, and no role is on another's
CPUs: the right sets."""


def _demo(load: float) -> Snapshot:
    daemon = process(900, load, *["0-1"] * 4)
    threads = tuple(replace(thread, run_ns=1_000, delay_ns=2_000) for thread in daemon.threads)
    small = [guest(number, 2, BOTH, iothreads=1, vhost_threads=1) for number in (1, 2, 3)]
    return snapshot(plain(2), [*small, guest(4, 1, BOTH)], [replace(daemon, threads=threads)])


DEMO = [_demo(load) for load in (60.0, 120.0, 190.0)]
"""The guests of `make demo` on two CPUs, and its daemon of four threads, which wait twice as long as they run. Now each
CPU has 3.5 vCPUs and 5 of QEMU's threads: vcpu_vs_emulator 10, vcpu_vs_host and emulator_vs_host the daemon's load h
each, overcommit 5. As planned: vcpu_vs_emulator 10, overcommit 6, and at most 1 more of host_overload; 1 + 1 - 2h < 0
for h > 1, and without overcommit 1 - 2h < 0 for h > 0.5. Measured, the plan is better: it is not refused."""


def documented(load: float) -> Snapshot:
    """The documented host: two guests of 16 vCPUs on 32 CPUs, each vCPU with this part of a CPU, and busy processes.

    With ``auto`` it gets 0-3, 4-7 and 8-31 at any load. 32 vCPUs on 24 CPUs: overcommit rises by 8, and vcpu_overload
    to 32 x load - 24, from 0.75 on. Both come from the 8 CPUs that the vCPUs give up, which is the cure."""
    top = plain(32)
    guests = [guest(number, 16, top.online, iothreads=1, vhost_threads=1) for number in (1, 2)]
    return snapshot(
        top,
        guests,
        [process(300, 40.0, "0-31", "0-31"), *(_vcpus(900 + number, each, load) for number, each in enumerate(guests))],
    )


def _vcpus(pid: int, of: Guest, load: float) -> Process:
    threads = tuple(replace(vcpu.thread, load=100 * load) for vcpu in of.vcpus if vcpu.thread)
    qemu = process(pid, 100 * load * len(threads), "0-31", name="qemu")
    return replace(qemu, threads=threads, immovable_reason="guest")


P_AND_E = topology({0: [*([cpu, cpu + 1] for cpu in range(0, 16, 2)), *([cpu] for cpu in range(16, 32))]})
BETWEEN_GUESTS = snapshot(
    with_classes(P_AND_E, "0-15", "16-31"),
    [
        guest(1, 14, cpus("4-19"), restriction=cpus("4-19")),
        guest(2, 4, cpus("12-19"), restriction=cpus("12-19")),
    ],
)
"""i9-13900K. Housekeeping and emulators get 20-27, of which no vCPU uses one. The second guest gets 12-15, cores of one
class. Now 12-19 have 14/16 + 4/8 vCPUs each: overcommit 8 x 0.375 = 3. As planned 12-15 have 14/16 + 1 each: 4 x 0.875
= 3.5. That half CPU comes from no role: it counts, and so tier 6 gets worse by 0.4."""

BESIDE_NOVA = snapshot(plain(32), [guest(number, 12, cpus("0-31")) for number in (1, 2)], dedicated=cpus("16-31"))
"""Nova dedicates CPUs 16-31, over which both guests float. They give them up: 24 vCPUs on 8-15, overcommit 16."""

SMALL_SETS = snapshot(
    plain(32),
    [guest(1, 20, cpus("0-31"))],
    [
        process(300, 40.0, "0-31"),
        process(400, 1600.0, *["8-31"] * 24, name="build", reasons=["restricted"] * 24, recent=True),
    ],
)
"""Build jobs that pinned themselves to 8-31 a moment ago, with 16 CPUs of load. Now a CPU has 20/32 vCPUs:
    vcpu_vs_host 0.625 x (16 + 0.4) = 10.25, vcpu_vs_emulator 0.625, emulator_vs_host 16.4 / 32 = 0.51: together 11.39
With 0-3, 4-7 and 8-31: vcpu_vs_host 20/24 x 16 = 13.33. With a core for each set, 2-31 are left: 20/30 x 16 = 10.67."""
