"""The readers of counters, on a made-up root folder."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import cpus, process, snapshot
from support.made_up.readings import counted, host, nic, placed

from pinner import codec
from pinner.host.reading import captured
from pinner.host.reading.cpus import read_idle, read_pressure, read_spare, read_swapped, read_times
from pinner.host.reading.irqs import parse_interrupts, read_irqs
from pinner.host.reading.network import read_counters, read_sockets, read_softnet
from pinner.host.reading.nics import read_nics
from pinner.host.reading.sampler import read_sample, take_reading
from pinner.host.reading.settings import read_settings, read_storage, read_weights
from pinner.host.settings import irqbalance
from pinner.host.settings.irqbalance import read_balancers
from pinner.host.settings.rps import read_rps
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.interrupts import Balancer, DeviceIrq
from pinner.model.reading import (
    Bridge,
    Channels,
    Coalescing,
    HostSample,
    Irq,
    Rings,
    RxQueue,
    SavedSamples,
    SoftnetCpu,
    ThreadTimes,
    UdpSocket,
)
from pinner.model.settings.coalescing import RxCoalescing
from pinner.model.settings.queues import CardQueues
from pinner.model.settings.rings import RxRing
from pinner.model.settings.rps import RpsQueue

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


def test_an_interrupt_has_its_device_its_cpus_and_whether_it_is_managed(tmp_path):
    root = write_all(
        tmp_path,
        {
            "proc/interrupts": INTERRUPTS,
            "proc/irq/33/smp_affinity_list": "0-5\n",
            "proc/irq/33/effective_affinity_list": "2\n",
            "proc/irq/34/smp_affinity_list": "5\n",
            "sys/kernel/irq/33/actions": "ens1-TxRx-0\n",
            "sys/kernel/debug/irq/irqs/33": "handler: x\ndstate: 0x1\n  IRQD_AFFINITY_MANAGED\n",
            "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/33": "msix\n",
            "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/34": "msix\n",
        },
    )
    first, second = read_irqs(root)
    assert (first.number, first.name, first.device) == (33, "ens1-TxRx-0", "0000:3b:00.0")
    assert (first.cpus, first.effective, first.target, first.managed) == (cpus("0-5"), cpus("2"), cpus("2"), True)
    assert (second.name, second.target, second.managed) == ("ens1-TxRx-1, other", cpus("5"), None)


def test_an_interface_has_its_queues_masks_and_counters(tmp_path):
    net = "sys/class/net/br0"
    root = write_all(
        tmp_path,
        {
            f"{net}/operstate": "up\n",
            f"{net}/mtu": "9000\n",
            f"{net}/tx_queue_len": "500\n",
            f"{net}/queues/rx-0/rps_cpus": "00000001,0000000f\n",
            f"{net}/queues/rx-0/rps_flow_cnt": "2048\n",
            f"{net}/queues/rx-1/rps_cpus": "0\n",
            f"{net}/queues/tx-0/xps_cpus": "3\n",
            f"{net}/statistics/rx_packets": "77\n",
            f"{net}/statistics/odd": "many\n",
            f"{net}/bridge/multicast_snooping": "1\n",
            f"{net}/bridge/multicast_querier": "0\n",
            f"{net}/brif/tap0/port_no": "1\n",
            "sys/class/net/lo/type": "772\n",
        },
    )
    (found,) = read_nics(root)
    assert (found.name, found.device, found.is_up, found.mtu, found.queue_length) == ("br0", "", True, 9000, 500)
    assert found.rx_queues == (RxQueue(cpus("0-3,32"), 2048), RxQueue(CpuSet(), 0))
    assert found.xps == (cpus("0-1"),)
    assert found.statistics == {"rx_packets": 77}
    assert found.bridge == Bridge(True, False, ("tap0",))


@pytest.mark.parametrize("name", [b"e\xffth0", b"\x1b[31meth0"])
def test_an_interface_or_slice_whose_name_cannot_be_written_hides_no_other(tmp_path, name):
    net = "sys/class/net/br0"
    files = {"ifindex": "3\n", "queues/rx-0/rps_cpus": "f\n", "bridge/multicast_snooping": "1\n"}
    root = write_all(tmp_path, {f"{net}/{file}": text for file, text in files.items()})
    odd = os.fsdecode(name)
    shutil.copytree(tmp_path / net, tmp_path / "sys/class/net" / odd)
    (tmp_path / net / "brif" / odd).mkdir(parents=True)
    (tmp_path / f"{odd}.slice").mkdir()
    (tmp_path / f"{odd}.slice/cpu.weight").write_text("100\n")
    (found,) = read_nics(root)
    assert found.index == 3
    assert codec.load(type(found), codec.dump(found)) == found
    assert read_rps(root) == (RpsQueue("br0", 3, 0, cpus("0-3")),)
    weights = HostSample(weights=read_weights(tmp_path, []))
    assert codec.load(HostSample, codec.dump(weights)) == weights
    assert list(weights.weights.values()) == [100]


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
    root = write(tmp_path, proc__net__snmp="Udp: RcvbufErrors\nUdp: 6\n")
    sample = read_sample(root, snapshot(host()))
    assert sample.unread == {"softnet_stat": "a table of a kernel to come"}
    assert sample.counters == {"UdpRcvbufErrors": 6}


def test_a_captured_machine_keeps_both_samples(tmp_path):
    before, now = HostSample(nics=(nic(),)), HostSample(nics=(counted(nic(), rx_packets=9),))
    write_all(tmp_path, {str(name): data.decode() for name, data in captured.as_file(saved(before, now)).items()})
    reading = captured.captured_reading(tmp_path, snapshot(host(), [placed()]))
    assert (reading.samples, reading.seconds) == ((before, now), 2.0)


def test_a_machine_captured_without_samples_has_one(tmp_path):
    reading = captured.captured_reading(tmp_path, snapshot(host()))
    assert (len(reading.samples), reading.seconds, reading.before) == (1, 0.0, None)


def test_samples_that_were_damaged_are_refused(tmp_path):
    write(tmp_path, **{"counters.json": '{"samples": 7}'})
    with pytest.raises(Invalid, match=r"counters\.json"):
        captured.captured_reading(tmp_path, snapshot(host()))


def test_samples_that_are_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / captured.FILE)
    with pytest.raises(Invalid, match=r"counters\.json"):
        captured.samples(tmp_path)


@pytest.mark.parametrize("seconds", ["0", "-1", "1e400"])
def test_two_samples_are_some_time_apart(tmp_path, seconds):
    ((name, data),) = captured.as_file(saved(HostSample(), HostSample())).items()
    write_all(tmp_path, {str(name): data.decode().replace('"seconds":2.0', f'"seconds":{seconds}')})
    with pytest.raises(Invalid, match=r"counters\.json.*a number of seconds above 0"):
        captured.captured_reading(tmp_path, snapshot(host()))


def test_scrubbed_samples_name_no_tap_and_no_address():
    sample = HostSample(
        nics=(nic(), nic("tap-secret", "")),
        sockets=(UdpSocket("10.1.2.3:53", 1, 0, 5, 0),),
        weights={"machine.slice/secret": 5},
    )
    text = captured.as_file(captured.scrubbed(saved(sample)))[captured.FILE]
    assert b"ens1" in text
    assert b"secret" not in text
    assert b"10.1.2.3" not in text


def saved(*samples: HostSample) -> SavedSamples:
    return SavedSamples(samples, 2.0)


def test_this_machine_can_be_sampled_twice():
    slept = []
    reading = take_reading(Path("/"), snapshot(host()), 0.2, sleep=slept.append)
    assert slept == [0.2]
    assert reading.before is not None
    assert reading.seconds > 0


def test_a_capture_has_the_interrupts_of_its_last_sample(tmp_path):
    assert captured.captured_irqs(tmp_path) is None
    irq = Irq(24, "ens1-rx-0", "0000:3b:00.0", cpus("0-7"), cpus("3"), {3: 5}, managed=True)
    timer = Irq(0, "timer", "", cpus("0-7"), cpus(""), {})
    sample = HostSample(irqs=(timer, irq), balancers=(Balancer(812, "", cpus("4-7")),))
    saved = SavedSamples((HostSample(), sample), 2.0)
    (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
    found = captured.captured_irqs(tmp_path)
    assert found.irqs == (DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", cpus("0-7"), cpus("3"), managed=True),)
    assert [balancer.pid for balancer in found.balancers] == [812]


def test_a_capture_has_the_receive_queues_of_its_last_sample(tmp_path):
    assert captured.captured_rps(tmp_path) is None
    ens1 = replace(nic("ens1"), rx_queues=(RxQueue(cpus("4-7"), 0), RxQueue(cpus(""), 0)))
    saved = SavedSamples((HostSample(nics=(ens1,)),), 0.0)
    (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
    found = captured.captured_rps(tmp_path)
    assert [(each.interface, each.queue, str(each.cpus)) for each in found] == [("ens1", 0, "4-7"), ("ens1", 1, "")]


def test_a_capture_has_the_sysctls_of_its_last_sample(tmp_path):
    assert captured.captured_sysctls(tmp_path) is None
    settings = {"proc/sys/vm/swappiness": "60", "proc/sys/kernel/sched_rt_runtime_us": "-1", "proc/swaps": "7"}
    saved = SavedSamples((HostSample(settings=settings),), 0.0)
    (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
    assert captured.captured_sysctls(tmp_path) == {"vm.swappiness": 60, "kernel.sched_rt_runtime_us": -1}


def test_a_capture_has_the_receive_rings_of_its_last_sample(tmp_path):
    assert captured.captured_rings(tmp_path) is None
    ens1 = replace(nic("ens1"), rings=Rings(512, 4096, 512, 512), statistics={"rx_missed_errors": 3})
    saved = SavedSamples(
        (HostSample(nics=(ens1, nic("ens2"), replace(nic("ens3"), rings=None), nic("tap1", ""))),), 0.0
    )
    (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
    assert captured.captured_rings(tmp_path) == (
        RxRing("ens1", 0, 512, 4096, has_dropped=True),
        RxRing("ens2", 0, 4096, 4096, has_dropped=False),
    )


def test_a_capture_has_the_queues_of_its_cards_and_its_irqbalance(tmp_path):
    assert captured.captured_queues(tmp_path) is captured.captured_irqbalance(tmp_path) is None
    balancer = Balancer(812, "", CpuSet(), 7, banned_now=cpus("4-7"))
    cards = (replace(nic("ens1"), channels=Channels(1, 8, 0, 0, 0, 0)), nic("tap1", ""))
    saved = SavedSamples((HostSample(nics=cards, balancers=(balancer,)),), 2.0)
    (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
    assert captured.captured_queues(tmp_path) == (CardQueues("ens1", 0, 1, 8),)
    assert captured.captured_irqbalance(tmp_path) == (balancer,)


def test_a_capture_has_the_coalescing_of_its_cards(tmp_path):
    assert captured.captured_coalescing(tmp_path) is None
    ens1 = replace(nic("ens1"), coalescing=Coalescing(0, 1, is_adaptive=True), statistics={"rx_packets": 1000})
    later = replace(ens1, statistics={"rx_packets": 181_000})
    others = (replace(nic("ens2"), coalescing=None), nic("tap1", ""))
    samples = (HostSample(nics=(ens1,)), HostSample(nics=(later, *others)))
    for first, rate in ((0, 90_000.0), (1, 0.0)):
        saved = SavedSamples(samples[first:], 2.0)
        (tmp_path / captured.FILE).write_bytes(captured.as_file(saved)[captured.FILE])
        assert captured.captured_coalescing(tmp_path) == (RxCoalescing("ens1", 0, 0, 1, is_adaptive=True, rate=rate),)
