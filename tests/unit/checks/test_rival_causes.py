"""What looks like the fault of a check, and has another cause: no remedy is proposed that cannot help."""

from dataclasses import replace

import pytest
from support.hosts import cpus, process
from support.hosts import guest as guest_
from support.made_up.checks.check_cases_cpus import beside
from support.made_up.checks.check_cases_hosts import main_loop
from support.made_up.checks.check_cases_network import counters, nics, softnet
from support.made_up.readings import Seen, counted, delayed, findings, nic, placed, reading

from pinner.model.machine.process import CpuQuota
from pinner.model.reading import HostDetails, HostSample, ThreadTimes, Throttled

SECOND = 10**9


def named(of, code):
    (found,) = (each for each in findings(of) if each.code == code)
    return found


def facts(found):
    return {each.name: each.value for each in found.evidence}


def losing(limited_share):
    """A guest that loses packets, and whose vhost thread waits 1 s of 2 s, so much of it by a limit."""
    guest, tap = placed(), nic("tap1", "")
    (vhost,) = guest.vhost_threads
    first, last = (
        HostSample(
            threads={vhost.tid: ThreadTimes(5, times * SECOND)},
            cgroups={vhost.tid: "g.scope/emulator"},
            throttled={"g.scope/emulator": Throttled(CpuQuota(10_000), round(times * limited_share * SECOND), None)},
        )
        for times in (0, 1)
    )
    return reading(
        Seen(nics=(tap,), sample=first),
        Seen(nics=(counted(tap, tx_dropped=50, tx_packets=1000),), sample=last),
        [guest],
    )


def test_a_longer_queue_gives_a_limited_guest_no_time():
    found = named(losing(0.8), "tap-drops")
    assert found.message.endswith("packets/s that come from the host, while a CPU limit stops it 40 % of the time")
    assert (facts(found)["worst run delay"], facts(found)["by limits"]) == (50.0, 40.0)
    assert found.remedies == ()


def test_a_guest_that_waits_for_a_cpu_may_need_a_longer_queue():
    found = named(losing(0.0), "tap-drops")
    assert found.message.endswith("packets/s that come from the host")
    assert facts(found)["worst run delay"] == 50.0
    assert found.remedies


@pytest.mark.parametrize("state", ["paused", "migrating"])
def test_a_longer_queue_gives_a_guest_no_time_while_it_stands_still(state):
    of = losing(0.0)
    (guest,) = of.snapshot.guests
    of = replace(of, snapshot=replace(of.snapshot, guests=(replace(guest, state=state),)))
    found = named(of, "tap-drops")
    assert found.message.endswith(f"packets/s that come from the host, while it is {state}")
    assert found.remedies == ()


def test_a_longer_queue_helps_no_guest_that_takes_no_packet():
    """It boots, its card is down, or its kernel hangs."""
    tap = nic("tap1", "")
    found = named(nics(tap, counted(tap, tx_dropped=50), guests=[placed()]), "tap-drops")
    assert found.message == "guest g1 loses 25 packets/s that come from the host, and takes none"
    assert found.remedies == ()


def test_an_iothread_takes_no_packets_from_the_main_loop():
    of = main_loop(80.0)
    assert named(of, "guest-without-iothread").remedies
    (guest,) = of.snapshot.guests
    without = replace(guest, vhost_threads=(), emulator=replace(guest.emulator, threads=guest.emulator.threads[:1]))
    found = named(replace(of, snapshot=replace(of.snapshot, guests=(without,))), "guest-without-iothread")
    assert found.message.endswith("uses 80 % of a CPU, and copies the packets of its taps")
    assert found.remedies == ()


def pressed(percent, *limited_ms, went_back=(), quota=9000):
    """Services wait so much of the time, and limits stopped them so many ms of the 2 s. Those that went back began
    anew."""
    paths = [f"system.slice/s{number}.service" for number, _ in enumerate(limited_ms)]
    samples = [
        HostSample(
            pressure={"system.slice.cpu.some": percent},
            throttled={
                path: Throttled(CpuQuota(quota), (times + 2 * (times == 0 and number in went_back)) * ms * 10**6, None)
                for number, (path, ms) in enumerate(zip(paths, limited_ms, strict=True))
            },
        )
        for times in (0, 1)
    ]
    return reading(*samples)


@pytest.mark.parametrize(
    ("of", "severity"),
    [
        (pressed(30.0), "critical"),
        (pressed(30.0, 100), "critical"),
        (pressed(30.0, 300), "warning"),
        (pressed(30.0, 300, 200), "unknown"),
        (pressed(30.0, 1900), "unknown"),
        (pressed(30.0, 1900, went_back=[0]), "unknown"),
        (pressed(30.0, 1900, 300, went_back=[0]), "unknown"),
        # A limit of 15.12 CPUs stops each of 16 CPUs 5.5 % of the time, one of 0.5 CPUs the only one.
        (pressed(85.0, 1760, quota=1_512_000), "critical"),
        (pressed(30.0, 1000, quota=50_000), "unknown"),
        (pressed(40.0, 1000, quota=100_000), "unknown"),
        (pressed(100.0, 1000, quota=250_000), "critical"),
    ],
)
def test_pressure_that_a_limit_explains_is_no_lack_of_cpus(of, severity):
    found = named(of, "housekeeping-pressure")
    assert found.severity == severity
    if severity == "unknown":
        assert not found.remedies


def test_the_limited_service_is_named():
    why = "CPU limits stop services (s1.service the most) 75 % of the time, and the pressure counts that as waiting"
    assert named(pressed(30.0, 300, 1200), "housekeeping-pressure").message == f"not known, because {why}"


def test_a_service_that_began_anew_hides_no_others():
    found = named(pressed(60.0, 300, 200, went_back=[1]), "housekeeping-pressure")
    assert found.severity == "critical"
    assert found.message == "services of the host wait for a CPU in 35 % of the time"
    assert facts(found)["began anew"] == "s1.service, which a limit may have stopped for longer"
    assert "began anew" not in facts(named(pressed(60.0, 300, 200), "housekeeping-pressure"))


def test_a_limit_of_guests_is_none_of_the_services():
    of = pressed(30.0, 1900)
    moved = [
        replace(sample, throttled=dict(zip(["machine.slice/g.scope"], sample.throttled.values(), strict=True)))
        for sample in of.samples
    ]
    assert named(replace(of, samples=tuple(moved)), "housekeeping-pressure").severity == "critical"


def test_a_turn_ends_by_its_budget_or_by_its_time():
    of = replace(softnet(squeezed=20), details=HostDetails(settings={"proc/sys/net/core/netdev_budget_usecs": "2000"}))
    assert facts(named(of, "softnet-squeezed"))["netdev_budget_usecs"] == 2000
    assert len(named(of, "softnet-squeezed").remedies) == 2
    planned = replace(of.snapshot, sysctls={**of.snapshot.sysctls, "net.core.netdev_budget": 600})
    assert [each.line for each in named(replace(of, snapshot=planned), "softnet-squeezed").remedies] == [
        "sysctl -w net.core.netdev_budget=1200",
        "net.core.netdev_budget = 1200",
        "sysctl -w net.core.netdev_budget_usecs=4000",
        "net.core.netdev_budget_usecs = 4000",
    ]


def test_a_connection_is_refused_without_a_full_queue():
    full = named(counters(TcpExtListenDrops=4, TcpExtListenOverflows=4), "tcp-listen-drops")
    assert full.is_fixable
    other = named(counters(TcpExtListenDrops=4, TcpExtListenOverflows=0), "tcp-listen-drops")
    assert other.message == "services of the host refuse TCP connections, and no queue of theirs was full"
    assert (other.remedies, other.is_fixable) == ((), False)


@pytest.mark.parametrize(("value", "wanted"), [(4000, 16_000), (16_000, 64_000), (64_000, None), (2**30, None)])
def test_a_backlog_that_is_long_already_is_no_short_one(value, wanted):
    of = with_sysctl(softnet(dropped=3), "net.core.netdev_max_backlog", value)
    found = named(of, "softnet-drops")
    assert [each.line for each in found.remedies[:1]] == [f"sysctl -w net.core.netdev_max_backlog={wanted}"] * bool(
        wanted
    )


@pytest.mark.parametrize(("value", "wanted"), [(4096, 8192), (40_000, 65_535), (65_535, None)])
def test_the_kernel_takes_the_queue_of_new_connections(value, wanted):
    """Older kernels refuse more than 65535."""
    of = with_sysctl(counters(TcpExtListenDrops=4, TcpExtListenOverflows=4), "net.core.somaxconn", value)
    found = named(of, "tcp-listen-drops")
    assert [each.line for each in found.remedies[:1]] == [f"sysctl -w net.core.somaxconn={wanted}"] * bool(wanted)


def test_a_service_that_a_limit_stops_accepts_no_connections():
    of, limited = counters(TcpExtListenDrops=4, TcpExtListenOverflows=4), pressed(0.0, 300, 40)
    samples = (
        replace(each, throttled=other.throttled) for each, other in zip(of.samples, limited.samples, strict=True)
    )
    found = named(replace(of, samples=tuple(samples)), "tcp-listen-drops")
    assert facts(found)["stopped by CPU limits"] == "s0.service 15 % of the time"
    assert "stopped by CPU limits" not in facts(named(of, "tcp-listen-drops"))


def with_sysctl(of, key, value):
    return replace(of, snapshot=replace(of.snapshot, sysctls={**of.snapshot.sysctls, key: value}))


@pytest.mark.parametrize(("out", "message", "is_fixable"), [
    (40, "the host swaps while guests run", True),
    (0, "the host reads pages back from swap while guests run", False),
])  # fmt: skip
def test_pages_that_come_back_are_no_longer_pushed_out(out, message, is_fixable):
    """The shortage is over, or somebody ended the use of swap."""
    found = named(swapping({"pswpin": 90, "pswpout": out}), "host-swapping")
    assert (found.message, found.is_fixable, bool(found.remedies)) == (message, is_fixable, is_fixable)


def test_whose_pages_are_in_swap_and_how_short_memory_is():
    found = named(swapping({"pswpout": 90}, {"MemAvailable": 700, "MemTotal": 1000}), "host-swapping")
    assert (facts(found)["of guests"], facts(found)["MemAvailable"]) == (9, 700)


def swapping(counts, memory=None):
    guest = placed()
    first, last = (
        HostSample(counters={**dict.fromkeys(counts, 5), **(memory or {})}, swapped_kib={guest.pid: 9})
        for _ in range(2)
    )
    last = replace(last, counters={**last.counters, **{name: 5 + count for name, count in counts.items()}})
    return reading(first, last, guests=[guest])


def realtime(ran, waited, runtime=950_000, policy="fifo"):
    """A guest whose vCPUs ran and waited so much of the time."""
    guest = placed()
    vcpus = (replace(vcpu, thread=replace(vcpu.thread, realtime=policy)) for vcpu in guest.vcpus)
    guest = replace(guest, vcpus=tuple(vcpus))
    times = [ThreadTimes(round(at * ran / 50 * SECOND), round(at * waited / 50 * SECOND)) for at in (0, 1)]
    first, last = (
        HostSample(threads={vcpu.thread.tid: each for vcpu in guest.vcpus}, spare_ms=dict.fromkeys(range(16), 7))
        for each in times
    )
    sysctls = {"kernel.sched_rt_runtime_us": runtime}
    return reading(Seen(sample=first, sysctls=sysctls), Seen(sample=last, sysctls=sysctls), [guest])


@pytest.mark.parametrize(
    ("of", "waits"),
    [
        (realtime(94.0, 6.0), False),
        (realtime(94.0, 6.0, runtime=-1), True),
        (realtime(94.0, 6.0, policy=""), True),
        # It never ran so long that the kernel stopped it.
        (realtime(10.0, 6.0), True),
    ],
)
def test_real_time_throttling_is_no_contention(of, waits):
    assert ("vcpu-run-delay" in {each.code for each in findings(of)}) == waits


def test_what_throttling_does_not_explain_is_contention():
    found = named(realtime(76.0, 24.0), "vcpu-run-delay")
    assert found.message == "4 of 4 vCPUs of guest g1 wait 20 % of the time for a CPU"
    assert facts(found)["by real-time throttling"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("emulator", "others", "is_safe"), [("2-3", "0-15", True), ("4-5", "0-15", False), ("2-3", "5-6", False)]
)
def test_throttling_stays_where_a_thread_has_no_other_cpu(emulator, others, is_safe):
    """It would never run beside a real-time vCPU that polls."""
    of = realtime(94.0, 6.0)
    (guest,) = of.snapshot.guests
    threads = tuple(replace(each, affinity=cpus(emulator)) for each in guest.emulator.threads)
    guest = replace(guest, emulator=replace(guest.emulator, threads=threads))
    snapshot = replace(of.snapshot, guests=(guest,), processes=(process(70, 0.0, others),))
    found = named(replace(of, snapshot=snapshot), "rt-throttling")
    assert (bool(found.remedies), found.is_fixable) == (is_safe, is_safe)
    assert ("CPUs of starving threads" in facts(found)) == (not is_safe)


def waiting_services(guest=None, waited=0.0, **more):
    guest = guest or guest_(1, 4, cpus("0-15"))
    first, last = (replace(each, pressure={"system.slice.cpu.some": 30.0}) for each in delayed(guest, waited))
    return reading(first, last, [guest], **more)


@pytest.mark.parametrize(
    ("of", "takes"),
    [
        (waiting_services(), True),
        # The guests wait, too; or somebody preferred them; or they share no CPU with services.
        (waiting_services(waited=30.0), False),
        (waiting_services(cpu_weights={"machine.slice": 1000}), False),
        (waiting_services(placed(), baseline=cpus("0-1")), False),
    ],
)
def test_a_weight_of_the_services_takes_no_time_that_guests_need(of, takes):
    lines = [each.line for each in named(of, "housekeeping-pressure").remedies]
    assert ("systemctl set-property system.slice CPUWeight=1000" in lines) == takes


def daemon(realtime):
    """Its threads use 90 % of a CPU on those of the vCPUs."""
    made = process(70, 90.0, "4-7")
    return replace(made, threads=tuple(replace(each, realtime=realtime) for each in made.threads))


def with_realtime(of):
    (guest,) = of.snapshot.guests
    vcpus = tuple(replace(vcpu, thread=replace(vcpu.thread, realtime="fifo")) for vcpu in guest.vcpus)
    return replace(of, snapshot=replace(of.snapshot, guests=(replace(guest, vcpus=vcpus),)))


@pytest.mark.parametrize(
    ("of", "helps"),
    [
        (beside(1800, processes=(daemon(""),)), True),
        (beside(1800, processes=(daemon("fifo"),)), False),
        (with_realtime(beside(1800)), False),
    ],
)
def test_a_weight_moves_no_real_time_thread(of, helps):
    found = named(of, "host-delays-vcpus")
    assert (bool(found.remedies), found.is_fixable) == (helps, helps)


def crowd(spare_ms, ran=25.0, **lost):
    """Two guests of 16 vCPUs each float over 16 CPUs. Each vCPU ran so much of the 2 s and waited half of them; each
    CPU ran no thread for so many ms."""
    guests = [guest_(number, 16, cpus("0-15")) for number in (1, 2)]
    tids = [vcpu.thread.tid for guest in guests for vcpu in guest.vcpus]
    first, last = (
        HostSample(
            threads=dict.fromkeys(tids, ThreadTimes(round(at * ran / 50 * SECOND), at * SECOND)),
            spare_ms=dict.fromkeys(range(16), at * spare_ms),
            **{name: dict.fromkeys(range(16), at * ms) for name, ms in lost.items()},
        )
        for at in (0, 1)
    )
    return reading(first, last, guests)


FULL = ", and guests and the kernel take all CPUs"
STOLEN = ", while a hypervisor takes 50 % of the time of its CPUs"


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (crowd(1000), ""),
        # The host's processes take half of each CPU.
        (crowd(0), ""),
        (crowd(0, ran=50.0), FULL),
        (crowd(1000, interrupts_ms=990), FULL),
        (crowd(1200, ran=20.0, stolen_ms=1000), STOLEN),
    ],
)
def test_no_placement_gives_time_that_the_host_has_not(of, why):
    found = [each for each in findings(of) if each.code == "vcpu-run-delay"]
    assert {each.message.partition(" for a CPU")[2] for each in found} == {why}
    assert {bool(each.remedies) for each in found} == {not why}


def test_no_plan_moves_a_guest_that_migrates():
    guest = replace(placed("6-9"), state="migrating")
    other = guest_(2, 2, cpus("0-15"))
    found = [each for each in findings(reading(*delayed(guest, 30.0), [guest, other])) if each.subject.name == "g1"]
    (waits,) = (each for each in found if each.code == "vcpu-run-delay")
    assert waits.message == "4 of 4 vCPUs of guest g1 wait 30 % of the time for a CPU, while it is migrating"
    assert waits.remedies == ()
