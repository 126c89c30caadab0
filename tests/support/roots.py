"""Hand-made root folders with a few files of /proc and /sys."""

from pathlib import Path

from pinner.host.kernel.procfs import PF_KTHREAD, PF_NO_SETAFFINITY

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def two_nodes(root: Path, more: dict[str, str | bytes] | None = None) -> Path:
    """CPUs 0-7 with interleaved nodes 0 and 2, siblings N and N+4, CPU 7 offline."""
    files: dict[str, str | bytes] = {
        f"{CPU}/present": "0-7\n",
        f"{CPU}/online": "0-6\n",
        f"{NODE}/node0/cpulist": "0,2,4,6\n",
        f"{NODE}/node2/cpulist": "1,3,5\n",
        "proc/sys/kernel/osrelease": "6.1.0-13-amd64\n",
        "proc/cmdline": "quiet isolcpus=3\n",
    }
    for node, distance in ((0, "10 21"), (2, "21 10")):
        files[f"{NODE}/node{node}/distance"] = f"{distance}\n"
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 2048 kB\nNode {node} MemFree: 1024 kB\n"
    for cpu in range(7):
        pair = sorted({cpu % 4, cpu % 4 + 4} - {7})
        files |= {
            f"{CPU}/cpu{cpu}/topology/core_id": f"{cpu % 4 // 2}\n",
            f"{CPU}/cpu{cpu}/topology/physical_package_id": f"{cpu % 2}\n",
            f"{CPU}/cpu{cpu}/topology/die_id": "-1\n",
            f"{CPU}/cpu{cpu}/topology/core_cpus_list": ",".join(map(str, pair)) + "\n",
        }
    files[f"{CPU}/cpu7/online"] = "0\n"
    return write(root, files | (more or {}))


def stat(
    pid: int,
    name: bytes = b"busy",
    ticks: int = 0,
    started: int = 100,
    flags: int = 0,
    priority: int = 20,
    policy: int = 0,
) -> bytes:
    """A line of 52 fields, as Linux writes it since 3.5."""
    begin = b"%d (%s) S 1 1 1 0 -1 %d 0 0 0 0 %d 0 0 0 %d 0 1 0 %d" % (pid, name, flags, ticks, priority, started)
    return begin + b" 0" * 18 + b" %d" % policy + b" 0" * 11 + b"\n"


def process(
    root: Path,
    pid: int,
    *,
    name: bytes = b"busy",
    ticks: int = 0,
    started: int = 100,
    flags: int = 0,
    cpus: str = "0-6",
    command: bytes = b"/usr/bin/busy\0-v\0",
    cgroup: str = "0::/system.slice/busy.service\n",
    threads: tuple[int, ...] = (),
    users: str = "1001 1001 1001 1001",
    capabilities: int = 0,
) -> Path:
    """A process with a main thread and ``threads``; each thread has ``ticks``."""
    home = f"proc/{pid}"
    rights = f"Uid:\t{users}\nCapEff:\t{capabilities:016x}\n"
    status = f"Name:\tx\n{rights}Cpus_allowed:\tff\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
    files: dict[str, str | bytes] = {f"{home}/cgroup": cgroup, f"{home}/cmdline": command}
    for folder, id_ in ((home, pid), *((f"{home}/task/{tid}", tid) for tid in (pid, *threads))):
        files |= {
            f"{folder}/stat": stat(id_, name, ticks, started, flags),
            f"{folder}/status": status,
            f"{folder}/schedstat": "5000 70 3\n",
        }
    return write(root, files)


def kernel_thread(root: Path, pid: int, name: bytes, *, bound: bool = False, cpus: str = "0-6") -> Path:
    flags = PF_KTHREAD | (PF_NO_SETAFFINITY if bound else 0)
    return process(root, pid, name=name, flags=flags, cpus=cpus, command=b"", cgroup="0::/\n")
