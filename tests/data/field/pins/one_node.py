"""A guest with the CPUs of node 1 as <vcpu cpuset> (OpenNebula's NODE policy), and its memory there: 2 nodes of 16
CPUs."""

from support.hosts import cpus, guest, plain, process, snapshot

NODE = cpus("16-31")

HOST = snapshot(
    plain(32, nodes=2),
    [guest(1, 8, NODE, restriction=NODE, memory={1: 1 << 21}, iothreads=1)],
    [process(300, 40.0, "0-31")],
)

# Two CPUs of each node for each role: 0-1 and 16-17 housekeeping, 2-3 and 18-19 emulators. Of these node 1 has:
VCPUS, EMULATOR = cpus("20-31"), cpus("18-19")
