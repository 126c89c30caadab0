"""A guest whose 4 vCPUs float as FIFO tasks over 0-3 (<vcpusched scheduler='fifo'>), once by vcpupin and once by <vcpu
cpuset> alone, beside a guest that floats over all 16 CPUs."""

from dataclasses import replace

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import Guest, OperatorPin

OWNED = cpus("0-3")


def _fifo(each: Guest) -> Guest:
    return replace(each, vcpus=tuple(replace(v, thread=replace(v.thread, realtime="fifo")) for v in each.vcpus))


def _host(of_guest: Guest):
    return snapshot(plain(16), [_fifo(of_guest), guest(2, 4, cpus("0-15"))], [process(300, 40.0, "0-15")])


PINS = tuple(OperatorPin("vcpu", vcpu, OWNED, "definition") for vcpu in range(4))
PINNED = _host(guest(1, 4, cpus("0-15"), pins=["0-3"] * 4, operator_pins=PINS))
RESTRICTED = _host(guest(1, 4, OWNED, restriction=OWNED))

# No set has any of 0-3. An eighth of 16 CPUs is 2 of the others for each automatic set.
HOUSEKEEPING, EMULATOR, VCPU = cpus("4-5"), cpus("6-7"), cpus("8-15")
