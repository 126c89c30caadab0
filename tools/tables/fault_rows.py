"""The faults that affect CPU pinning, and pinner's promise for each: the rows of docs/faults.md.

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
    Row(1, "pin to an offline CPU", "refused beforehand; in a race, the prior mask is written again", "L"),
    Row(2, "cgroup v1: a pinned CPU goes offline and online", "the parent cpuset is named, no partial apply", "L"),
    Row(3, "cgroup v2: a pinned CPU goes offline and online", "drift is reported, no false rollback", "L"),
    Row(4, "a slice is confined (AllowedCPUs), libvirt still shows the pin", "drift shown with its cause", "L"),
    Row(5, "systemd daemon-reload", "reconciled; a unit's own cpuset is never written", "L"),
    Row(6, "the first guest starts on kernel 6.1: every affinity is reset", "set again and journaled", "L"),
    Row(7, "an affinity outside the process's cpuset", "the mask read back equals the request, or an error", "P L"),
    Row(8, "threads are created during pinning", "repeated until all are pinned, bounded", "P"),
    Row(9, "a process with many threads", "every thread is checked", "P"),
    Row(10, "a reused process id", "identified by start time too: the process is gone", "P"),
    Row(11, "more than 1,024 CPUs", "masks are exact up to 8,192", "P"),
    Row(12, "a vCPU or iothread is plugged in after the plan", "the gap is reported, a new plan is requested", "P"),
    Row(13, "Nova 33 and later give guests an iothread", "iothreads are in every plan", "P"),
    Row(14, "vhost and kvm-pit threads, which libvirt cannot pin", "placed with their guest", "K"),
    Row(
        15,
        "the plan overlaps CPUs that Nova dedicates; a resize at the same time",
        "409; Nova's CPUs are read again before an apply",
        "P",
    ),
    Row(16, "a guest is destroyed or migrated during an apply", "its change is gone, the others continue", "P"),
    Row(17, "a save blocks other jobs of the guest", "busy, can be tried again, bounded in time", "P"),
    Row(18, "QEMU is stopped", "other guests are unaffected", "P"),
    Row(19, "libvirtd is killed during a call", "unknown, read back, resolved", "P"),
    Row(20, "a cpuset is changed without libvirt", "reported as drift, never treated as pinner's own", "P L"),
    Row(21, "QEMU is killed", "gone", "P"),
    Row(22, "a paused guest, a transient definition, a read-only connection", "clear codes", "P"),
    Row(23, "masks of absent CPUs", "refused first, naming the CPU", "P"),
    Row(24, "pinning an unplugged vCPU", "shown as deferred", "P"),
    Row(25, "rolling back to not pinned", "the effective mask equals the prior one", "P"),
    Row(
        26,
        "stop and start lose live pins; reset and save keep them",
        "reported as lapsed, placed again by the policy",
        "P",
    ),
    Row(27, "another program pins threads, too", "a stale plan is refused, the other change is reported", "P"),
    Row(28, "a floating pool on isolated CPUs", "refused", "L"),
    Row(29, "two tasks on a nohz_full CPU", "a warning in the preview", "L"),
    Row(30, "emulator threads on isolated CPUs", "refused unless forced", "L"),
    Row(31, "vCPUs are moved, memory is not", "the preview shows the remote MiB", "L"),
    Row(32, "the agent is killed (SIGKILL) at every journal point", "completed or undone, idempotent", "P"),
    Row(33, "the disk is full or the database is lost during an apply", "stops before the next write", "P"),
    Row(34, "the broker is down", "an error in bounded time, no blind retry", "P"),
    Row(35, "poison, duplicate and reordered notifications", "quarantined, idempotent", "P"),
    Row(
        36,
        "a controller stops, and goes on after another one took over (there is no lease)",
        "the agent's journal is the fence: it refuses the late begin of a closed run, and no end is stored twice",
        "P",
    ),
    Row(
        37,
        "an audit row is edited, or the last rows are deleted",
        "verify names the row; the head can be stored elsewhere",
        "P",
    ),
    Row(38, "hostile XML, hostile names, deep JSON", "400 or 413, nothing applied", "P"),
    Row(39, "an application crash after authentication; bad credentials", "500, 401, 403; no secret is shown", "P"),
    Row(40, "sparse, memory-less and CPU-less nodes", "a correct inventory", "P L"),
    Row(
        41,
        "the API's user sends the agent targets and messages of its own making",
        "the agent changes what its own inventory and rules allow, nothing else; refused and audited",
        "P",
    ),
    Row(
        42,
        "the API's user swaps a file that root opens (database, socket) for a symlink",
        "root opens nothing in a folder that the API's user can write",
        "P",
    ),
    Row(
        43,
        "another local user calls the API on loopback",
        "refused without a credential; the default is a Unix socket for a group",
        "P",
    ),
    Row(
        44,
        "a weak, revoked, guessed or wrong-role token",
        "refused, audited, slowed down; revoked without a restart",
        "P",
    ),
    Row(
        45,
        "a list of 20,000 CPU ranges, a header of 150 MB, 200 slow heads, 20 stalled bodies, 300 connections at once, "
        "16 samples of five minutes",
        "bounded cost; /healthcheck answers within 1 s meanwhile",
        "P",
    ),
    Row(
        46,
        "the API's user deletes or rewrites the audit trail, or calls the agent alone",
        "verify names what was cut, forged or never reported; the agent's trail is out of that user's reach",
        "P",
    ),
    Row(
        47,
        "one guest of many hangs under `enforce`, or during `pinner apply`",
        "the others are placed in the first reconcile and stay; the one backs off, also over a restart",
        "P",
    ),
    Row(
        48,
        "a process resets its own affinity in a loop",
        "its change alone is given up, with the true cause; the others hold",
        "P",
    ),
    Row(
        49,
        "idle tasksets of an unprivileged user on every CPU",
        "no set changes, the plan names them; with load they never shrink a role below its minimum, with privilege the "
        "plan is blocked with their names",
        "P",
    ),
    Row(
        50,
        "a placed process forks, then the run is rolled back",
        "children get back what they would have had; none is taken for a claim later",
        "P",
    ),
    Row(
        51,
        "1,600 % of daemons for 4 housekeeping CPUs; a real-time spinner among them",
        "the sets grow, the plan says overload, a policy applies no plan that makes the objective worse; real-time "
        "processes are not moved",
        "P",
    ),
    Row(52, "a guest whose operator pinned it in its own definition", "reported, left alone unless asked for", "P"),
    Row(
        53,
        "two plans for the same free CPUs, made before either is applied",
        "the second is stale, and the error names the guest and its CPUs",
        "P",
    ),
    Row(
        54, "a second `pinner serve` on the same state folder or sockets", "refused, with the process of the first", "P"
    ),
    Row(
        55,
        "the agent stalls for a minute before its first journal write; the clock steps by an hour or a day either way; "
        "the host is restarted",
        "the trail has what happened, once; no operator's placement is reverted, no back-off of a day; no thread of "
        "this boot passes for one of an earlier boot",
        "P",
    ),
    Row(
        56,
        "no file descriptor in accept, an exception in any thread, a libvirtd that hangs for long, a stopped agent",
        "no silent death: it recovers, or the process ends non-zero; readiness fails; threads are bounded",
        "P",
    ),
    Row(
        57,
        "a year of mends: 100,000 runs, 1,000,000 audit records",
        "disk bounded by retention; an observation and a page cost what they cost on the first day",
        "P",
    ),
    Row(58, "a damaged journal or database file", "named with its repair; reading the host goes on", "P"),
    Row(
        59,
        "everything is taken off a host after months of `enforce`",
        "one command, every thread has what it had before the first run, nothing is left",
        "P",
    ),
    Row(
        60,
        "eight writers on each database; a text of 1 MiB; the database restarts",
        "no lost or doubled audit record, no 500; an action and its record are one transaction",
        "P",
    ),
    Row(
        61,
        "requests that two HTTP parsers read differently: `Content-Length : 3`, two lengths, bytes after a 411",
        "400, and the connection is closed",
        "P",
    ),
    Row(
        62,
        "pinner's Python or checkout lies where the API's user may not read",
        "it works, or the start names the folder and the remedy",
        "P",
    ),
    Row(
        63,
        "a partition is made or changed before Linux 7.0, so the kernel overwrites the masks of kswapd and kcompactd",
        "the masks are journaled with the partition, and given back by its undo, also after its guest has ended",
        "P",
    ),
    Row(
        64,
        "a real-time vCPU on the CPUs of its QEMU's own threads",
        "the emulator is moved first; the plan warns where both share CPUs",
        "K",
    ),
    Row(
        65,
        "a migration starts eight threads in QEMU; vhost threads appear late",
        "in the next observation at the latest they are placed, or drift of a policy that does not enforce",
        "P",
    ),
    Row(
        66,
        "a request with a body that offers an HTTP upgrade, or ends early for the parser in another way",
        "the body is read, or the request is refused; it is never carried out with the defaults",
        "P",
    ),
    Row(
        67,
        "the first change of a run is of a process that ended between plan and apply; an event that is reported twice",
        "one record in both trails; verify says intact",
        "P",
    ),
    Row(
        68,
        "a call of the API's user to the agent with a span of 9,999 years, the largest number, the longest list",
        "refused by the agent's own bound within 1 s and 64 MiB; the work ends with its caller",
        "P",
    ),
    Row(
        69,
        "accepted calls that do nothing, again and again; 64 mute connections of the API's user",
        "disk and places are bounded; root is answered",
        "P",
    ),
    Row(70, "the disk is full, and nobody sees it", "/healthcheck/ready says so before the next run fails", "P"),
    Row(
        71,
        "nova.conf cannot be read once; a nova-compute that has ended",
        "it is read again; no plan is blocked by an error of the past",
        "P",
    ),
    Row(
        72,
        "an operator pins between two runs that persist the same CPUs; a policy is deleted during an apply; a second "
        "server during `--all`",
        "the operator's pin survives each rollback; each run ends in a state with a name",
        "P",
    ),
    Row(73, "500 guest starts an hour for a day", "the memory of agent and API is flat after the first hour", "P"),
    Row(
        76,
        "pins of pinner are in a guest's definition, after --persist or at the destination of a migration",
        "they are known as pinner's by the guest's metadata: neither Nova's nor an operator's, and the guest is placed",
        "P",
    ),
    Row(
        77,
        "a guest becomes excluded or dedicated after pinner has placed it",
        "it keeps its place, and pinner's own pins claim no CPUs",
        "P",
    ),
)
