"""The meter, on files as the kernel writes them and on this machine."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from pinner.host.kernel import procfs
from pinner.host.measure.meter import HostMeter, MeteredGuest, count_guest, count_host, guest_cgroups
from pinner.model.change import ThreadKey
from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable, NotPermitted, PinnerError
from pinner.model.outcome.measures import HOST, Counts, measured


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def stat(name: str, started: int = 77) -> str:
    return f"5 ({name}) S 1 5 5 0 -1 4194560 0 0 0 0 9 9 0 0 20 0 1 0 {started} 1 1 " + "0 " * 30


def test_a_guest_is_counted_by_role(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/5/stat": stat("qemu-system-x86"),
            "proc/5/task/5/stat": stat("qemu-system-x86"),
            "proc/5/task/5/schedstat": "100 200 3\n",
            "proc/5/task/6/stat": stat("CPU 0/KVM", 78),
            "proc/5/task/6/schedstat": "300 400 3\n",
            "proc/5/task/7/stat": stat("vhost-5", 79),
            "proc/5/task/7/schedstat": "500 600 3\n",
            "proc/90/schedstat": "700 800 3\n",
            "sys/class/net/vnet0/statistics/rx_dropped": "4\n",
            "sys/class/net/vnet0/statistics/tx_dropped": "6\n",
            "sys/class/net/vnet0/statistics/rx_packets": "70\n",
            "sys/class/net/vnet0/statistics/tx_packets": "90\n",
            "sys/class/net/vnet0/statistics/rx_bytes": "1000\n",
            "sys/class/net/vnet0/statistics/tx_bytes": "2000\n",
        },
    )
    counts = count_guest(root, MeteredGuest("u", "web-1", 5, 77, (ThreadKey(90, 80),), ("vnet0", "vnet9")))
    assert {key: (count.role, count.run_ns, count.wait_ns) for key, count in counts.threads.items()} == {
        ThreadKey(5, 77): ("emulator", 100, 200),
        ThreadKey(6, 78): ("vcpu", 300, 400),
        ThreadKey(7, 79): ("vhost", 500, 600),
        ThreadKey(90, 80): ("vhost", 700, 800),
    }
    assert counts.totals == {
        "drops": {"vnet0 rx_dropped": 4, "vnet0 tx_dropped": 6},
        "packets_in": {"vnet0": 90},
        "packets_out": {"vnet0": 70},
        "bits_in": {"vnet0": 16000},
        "bits_out": {"vnet0": 8000},
    }


def test_a_macvtap_counts_what_its_guest_receives_as_received(tmp_path):
    """The host transmits what a guest receives on a tap; a macvtap is the guest's own end."""
    root = write(
        tmp_path,
        {
            "proc/5/stat": stat("qemu-system-x86"),
            "sys/class/net/macvtap0/macvtap/tap9/dev": "238:1\n",
            "sys/class/net/macvtap0/statistics/rx_packets": "90\n",
            "sys/class/net/macvtap0/statistics/tx_packets": "70\n",
        },
    )
    counts = count_guest(root, MeteredGuest("u", "web-1", 5, 77, (), ("macvtap0",)))
    assert (counts.totals["packets_in"], counts.totals["packets_out"]) == ({"macvtap0": 90}, {"macvtap0": 70})


def test_a_process_id_that_is_used_again_is_another_guest(tmp_path):
    root = write(tmp_path, {"proc/5/stat": stat("bash", started=999)})
    with pytest.raises(Gone):
        count_guest(root, MeteredGuest("u", "web-1", 5, 77, (), ()))


def test_a_host_is_counted_from_the_kernel_s_files(tmp_path):
    root = write(
        tmp_path,
        {
            "proc/stat": "cpu  9 9 9 9 9 9 9 0 9 0\ncpu0 10 1 5 900 7 1 2 0 3 0\nintr 5\n",
            "proc/pressure/cpu": "some avg10=1.00 avg60=1.00 avg300=0.50 total=5000\nfull avg10=0 total=9\n",
            "proc/net/softnet_stat": "000000ff 0000000a 00000003 " + "00000000 " * 9 + "00000002 0 0\n",
            "sys/class/net/eth0/device/vendor": "0x8086\n",
            "sys/class/net/eth0/statistics/rx_missed_errors": "12\n",
            "sys/class/net/vnet0/statistics/rx_dropped": "99\n",
        },
    )
    totals = count_host(root).totals
    assert totals["use_host"] == {"cpu0": 19 * 100 / procfs.HERTZ}
    assert totals["pressure"] == {"some": 5.0}
    assert totals["softnet_drops"] == {"cpu2": 10}
    assert totals["squeezed"] == {"cpu2": 3}
    assert totals["nic_drops"] == {"eth0 rx_missed_errors": 12}


SCOPE = "machine.slice/g.scope"


@pytest.mark.parametrize(
    ("mounts", "folder", "line"),
    [
        ("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "sys/fs/cgroup", "throttled_usec {}000\n"),
        ("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", "sys/fs/cgroup/cpu", "throttled_time {}000000\n"),
    ],
    ids=["v2", "v1"],
)
def test_the_host_has_what_the_limits_of_all_cgroups_of_guests_took(tmp_path, mounts, folder, line):
    """The kernel counts in the cgroup that has the limit."""
    times = {"machine.slice": 7, SCOPE: 0, f"{SCOPE}/libvirt/vcpu0": 1312, f"{SCOPE}/libvirt/emulator": 5, "other": 9}
    root = write(
        tmp_path,
        {
            "proc/mounts": mounts,
            "sys/fs/cgroup/cgroup.controllers": "cpu\n",
            "proc/5/cgroup": f"3:cpu:/{SCOPE}/libvirt/emulator\n0::/{SCOPE}/libvirt/emulator\n",
            **{f"{folder}/{path}/cpu.stat": line.format(ms) for path, ms in times.items()},
        },
    )
    totals = count_host(root, cgroups=guest_cgroups(root, [5, 6])).totals
    assert totals["throttled"] == {path: ms for path, ms in times.items() if path != "other"}


@pytest.mark.parametrize("path", ["/", "/emulator", "/../../..", "/../system.slice"])
def test_a_guest_without_a_cgroup_of_its_own_below_the_mount_adds_none(tmp_path, path):
    """A private cgroup namespace shows paths that leave the mount."""
    root = write(
        tmp_path,
        {
            "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu\n",
            "sys/fs/cgroup/system.slice/backup.service/cpu.stat": "throttled_usec 9\n",
            "proc/5/cgroup": f"0::{path}\n",
        },
    )
    assert guest_cgroups(root, [5]) == ("machine.slice",)


def test_a_count_of_a_cgroup_that_fell_or_is_new_is_no_throttled_time():
    def at(seconds, **throttled):
        return Counts(HOST, "", seconds, {}, {"throttled": throttled})

    before, after = at(0.0, kept=5.0, anew=900.0), at(5.0, kept=55.0, anew=3.0, new=4000.0)
    assert measured(before, after).rates["throttled"] == 10.0


def test_a_kernel_that_counts_nothing_gives_no_totals(tmp_path):
    assert not any(count_host(tmp_path).totals.values())


def test_this_machine_s_own_work_is_measured():
    root, pid = Path("/"), os.getpid()
    guest = MeteredGuest("u", "me", pid, procfs.started(root, pid), (), ())
    before, deadline = count_guest(root, guest), threading.Event()
    deadline.wait(0.05)
    sum(range(2_000_000))
    rates = measured(before, count_guest(root, guest)).rates
    assert rates["use_emulator"] is not None
    assert rates["use_emulator"] > 1


@pytest.mark.parametrize(
    "error",
    [
        ApplyFailed("the guests", "libvirt: an internal error"),
        Busy("the guests", "no answer", overdue=True),
        HostUnreachable("host", "no answer"),
        NotPermitted("ask libvirt", "access denied"),
    ],
)
def test_the_host_is_counted_whatever_libvirt_answers(tmp_path, error: PinnerError):
    class Domains:
        users: Mapping[str, int | None] = {}

        def active(self):
            raise error

    assert [each.subject for each in HostMeter(tmp_path, Domains())()] == [HOST]
