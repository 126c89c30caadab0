"""Affinities set in the real kernel: on the tests' own processes, and on a kernel thread that cannot be moved."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from support.system import another_user
from support.system.kernel import THREADS, allowed, cpuset, masks, process, started

from pinner.host.kernel import affinity
from pinner.model.change import ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone, NotPermitted

ONLINE = sorted(os.sched_getaffinity(0))


def test_one_thread_of_a_process_is_read_and_pinned():
    with process(THREADS.format(count=3)) as pid:
        before = masks(pid)
        assert len(before) == 3
        last = max(before)
        found = affinity.mask(last)
        assert (found.tid, str(found.cpus)) == (last, before[last])
        affinity.set_affinity(ThreadMask(last, found.started, CpuSet.of(ONLINE[:1])))
        assert masks(pid) == before | {last: str(ONLINE[0])}


@pytest.mark.fault(10)
@pytest.mark.needs("two_cpus")
@pytest.mark.parametrize("ticks", [-1, 1], ids=["since-then", "in-another-boot"])
def test_a_reused_id_is_not_touched(ticks):
    with process(THREADS.format(count=1)) as pid:
        before = masks(pid)
        with pytest.raises(Gone):
            affinity.set_affinity(ThreadMask(pid, started(pid) + ticks, CpuSet.of(ONLINE[:1])))
        assert masks(pid) == before


@pytest.mark.needs("two_cpus")
def test_a_mask_that_is_another_one_by_now_stays():
    with process(THREADS.format(count=1)) as pid:
        before, wanted = affinity.mask(pid), ThreadMask(pid, started(pid), CpuSet.of(ONLINE[:1]))
        assert not affinity.set_affinity(wanted, CpuSet.of(ONLINE[1:]))
        assert affinity.mask(pid) == before
        assert affinity.set_affinity(wanted, before.cpus)
        assert affinity.mask(pid) == wanted


def test_a_thread_that_has_ended_is_gone():
    with process(THREADS.format(count=1)) as pid:
        start_time = started(pid)
    with pytest.raises(Gone):
        affinity.set_affinity(ThreadMask(pid, start_time, CpuSet.of(ONLINE[:1])))
    with pytest.raises(Gone):
        affinity.mask(pid)


@pytest.mark.needs("kernel_threads")
def test_masks_leave_out_per_cpu_threads():
    (per_cpu,) = (int(folder.name) for folder in Path("/proc").glob("[0-9]*") if comm(folder) == "migration/0")
    assert affinity.mask(per_cpu).cpus == CpuSet.of([0])
    with pytest.raises(Gone):
        affinity.masks(per_cpu)


def comm(folder):
    with suppress(OSError):
        return (folder / "comm").read_text().strip()


@pytest.mark.fault(7)
@pytest.mark.fault(11)
@pytest.mark.parametrize("beyond", [1023, 1024, 4096, 8191])
def test_a_mask_is_granted_whole_or_not_at_all(beyond: int):
    """Python accepts any CPU number; the kernel silently drops CPUs that the host lacks."""
    with process(THREADS.format(count=1)) as pid:
        before = allowed(pid)
        requested = CpuSet.of([ONLINE[0], beyond])
        with pytest.raises(ApplyFailed) as error:
            affinity.set_affinity(ThreadMask(pid, started(pid), requested))
        assert error.value.details["asked"] == str(requested)
        assert error.value.details["granted"] == str(ONLINE[0])
        assert allowed(pid) == before


@pytest.mark.fault(7)
@pytest.mark.needs("cpusets", "two_cpus")
@pytest.mark.parametrize("requested", [CpuSet.of(ONLINE[:2]), CpuSet.of(ONLINE[1:2])], ids=["reduced", "refused"])
def test_the_error_names_the_cpuset_that_confines_a_thread(requested: CpuSet):
    with process(THREADS.format(count=1)) as pid, cpuset(str(ONLINE[0]), pid) as path:
        with pytest.raises(ApplyFailed, match=f": cgroup {path.lstrip('/')} allows CPUs {ONLINE[0]}$"):
            affinity.set_affinity(ThreadMask(pid, started(pid), requested))
        assert allowed(pid) == str(ONLINE[0])


@pytest.mark.needs("root", "kernel_threads")
def test_the_error_names_a_per_cpu_kernel_thread():
    bound = next(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _is_bound(path))
    with pytest.raises(ApplyFailed, match="is bound to its CPU"):
        affinity.set_affinity(ThreadMask(bound, started(bound), CpuSet.of([8191, ONLINE[-1] + 1])))


@pytest.mark.fault(48)
@pytest.mark.needs("realtime", "two_cpus")
def test_a_thread_of_sched_deadline_is_refused_with_the_reason():
    """Such a refusal must fail alone: an error of another type undoes the whole run."""
    times = [f"--sched-{name}={value}" for name, value in (("runtime", 10**6), ("deadline", 10**7), ("period", 10**7))]
    with process(THREADS.format(count=1)) as pid:
        if subprocess.run(
            ["chrt", "-d", *times, "-p", "0", str(pid)], stderr=subprocess.DEVNULL, check=False
        ).returncode:
            pytest.skip("this machine has no SCHED_DEADLINE")
        before = allowed(pid)
        with pytest.raises(ApplyFailed, match=rf"^thread {pid}: .*CPUs {ONLINE[0]}: .* SCHED_DEADLINE keeps its CPUs"):
            affinity.set_affinity(ThreadMask(pid, started(pid), CpuSet.of(ONLINE[:1])))
        assert allowed(pid) == before


def _is_bound(comm: Path) -> bool:
    try:
        return comm.read_text().startswith("cpuhp/")
    except OSError:
        return False


@pytest.mark.needs("root")
@pytest.mark.needs("two_cpus")
def test_a_process_without_root_cannot_pin_the_thread_of_another_user():
    """A child process gives up root and then tries."""
    with process(THREADS.format(count=1)) as pid:
        imports = (
            "from pinner.host.kernel import affinity\n"
            "from pinner.model.cpuset import CpuSet\n"
            "from pinner.model.errors import NotPermitted\n"
            "from pinner.model.change import ThreadMask\n"
        )
        done = another_user.run(
            imports,
            f"try: affinity.set_affinity(ThreadMask({pid}, {started(pid)}, CpuSet.of([{ONLINE[0]}])))\n"
            "except NotPermitted as error: print(error.code)\n",
        )
        assert done.stdout == f"{NotPermitted.code}\n", done.stderr
