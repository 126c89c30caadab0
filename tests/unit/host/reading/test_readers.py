"""The readers of counters, on a made-up root folder."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import cpus, process, snapshot
from support.made_up.readings import host

from pinner import codec
from pinner.host.reading.network import read_counters, read_nic_counters, read_nics, read_sockets, read_softnet
from pinner.host.reading.sampler import (
    parse_interrupts,
    read_idle,
    read_irq_counts,
    read_pressure,
    read_settings,
    read_spare,
    read_storage,
    read_swapped,
    read_times,
    read_weights,
    take_reading,
    with_packet_rates,
)
from pinner.host.settings import irqbalance
from pinner.host.settings.irqbalance import read_balancers
from pinner.host.settings.rps import read_rps
from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Device
from pinner.model.reading import (
    Bridge,
    HostReading,
    HostSample,
    NicCounters,
    SoftnetCpu,
    ThreadTimes,
    UdpSocket,
)
from pinner.model.settings.cards import RpsQueue, RxCoalescing

INTERRUPTS = """\
            CPU0       CPU2       CPU5
   0:         44          0          0   IO-APIC   2-edge      timer
  33:          0     123456          7  IR-PCI-MSIX-0000:3b:00.0   1-edge      ens1-TxRx-0
  34:          0          0          0  IR-PCI-MSIX-0000:3b:00.0   2-edge      ens1-TxRx-1, other
 NMI:          1          2          3   Non-maskable interrupts
 ERR:          0
"""


def write(root: Path, **files: str) -> Path:
    """The files of a made-up machine; keys are their paths, with two underscores for a slash."""
    return write_all(root, {name.replace("__", "/"): text for name, text in files.items()})


def write_all(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_interrupts_of_cpus_with_gaps_in_their_numbers():
    rows = parse_interrupts(INTERRUPTS)
    assert list(rows) == [0, 33, 34]
    assert rows[33].counts == {2: 123456, 5: 7}
    assert rows[34].counts == {}


@pytest.mark.parametrize("text", ["", "nonsense", "CPU0 CPU1\n 5: 1\n", "CPU0\n 5: many IO-APIC x\n", "\n\n:\n"])
def test_a_malformed_table_of_interrupts_has_no_rows(text):
    assert parse_interrupts(text) == {}


def test_the_counts_of_an_interrupt_have_the_names_that_its_drivers_gave(tmp_path):
    root = write_all(tmp_path, {"proc/interrupts": INTERRUPTS, "sys/kernel/irq/33/actions": "first, second\n"})
    assert [(each.number, each.name, each.total) for each in read_irq_counts(root)] == [
        (0, "timer", 44),
        (33, "first, second", 123463),
        (34, "ens1-TxRx-1, other", 0),
    ]


def test_an_interface_has_its_queues_and_counters(tmp_path):
    net = "sys/class/net/br0"
    root = write_all(
        tmp_path,
        {
            f"{net}/operstate": "up\n",
            f"{net}/tx_queue_len": "500\n",
            f"{net}/queues/rx-0/rps_flow_cnt": "2048\n",
            f"{net}/queues/rx-1/rps_flow_cnt": "0\n",
            f"{net}/queues/tx-0/xps_cpus": "3\n",
            f"{net}/statistics/rx_packets": "77\n",
            f"{net}/statistics/odd": "many\n",
            f"{net}/bridge/multicast_snooping": "1\n",
            f"{net}/bridge/multicast_querier": "0\n",
            f"{net}/brif/tap0/port_no": "1\n",
            "sys/class/net/lo/type": "772\n",
        },
    )
    (nic,) = read_nics(root, (Device("net", "br0", None, ""),))
    assert (nic.name, nic.device, nic.is_up, nic.queue_length) == ("br0", "", True, 500)
    assert (nic.rx_flows, nic.tx_queues) == ((2048, 0), 1)
    assert nic.bridge == Bridge(True, False, ("tap0",))
    (counters,) = read_nic_counters(root)
    assert (counters.key, counters.statistics) == (nic.key, {"rx_packets": 77})


@pytest.mark.parametrize("name", [b"e\xffth0", b"\x1b[31meth0"])
def test_an_interface_whose_name_cannot_be_written_hides_no_other(tmp_path, name):
    net = "sys/class/net/br0"
    files = {"ifindex": "3\n", "queues/rx-0/rps_cpus": "f\n", "bridge/multicast_snooping": "1\n"}
    root = write_all(tmp_path, {f"{net}/{file}": text for file, text in files.items()})
    odd = os.fsdecode(name)
    shutil.copytree(tmp_path / net, tmp_path / "sys/class/net" / odd)
    (tmp_path / net / "brif" / odd).mkdir(parents=True)
    (found,) = read_nics(root, ())
    assert found.index == 3
    assert codec.load(type(found), codec.dump(found)) == found
    assert read_rps(root) == (RpsQueue("br0", 3, 0, cpus("0-3")),)


def test_softnet_rows_have_the_number_of_their_cpu(tmp_path):
    modern = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0 00000000 00000005 0 0\n"
    old = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0\n"
    assert read_softnet(write(tmp_path / "a", proc__net__softnet_stat=modern)) == (SoftnetCpu(5, 10, 1, 2),)
    rows = read_softnet(write(tmp_path / "b", proc__net__softnet_stat=old + old + "broken\n"))
    assert rows == (SoftnetCpu(0, 10, 1, 2), SoftnetCpu(1, 10, 1, 2))


def test_counters_have_the_names_that_nstat_prints(tmp_path):
    root = write(
        tmp_path,
        proc__net__snmp="Udp: InDatagrams RcvbufErrors\nUdp: 5 6\nOdd: A\nOdd: 1\n",
        proc__net__netstat="TcpExt: ListenOverflows ListenDrops\nTcpExt: 7 8\n",
        proc__net__snmp6="Ip6InReceives  1\nUdp6RcvbufErrors                \t9\n",
        proc__vmstat="nr_free_pages 1\npswpin 10\n",
        proc__meminfo="MemTotal:       100 kB\nMemAvailable:    50 kB\nOdd: x\n",
    )
    assert read_counters(root) == {
        "UdpInDatagrams": 5,
        "UdpRcvbufErrors": 6,
        "TcpExtListenOverflows": 7,
        "TcpExtListenDrops": 8,
        "Udp6RcvbufErrors": 9,
        "pswpin": 10,
        "MemTotal": 100,
        "MemAvailable": 50,
    }


def test_sockets_that_drop_packets_or_have_unread_ones(tmp_path):
    heading = (
        "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref p d\n"
    )
    quiet = " 1: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000  0 0 10 2 0 0\n"
    full = " 2: 0100007F:12B5 00000000:0000 07 00000000:00000400 00:00000000 00000000 64 0 11 2 0 33\n"
    root = write(tmp_path, proc__net__udp=heading + quiet + full + "broken\n")
    assert read_sockets(root) == (UdpSocket("127.0.0.1:4789", 11, 64, 33, 1024),)


def test_idle_states_pressure_times_and_swap(tmp_path):
    idle = "sys/devices/system/cpu/cpu3/cpuidle/state2"
    root = write_all(
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
    assert read_spare(root) == {3: 66 * 1000 // os.sysconf("SC_CLK_TCK")}
    assert read_times(root, [70, 71, 72]) == {70: ThreadTimes(100, 200)}
    assert read_swapped(root, [70, 72]) == {70: 2048}


def test_the_cpus_that_irqbalance_does_not_use(tmp_path):
    balancer = replace(process(80, 0.0, "0-3", name="irqbalance"), command="/usr/sbin/irqbalance --foreground")
    for text, banned in (
        ("A=1\0IRQBALANCE_BANNED_CPULIST=4-7\0", cpus("4-7")),
        ("IRQBALANCE_BANNED_CPUS=1,00000003\0", cpus("0-1,32")),
        ("A=1\0", CpuSet()),
        ("IRQBALANCE_BANNED_CPUS=\0", CpuSet()),
        ("IRQBALANCE_BANNED_CPULIST=\0IRQBALANCE_BANNED_CPUS=3\0", cpus("0-1")),
        ("IRQBALANCE_BANNED_CPULIST=all\0", None),
        ("IRQBALANCE_BANNED_CPUS=" + "f" * 60_000, None),
    ):
        root = write(tmp_path, proc__80__environ=text)
        (found,) = read_balancers(root, [balancer, process(81, 0.0, "0-3")])
        assert (found.pid, found.arguments, found.banned) == (80, "--foreground", banned)
    (unreadable,) = read_balancers(tmp_path / "none", [balancer])
    assert unreadable.banned is None


@pytest.mark.parametrize(
    ("users", "found"),
    [("0 0 0 0", 1), ("1000 1000 1000 1000", 0), ("1000 0 0 0", 0), ("100000 100000 100000 100000", 0)],
    ids=["root", "a user", "a setuid program of a user", "root of a user namespace"],
)
def test_a_process_that_a_user_has_named_irqbalance_is_not_asked(tmp_path, monkeypatch, users, found):
    """Each such process would cost every snapshot the second that irqbalance has for its answer."""
    asked = []
    monkeypatch.setattr(irqbalance, "_banned_now", asked.append)
    monkeypatch.setattr(irqbalance, "LIVE", tmp_path)
    root = write(tmp_path, proc__80__status=f"Name:\tirqbalance\nUid:\t{users}\n", proc__80__environ="A=1\0")
    assert len(irqbalance.read_irqbalance(root, [process(80, 0.0, "0-3", name="irqbalance")])) == found
    assert len(asked) == found


def test_settings_weights_and_storage_of_a_host_without_them(tmp_path):
    assert read_settings(tmp_path) == {}
    assert read_weights(tmp_path, ["machine.slice/x"]) == {}
    assert read_storage([tmp_path / "none"]) == ()
    assert read_storage([tmp_path])[0].total_kib > 0


def test_a_part_that_fails_hides_no_other(tmp_path, monkeypatch):
    def fail(_):
        raise ValueError("a table of a kernel to come")

    monkeypatch.setattr("pinner.host.reading.network.read_softnet", fail)
    monkeypatch.setattr("pinner.host.reading.sampler.read_settings", fail)
    root = write(tmp_path, proc__net__snmp="Udp: RcvbufErrors\nUdp: 6\n")
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
        found = with_packet_rates(HostReading(taken, (samples[first], samples[last]), 2.0))
        assert tuple(each.rate for each in found.coalescing) == rates
    assert with_packet_rates(HostReading(taken, samples[:1])) == taken


def test_this_machine_can_be_sampled_twice():
    slept = []
    reading = take_reading(Path("/"), snapshot(host()), 0.2, sleep=slept.append)
    assert slept == [0.2]
    assert reading.before is not None
    assert reading.seconds > 0
