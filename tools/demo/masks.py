"""The affinity of threads as the kernel shows it in /proc, compared with a plan and with an earlier reading."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from demo.output import Output

Masks = dict[int, str]
"""Cpus_allowed_list of every thread, by thread id."""


def read(pids: Iterable[int]) -> Masks:
    """The masks of all threads of these processes."""
    found = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # QEMU's worker threads come and go
                lines = (task / "status").read_text().splitlines()
                found[int(task.name)] = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))
    return found


def as_planned(plan: Any, owners: dict[int, str], roles: dict[int, str], output: Output) -> None:
    """Print how many threads have the mask of the plan; end the demo where one has another.

    ``owners`` has the role of each process. A thread that is not in ``roles`` has the role of its process.
    """
    output.detail("\nCheck in the kernel (Cpus_allowed_list of every thread in /proc)")
    wanted = {_role(want["target"]): want["cpus"] for want in plan["wanted"]}
    wrong = threads = 0
    for pid, owner in owners.items():
        for tid, mask in read([pid]).items():
            role = roles.get(tid, owner)
            word = "as planned" if mask == wanted[role] else "NOT AS PLANNED"
            wrong += mask != wanted[role]
            threads += 1
            output.detail(f"   thread {tid:>7}  {role:<28} {mask:<8} {word}")
    if wrong:
        raise SystemExit(f"{wrong} of {threads} threads are not as planned")
    output.line(f"   kernel: {threads} of {threads} threads have the mask of the plan")


def _role(target: Any) -> str:
    match target["kind"]:
        case "process":
            return f"process {target['owner']}"
        case "emulator" | "vhost":
            return f"{target['name']} emulator"
        case kind:
            return f"{target['name']} {kind} {target['part']}"


def as_before(before: Masks, after: Masks, output: Output) -> None:
    """Print how many threads have their prior mask; end the demo where one has another."""
    same = sum(after[tid] == mask for tid, mask in before.items() if tid in after)
    gone = len(before.keys() - after.keys())
    output.line(f"   kernel: {same} of {len(before)} threads have their prior mask ({gone} threads have ended)")
    if same + gone != len(before):
        raise SystemExit("the rollback was not exact")
