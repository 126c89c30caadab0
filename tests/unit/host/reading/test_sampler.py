"""The counters of a sample, on a made-up root folder."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import cpus, guest, process, snapshot
from support.made_up.readings import host
from support.roots import write

from pinner.host.reading.sampler import (
    parse_interrupts,
    read_cpu_times,
    read_idle,
    read_irq_counts,
    read_pressure,
    read_settings,
    read_storage,
    read_swapped,
    read_times,
    read_weights,
    take_reading,
    with_rates,
)
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Cgroup
from pinner.model.reading import HostReading, HostSample, NicCounters, ThreadTimes
from pinner.model.settings.cards import RxCoalescing
from pinner.model.states import PartitionState

SLICE, SCOPE = "machine.slice", "machine.slice/g1.scope"
GUEST = guest(
    1, 1, cpus("0"), cgroups=tuple(Cgroup(path, PartitionState("member", CpuSet())) for path in (SLICE, SCOPE))
)

INTERRUPTS = """\
            CPU0       CPU2       CPU5
   0:         44          0          0   IO-APIC   2-edge      timer
  33:          0     123456          7  IR-PCI-MSIX-0000:3b:00.0   1-edge      ens1-TxRx-0
  34:          0          0          0  IR-PCI-MSIX-0000:3b:00.0   2-edge      ens1-TxRx-1, other
 NMI:          1          2          3   Non-maskable interrupts
 ERR:          0
"""


def test_interrupts_of_cpus_with_gaps_in_their_numbers():
    rows = parse_interrupts(INTERRUPTS)
    assert list(rows) == [0, 33, 34]
    assert rows[33].counts == {2: 123456, 5: 7}
    assert rows[34].counts == {}


@pytest.mark.parametrize("text", ["", "nonsense", "CPU0 CPU1\n 5: 1\n", "CPU0\n 5: many IO-APIC x\n", "\n\n:\n"])
def test_a_malformed_table_of_interrupts_has_no_rows(text):
    assert parse_interrupts(text) == {}


def test_the_counts_of_an_interrupt_have_the_names_that_its_drivers_gave(tmp_path):
    root = write(tmp_path, {"proc/interrupts": INTERRUPTS, "sys/kernel/irq/33/actions": "first, second\n"})
    assert [(each.number, each.name, each.total) for each in read_irq_counts(root)] == [
        (0, "timer", 44),
        (33, "first, second", 123463),
        (34, "ens1-TxRx-1, other", 0),
    ]


def test_idle_states_pressure_times_and_swap(tmp_path):
    idle = "sys/devices/system/cpu/cpu3/cpuidle/state2"
    root = write(
        tmp_path,
        {
            f"{idle}/name": "C6\n",
            f"{idle}/latency": "133\n",
            f"{idle}/disable": "1\n",
            f"{idle}/time": "99\n",
            "proc/stat": "cpu 9 9 9 9 9 9 9 9 0 0\ncpu3 1 2 3 40 5 6 7 8 9 10\nintr 5\n",
            "proc/pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nodd\n",
            "mount/system.slice/cpu.pressure": "some avg10=12.00 avg60=0 avg300=0 total=1\n",
            "proc/70/schedstat": "100 200 3\n",
            "proc/71/schedstat": "broken\n",
            "proc/70/status": "Name:\tqemu\nVmSwap:\t    2048 kB\n",
        },
    )
    (state,) = read_idle(root)
    assert (state.cpu, state.number, state.name, state.latency_us, state.is_disabled, state.time_us) == (
        3, 2, "C6", 133, True, 99,
    )  # fmt: skip
    assert read_pressure(root, root / "mount") == {"cpu.some": 1.5, "system.slice.cpu.some": 12.0}
    ticks = [{3: count * 1000 // os.sysconf("SC_CLK_TCK")} for count in (66, 13, 8)]
    assert [*read_cpu_times(root)] == ticks
    assert read_times(root, [70, 71, 72]) == {70: ThreadTimes(100, 200)}
    assert read_swapped(root, [70, 72]) == {70: 2048}


def test_the_threads_of_a_guests_helpers_are_sampled(tmp_path):
    """Such as virtiofsd: they are in the guest's unit, and no processes of the host."""
    unit = "machine-qemu\\x2d1\\x2dg1.scope"
    processes = [replace(process(pid, 1.0, "0"), unit=unit) for pid in (GUEST.pid, 80)]
    processes += [replace(process(81, 1.0, "0"), unit=""), process(82, 1.0, "0")]
    root = write(tmp_path, {f"proc/{each.pid}/schedstat": "100 200 3\n" for each in processes})
    taken = snapshot(host(), [GUEST], processes=processes)
    assert set(take_reading(root, taken, 0.0).now.threads) == {GUEST.pid, 80}
    in_a_service = [replace(each, unit="libvirtd.service") for each in processes]
    assert set(take_reading(root, replace(taken, processes=tuple(in_a_service)), 0.0).now.threads) == {GUEST.pid}


def test_settings_weights_and_storage_of_a_host_without_them(tmp_path):
    assert read_settings(tmp_path) == {}
    assert read_weights(tmp_path, [GUEST]) == {}
    assert read_storage([tmp_path / "none"]) == ()
    assert read_storage([tmp_path])[0].total_kib > 0


def test_the_weights_are_those_of_the_guests_own_units(tmp_path):
    files = {f"sys/fs/cgroup/{path}/cpu.weight": f"{weight}\n" for path, weight in ((SLICE, 300), (SCOPE, 50))}
    mounts = {
        "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
    }
    assert read_weights(write(tmp_path, files | mounts), [GUEST, guest(2, 1, cpus("0"))]) == {SCOPE: 50}


def test_a_part_that_fails_hides_no_other(tmp_path, monkeypatch):
    def fail(_):
        raise ValueError("a table of a kernel to come")

    monkeypatch.setattr("pinner.host.reading.network.read_softnet", fail)
    monkeypatch.setattr("pinner.host.reading.sampler.read_settings", fail)
    root = write(tmp_path, {"proc/net/snmp": "Udp: RcvbufErrors\nUdp: 6\n"})
    reading = take_reading(root, snapshot(host()), 0.0, folders=(root,))
    assert reading.now.unread == {"softnet_stat": "a table of a kernel to come"}
    assert reading.now.counters == {"UdpRcvbufErrors": 6}
    assert reading.details.unread == {"settings": "a table of a kernel to come"}
    assert reading.details.storage


def test_the_packets_of_a_card_are_those_of_the_two_samples():
    card = RxCoalescing("ens1", 2, 0, 1, is_adaptive=False, rate=7.0)
    other = replace(card, interface="ens2", index=3)
    taken = replace(snapshot(host()), coalescing=(card, other))
    samples = tuple(HostSample(nics=(NicCounters("ens1", 2, {"rx_packets": at}),)) for at in (1000, 181_000))
    for first, last, rates in ((0, 1, (90_000.0, 0.0)), (1, 0, (0.0, 0.0)), (1, 1, (0.0, 0.0))):
        found = with_rates(HostReading(taken, (samples[first], samples[last]), 2.0)).snapshot
        assert tuple(each.rate for each in found.coalescing) == rates
    assert with_rates(HostReading(taken, samples[:1])).snapshot == taken


def test_this_machine_can_be_sampled_twice():
    slept = []
    reading = take_reading(Path("/"), snapshot(host()), 0.2, sleep=slept.append)
    assert slept == [0.2]
    assert reading.before is not None
    assert reading.seconds > 0
