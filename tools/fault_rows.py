"""The faults that bite CPU pinning, and what is promised: the rows of docs/faults.md.

``where``: P on a plain machine with libvirtd and QEMU, L in the lab (NUMA nodes, cgroup v2), K with KVM hardware.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One fault."""

    number: int
    fault: str
    promise: str
    where: str


ROWS = (
    Row(1, "pin to an offline CPU", "refused beforehand; if raced, the prior mask is rewritten", "L"),
    Row(2, "cgroup v1: a pinned CPU goes offline and comes back", "the parent cpuset is named, no partial apply", "L"),
    Row(3, "cgroup v2: a pinned CPU goes offline and comes back", "a drift alarm, no false rollback", "L"),
    Row(4, "a slice is confined (AllowedCPUs), libvirt still shows the pin", "drift shown with its cause", "L"),
    Row(5, "systemd daemon-reload", "reconcile; a unit's own cpuset is never written", "L"),
    Row(6, "the first guest starts on kernel 6.1: every affinity is reset", "re-asserted and journaled", "L"),
    Row(7, "an affinity outside the process's cpuset", "readback equals the request, else an error", "P L"),
    Row(8, "threads are spawned while pinning", "looped until clean, bounded", "P"),
    Row(9, "a process with many threads", "every thread checked", "P"),
    Row(10, "a reused process id", "named by start time too: the process is gone", "P"),
    Row(11, "more than 1,024 CPUs", "masks exact up to 8,192", "P"),
    Row(12, "a vCPU or iothread is plugged in after the plan", "the gap is reported, a new plan asked for", "P"),
    Row(13, "Nova 33 and later give guests an iothread", "iothreads are in every plan", "P"),
    Row(14, "vhost and kvm-pit threads, which libvirt cannot pin", "placed with their guest", "K"),
    Row(15, "the plan overlaps CPUs that Nova dedicates; a resize races", "409; read again before applying", "P"),
    Row(16, "a guest is destroyed or migrated in the middle of an apply", "that change is gone, the others go on", "P"),
    Row(17, "a save holds the guest's job", "busy, to be tried again, bounded in time", "P"),
    Row(18, "QEMU is stopped", "other guests are unaffected", "P"),
    Row(19, "libvirtd is killed in the middle of a call", "unknown, read back, resolved", "P"),
    Row(20, "a cpuset is written behind libvirt's back", "drift found, never taken for ours", "P L"),
    Row(21, "QEMU is killed", "gone", "P"),
    Row(22, "a paused guest, a transient definition, a read-only connection", "clear codes", "P"),
    Row(23, "masks of CPUs that are not there", "refused first, naming the CPU", "P"),
    Row(24, "pinning an unplugged vCPU", "shown as deferred", "P"),
    Row(25, "rolling back to not pinned", "the effective mask equals the prior one", "P"),
    Row(26, "stop and start lose live pins; reset and save keep them", "lapsed, placed again by policy", "P"),
    Row(27, "two writers", "a stale plan is refused, a foreign change flagged", "P"),
    Row(28, "a floating pool on isolated CPUs", "refused", "L"),
    Row(29, "two tasks on a nohz_full CPU", "warned of in the preview", "L"),
    Row(30, "emulator threads on isolated CPUs", "refused unless forced", "L"),
    Row(31, "vCPUs moved, memory left behind", "the preview shows the remote MiB", "L"),
    Row(32, "the agent is killed (-9) at every journal point", "goes on or goes back, idempotent", "P"),
    Row(33, "disk full, database lost in the middle of an apply", "stops before the next write", "P"),
    Row(34, "the broker is down", "an error in bounded time, no blind retry", "P"),
    Row(35, "poison, duplicate and reordered notifications", "quarantined, idempotent", "P"),
    Row(36, "a controller loses its lease in the middle of an apply", "the old fencing number is rejected", "P"),
    Row(37, "an audit row is edited, or the tail cut off", "verify names the row; the head can be kept elsewhere", "P"),
    Row(38, "hostile XML, hostile names, deep JSON", "400 or 413, nothing applied", "P"),
    Row(39, "an application crash behind auth; bad credentials", "500, 401, 403; nothing leaks", "P"),
    Row(40, "sparse, memory-less and CPU-less nodes", "a correct inventory", "P L"),
)
