"""A guest with <vcpu cpuset='0'> on a host of two CPUs."""

from support.hosts import cpus, guest, plain, process, snapshot

HOST = snapshot(plain(2), [guest(1, 1, cpus("0"), restriction=cpus("0"))], [process(300, 40.0, "0-1")])

# Housekeeping takes the CPU that the guest cannot use; emulators and vCPUs share the other one.
HOUSEKEEPING, REST = cpus("1"), cpus("0")
