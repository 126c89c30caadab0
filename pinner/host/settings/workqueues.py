"""The kernel's CPUs for unbound work (core-api/workqueue.rst)."""

from pathlib import Path

from pinner.host.kernel import files
from pinner.host.kernel.kernel import UNBOUND
from pinner.host.settings.row import HostRow
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted

_WHAT = "the kernel's work queues"


def unbound(root: Path) -> CpuSet:
    cpus = files.cpu_mask(root / UNBOUND)
    if cpus is None:
        raise Gone(_WHAT)
    return cpus


def set_unbound(root: Path, cpus: CpuSet) -> None:
    try:
        (root / UNBOUND).write_text(cpus.mask())
    except FileNotFoundError:
        raise Gone(_WHAT) from None
    except PermissionError:
        raise NotPermitted(_WHAT, "writing it needs root") from None
    except OSError as error:
        raise ApplyFailed(_WHAT, f"the kernel refuses the value: {error.strerror}") from None
    if (now := unbound(root)) != cpus:
        raise ApplyFailed("workqueue", f"asked for CPUs {cpus}, the kernel says {now}", granted=str(now))


ROW = HostRow(
    lambda access, _target: unbound(access.root),
    lambda access, _target, cpus: set_unbound(access.root, cpus),
)
