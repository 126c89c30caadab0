"""A guest whose operator pinned 4 vCPUs one to one to 8-11, and QEMU's own threads to CPU 5 (emulatorpin), on a host of
32 CPUs; and one with vCPUs on 2-7 and the emulator on 0, of 8 CPUs. Another guest floats."""

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import OperatorPin
from pinner.model.snapshot import Snapshot


def _host(size: int, vcpus: str, emulator: str, iothread: str = "") -> Snapshot:
    every, each = f"0-{size - 1}", [CpuSet.one(cpu) for cpu in cpus(vcpus)]
    pins = [OperatorPin("vcpu", vcpu, cpu, "definition") for vcpu, cpu in enumerate(each)]
    pins.append(OperatorPin("emulator", None, cpus(emulator), "definition"))
    pins += [OperatorPin("iothread", 1, cpus(iothread), "definition")] if iothread else []
    owner = guest(1, len(each), cpus(every), pins=list(map(str, each)), operator_pins=tuple(pins))
    return snapshot(plain(size), [owner, guest(2, 2, cpus(every))], [process(300, 40.0, every)])


HOST, SMALL = _host(32, "8-11", "5"), _host(8, "2-7", "0")
WITH_IOTHREAD, WIDE = _host(32, "8-11", "5", "12"), _host(32, "8-11", "4-5")
LOW, FULL = _host(32, "8-11", "0-1", "2-3"), _host(8, "4-7", "0-3")

# No set has 5: an eighth of 32 CPUs is 4 of the others for each automatic set. An iothread's CPU counts alike.
OWNED = cpus("5,8-11")
HOUSEKEEPING, EMULATOR, VCPU = cpus("0-3"), cpus("4,6-7,12"), cpus("13-31")
BESIDE_IOTHREAD = cpus("4,6-7,13")

# All roles share 0 and 1: housekeeping and one for the emulators and vCPUs. Without 0 there would be only one CPU.
WHY_SMALL = (
    "CPUs 0 are allocated although guest g1's emulator (CPUs 0) are restricted to them: "
    "otherwise a role would have fewer cores of a node than its minimum (1)"
)

# Host daemons take the CPUs of an emulator and an iothread, of two cores each, last; the other guest's emulator may
# share them.
BESIDE_LOW = cpus("4-7"), cpus("0-3"), cpus("12-31")
WHY_LOW = "; it owns CPUs 8-11; housekeeping takes CPUs 0-3 of QEMU's own threads last; "
# No other CPU is left.
WHY_FULL = "housekeeping has CPUs 0, to which an operator pinned QEMU's own threads of guest g1"
