"""Hosts that look faulty, and are not."""

from dataclasses import replace

import pytest
from support.hosts import GIB, cpus, process, snapshot
from support.made_up.checks.check_cases_cpus import beside
from support.made_up.checks.check_cases_hosts import CASES as HOSTS
from support.made_up.checks.check_cases_hosts import booted, kernel_thread, pair, realtime, weighed
from support.made_up.checks.check_cases_network import CASES as NETWORK
from support.made_up.readings import DISK, Seen, codes, counted, findings, host, irq, nic, placed, reading

from pinner.host.reading.sampler import take_reading
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.machine.interrupts import Balancer
from pinner.model.machine.topology import HugePages
from pinner.model.reading import HostDetails, HostReading, HostSample, Storage, ThreadTimes


@pytest.mark.parametrize(("first", "second", "code"), [("1", "9", "smt-shared-core"), ("3", "3", "vcpus-overlap")])
def test_a_pool_of_one_cpu_is_no_cpu_of_its_own(first, second, code):
    found = pair(first, second)
    guests = [replace(guest, pooled=cpus(first)) for guest in found.snapshot.guests[:1]]
    shared = replace(found, snapshot=replace(found.snapshot, guests=(*guests, found.snapshot.guests[1])))
    assert code in codes(found)
    assert code not in codes(shared)


@pytest.mark.parametrize("last", ["rcu_nocbs=4-N", "rcu_nocbs=all", "rcu_nocbs=0-N"])
def test_the_kernel_reads_n_as_its_last_cpu(last):
    assert "isolation-without-nocbs" not in codes(reading(top=booted(f"isolcpus=4-7 {last}", isolated="4-7")))


def test_arguments_with_n_that_the_kernel_ignores_are_found():
    assert "kernel-arguments-ignored" in codes(reading(top=booted("nohz_full=4-N")))


@pytest.mark.parametrize("name", ["kswapd1", "kcompactd1"])
def test_the_remedy_for_a_thread_of_a_node_keeps_it_on_the_node(name):
    top, thread = booted("isolcpus=4-11", isolated="4-11", nohz_full="4-11"), kernel_thread(name, "0-15")
    for found in findings(reading(top=top, processes=(thread,))):
        if found.code in ("kthreads-on-isolated", "node-kthreads-off-node"):
            assert [remedy.line for remedy in found.remedies] == ["taskset -pc 12-15 60"]


def test_one_kernel_thread_is_no_plural():
    texts = [each.message for each in findings(reading(processes=(kernel_thread("kswapd1", "0-15"),)))]
    assert texts == ["1 kernel thread of a node's memory may run on CPUs of other nodes"]


def test_a_kernel_thread_that_pinner_may_not_move_is_reported_all_the_same():
    thread = replace(kernel_thread("kswapd1", "0-15"), immovable_reason="not-permitted")
    assert codes(reading(processes=(thread,))) == {"node-kthreads-off-node"}


def test_huge_pages_of_guests_are_no_lack_of_memory():
    top = host()
    nodes = tuple(replace(node, hugepages=(HugePages(1 << 20, 480, 0),)) for node in top.nodes)
    known = {"MemTotal": 1024 * GIB, "MemAvailable": 30 * GIB}
    of_the_host = reading(HostSample(counters=known), top=replace(top, nodes=nodes))
    assert "memory-low" not in codes(of_the_host)
    scarce = {**known, "MemAvailable": 2 * GIB}
    assert "memory-low" in codes(replace(of_the_host, samples=(HostSample(counters=scarce),)))


def test_transparent_huge_pages_may_be_off_where_every_guest_has_huge_pages():
    never = {"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"}
    setting = Seen(details=HostDetails(settings=never))
    own = replace(placed(), numa=GuestNuma(huge_kib={0: GIB}))
    assert findings(reading(setting, guests=[own])) == ()
    assert "thp-never" in codes(reading(setting, guests=[own, placed()]))


def test_a_deep_idle_state_that_is_disabled_now_delays_no_vcpu():
    """Its time grows where it was disabled during the sample."""
    used, _ = HOSTS["cpu-deep-idle"]
    now = replace(used.now, idle=tuple(replace(state, is_disabled=True) for state in used.now.idle))
    assert "cpu-deep-idle" in codes(used)
    assert "cpu-deep-idle" not in codes(replace(used, samples=(used.samples[0], now)))


def test_a_host_without_guests_may_swap():
    swapping, _ = HOSTS["host-swapping"]
    assert "host-swapping" not in codes(replace(swapping, snapshot=replace(swapping.snapshot, guests=())))


def test_irqbalance_leaves_isolated_cpus_alone_by_default():
    """irqbalance(1): without IRQBALANCE_BANNED_CPULIST it bans the CPUs of isolcpus and nohz_full."""
    running = (Balancer(700, "--foreground", cpus("")),)
    booted_alone = booted("isolcpus=4-5 nohz_full=6-7 rcu_nocbs=4-7", isolated="4-5", nohz_full="6-7")
    assert "irqbalance-unbanned" not in codes(
        reading(guests=[placed("4-7", "0-15")], top=booted_alone, irqbalance=running)
    )
    partition = reading(top=booted("ro", isolated="4-5"), irqbalance=running)
    assert "irqbalance-unbanned" in codes(partition)


def test_an_nvme_queue_is_managed_where_the_kernel_does_not_tell():
    """The drivers of NVMe disks leave the interrupts of their queues to the kernel: smp_affinity refuses a mask."""
    queue, admin = (irq(90, "5", {5: 30}, DISK, name=f"nvme0q{number}") for number in (3, 0))
    assert "irq-managed" in codes(reading(Seen(irqs=(queue,)), guests=[placed()]))
    assert "irq-on-guest-cpus" not in codes(reading(Seen(irqs=(queue,)), guests=[placed()]))
    assert "irq-on-guest-cpus" in codes(reading(Seen(irqs=(admin,)), guests=[placed()]))


def test_the_remedy_of_managed_interrupts_keeps_the_isolation():
    queue, top = irq(40, "5", {5: 10}, managed=True), booted("isolcpus=4-7", isolated="4-7")
    (found,) = (each for each in findings(reading(Seen(irqs=(queue,)), top=top)) if each.code == "irq-managed")
    assert [remedy.line for remedy in found.remedies] == ["isolcpus=managed_irq,domain,4-7"]


@pytest.mark.parametrize(("runtime", "period"), [(1_000_000, "1000000"), (1_000_000, None), (-1, "1000000")])
def test_a_limit_of_the_whole_period_throttles_nothing(runtime, period):
    limited = realtime(runtime)
    if period:
        settings = {"proc/sys/kernel/sched_rt_period_us": period}
        limited = replace(limited, details=HostDetails(settings=settings))
    assert "rt-throttling" not in codes(limited)


@pytest.mark.parametrize(("memory_kib", "found"), [(0, False), (64 * GIB, True)], ids=["none", "some"])
def test_a_node_without_memory_has_that_of_the_nearest_node(memory_kib, found):
    nodes = tuple(replace(node, memory_kib=memory_kib) if node.id == 1 else node for node in host().nodes)
    cell = GuestCell(0, cpus("0-3"), GIB, MemoryBinding("strict", (0,)))
    guest = placed("8-11", "12", memory={0: GIB})
    guest = replace(guest, numa=replace(guest.numa, huge_kib={0: GIB}, cells=(cell,)))
    seen = codes(reading(guests=[guest], top=replace(host(), nodes=nodes)))
    assert ({"memory-remote", "hugepages-remote", "guest-cells-contradict"} & seen != set()) == found
    assert ({"memory-remote", "hugepages-remote", "guest-cells-contradict"} <= seen) == found


def test_an_interface_that_gets_the_name_of_another_has_not_its_counters():
    card, other = nic("ens1", index=2, ring=(512, 4096)), nic("ens2", index=3, ring=None)
    other = counted(other, rx_missed_errors=5000)
    renamed = named(card, "ens2"), replace(named(other, "ens1"), ring=card.ring)
    swapped = reading(Seen(nics=(card, other)), Seen(nics=renamed))
    assert not {"nic-small-ring", "nic-no-room", "nic-vanished"} & {each.code for each in findings(swapped)}
    losing = replace(renamed[0], statistics={**card.statistics, "rx_missed_errors": 7})
    (found,) = findings(reading(Seen(nics=(card, other)), Seen(nics=(losing, renamed[1]))))
    assert (found.code, found.subject.name, found.evidence[2].value) == ("nic-small-ring", "ens2", 7)


def named(card, name):
    return replace(card, nic=replace(card.nic, name=name))


def test_a_tap_that_is_made_anew_under_its_name_has_vanished():
    first, second = nic("tap1", "", index=5), counted(nic("tap1", "", index=9), tx_dropped=900)
    anew = reading(Seen(nics=(first,)), Seen(nics=(second,)), [placed()])
    assert "tap-drops" not in {each.code for each in findings(anew)}
    assert "nic-vanished" in {each.code for each in findings(anew)}


def test_an_interrupt_that_gets_the_number_of_another_has_not_its_rate():
    before, now = irq(24, "4", {4: 10}), irq(24, "4", {4: 1_000_000}, DISK, name="nvme0q0")
    of = reading(Seen(irqs=(before,)), Seen(irqs=(now,)), [placed()])
    (found,) = (each for each in findings(of) if each.code == "irq-on-guest-cpus")
    assert (found.severity, found.evidence[2].value) == ("warning", 0.0)


@pytest.mark.parametrize(("next_on", "last_on", "found"), [("4", "0", True), ("0", "4", False)])
def test_an_interrupt_that_follows_its_affinity_when_it_next_fires_is_judged_by_the_next_one(next_on, last_on, found):
    """As on x86 without interrupt remapping."""
    late = irq(24, next_on, {0: 10}, effective=cpus(last_on))
    assert ("irq-on-guest-cpus" in codes(reading(Seen(irqs=(late,)), guests=[placed()]))) == found


@pytest.mark.parametrize(("uid", "found"), [(0, True), (1000, False)])
def test_a_name_that_a_user_gives_to_a_process_is_no_fault_of_the_host(tmp_path, uid, found):
    named = (
        replace(process(70, 0.0, "0-15", name="tuned"), unit="x; reboot #.service"),
        replace(process(71, 0.0, "0-15"), command="pinner serve", unit="x; reboot #.service"),
    )
    taken = snapshot(host(), processes=named)
    for each in named:
        (tmp_path / f"proc/{each.pid}").mkdir(parents=True)
        (tmp_path / f"proc/{each.pid}/status").write_text(f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    of = take_reading(tmp_path, taken, 0.0)
    assert ({"placer-running", "another-pinner"} <= codes(of)) == found
    lines = [remedy.line for each in findings(of) for remedy in each.remedies]
    assert ("systemctl disable --now tuned.service" in lines) == found
    assert not any("reboot" in line for line in lines)
    assert found or not lines


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("/usr/bin/python3 -P /usr/bin/pinner serve --only agent", True),
        ("/opt/venv/bin/python3.11 /opt/venv/bin/pinner serve", True),
        ("python3 -m pinner serve", True),
        ("sudo pinner serve", False),
        ("/usr/bin/strace -f pinner serve", False),
        ("vim pinner server.md", False),
        ("/usr/bin/pinner serverless", False),
    ],
)
def test_only_a_server_is_another_pinner(command, found):
    other = replace(process(70, 0.0, "0-15"), command=command)
    assert ("another-pinner" in codes(reading(processes=(other,)))) == found


@pytest.mark.parametrize(
    ("total", "free", "found"), [(2000 * GIB, 50 * GIB, False), (2000 * GIB, 9 * GIB, True), (0, 0, False)]
)
def test_a_file_system_has_room_by_its_size_and_its_gigabytes(total, free, found):
    """One that does not tell its size, as some network file systems, is not known to be full."""
    storage = Storage("/var/lib/pinner", total, free)
    assert ("journal-disk-full" in codes(reading(Seen(details=HostDetails(storage=(storage,)))))) == found


def test_the_kernel_takes_the_weight_of_the_remedy():
    faulty = weighed(9000)
    wide = replace(faulty.snapshot.guests[0], vcpus=faulty.snapshot.guests[0].vcpus * 2)
    guests = (wide, *faulty.snapshot.guests[1:])
    found = findings(replace(faulty, snapshot=replace(faulty.snapshot, guests=guests)))
    (remedy,) = next(each.remedies for each in found if each.code == "guest-weights-differ")
    assert remedy.line.endswith(" cpu_shares=10000")


def test_a_guest_that_the_kernel_calls_idle_has_the_weight_of_idle_tasks():
    """The kernel shows 0 for a cgroup with cpu.idle, and refuses a weight for it."""
    found = findings(weighed(0))
    (only,) = [each for each in found if each.code == "guest-weights-differ"]
    assert (only.severity, only.subject.name) == ("warning", "g2")
    assert "gets 341 times the CPU time of guest g2" in only.message
    idle, weight = (remedy.line for remedy in only.remedies)
    assert idle == "echo 0 > /sys/fs/cgroup/machine.slice/g2/cpu.idle"
    assert weight.endswith(" cpu_shares=100")


@pytest.mark.parametrize("last", [0, 10**9])
def test_a_new_thread_with_the_id_of_an_ended_one_makes_no_load_of_the_host(last):
    """The time of the ended thread was taken off a second time, as the load of others."""
    fine = beside(1950)
    kernels = (
        {**each.threads, 77: ThreadTimes(ran, 0)} for each, ran in zip(fine.samples, (10**12, last), strict=True)
    )
    samples = (replace(each, threads=threads) for each, threads in zip(fine.samples, kernels, strict=True))
    assert "host-delays-vcpus" not in codes(replace(fine, samples=tuple(samples)))


def test_a_run_delay_that_went_back_is_no_failure_of_a_check():
    fine = beside(1950)
    backwards = replace(fine, samples=tuple(map(swapped, fine.samples, reversed(fine.samples))))
    unknown = {each.code: each.message for each in findings(backwards) if each.severity == "unknown"}
    assert set(unknown) == {"vcpu-run-delay", "host-delays-vcpus"}
    assert all(words.startswith("not known, because the counter run delay went back") for words in unknown.values())


def swapped(sample, other):
    return replace(sample, threads=other.threads)


@pytest.mark.parametrize(
    ("shared", "dedicated", "isolated", "line"),
    [
        ("2-5", "", "4-7", "cpu_shared_set = 2-3"),
        ("4-7", "", "4-7", "cpu_shared_set = 2-3,10-15"),
        ("4-7", "0-3,8-15", "4-7", "cpu_dedicated_set = 0-15, without cpu_shared_set"),
    ],
)
def test_the_remedy_of_isolated_shared_cpus_is_no_empty_set(shared, dedicated, isolated, line):
    """With both sets empty, Nova gives all CPUs to floating guests, the isolated ones too."""
    top = booted(f"isolcpus={isolated}", isolated=isolated)
    found = findings(reading(top=top, shared=cpus(shared), dedicated=cpus(dedicated)))
    (only,) = [each for each in found if each.code == "nova-shared-isolated"]
    assert [remedy.line for remedy in only.remedies] == [line]


def with_sysctl(code, key, value):
    """The faulty host of the check, with another value of a sysctl; the finding's first line, and whether a plan cures
    it."""
    faulty = NETWORK.get(code) or HOSTS[code]
    taken = faulty[0].snapshot
    changed = replace(taken, sysctls={**taken.sysctls, key: value})
    found = [each for each in findings(replace(faulty[0], snapshot=changed)) if each.code == code]
    return next((remedy.line for remedy in found[0].remedies), ""), found[0].is_fixable


@pytest.mark.parametrize(
    ("code", "key", "value", "line", "is_fixable"),
    [
        ("softnet-drops", "net.core.netdev_max_backlog", 1000, "sysctl -w net.core.netdev_max_backlog=4000", True),
        ("softnet-drops", "net.core.netdev_max_backlog", 3999, "sysctl -w net.core.netdev_max_backlog=4000", True),
        ("softnet-drops", "net.core.netdev_max_backlog", 4000, "sysctl -w net.core.netdev_max_backlog=16000", False),
        ("softnet-squeezed", "net.core.netdev_budget", 300, "sysctl -w net.core.netdev_budget=600", True),
        ("softnet-squeezed", "net.core.netdev_budget", 600, "sysctl -w net.core.netdev_budget=1200", False),
        ("tcp-listen-drops", "net.core.somaxconn", 128, "sysctl -w net.core.somaxconn=4096", True),
        ("tcp-listen-drops", "net.core.somaxconn", 4096, "sysctl -w net.core.somaxconn=8192", False),
        ("udp-buffer-errors", "net.core.rmem_max", 212992, "sysctl -w net.core.rmem_max=26214400", True),
        ("udp-buffer-errors", "net.core.rmem_max", 99999999, "", False),
        ("udp-socket-drops", "net.core.rmem_max", 212992, "sysctl -w net.core.rmem_max=26214400", True),
        ("udp-socket-drops", "net.core.rmem_max", 99999999, "", False),
        ("host-swapping", "vm.swappiness", 60, "sysctl -w vm.swappiness=1", True),
        ("host-swapping", "vm.swappiness", 0, "", False),
    ],
)
def test_the_remedy_makes_no_sysctl_worse(code, key, value, line, is_fixable):
    assert with_sysctl(code, key, value) == (line, is_fixable)


def cpu_change(*, first: str, then: str) -> HostReading:
    """Two interrupts in two samples, each with the CPUs that are online then; the vCPUs have CPUs 4-7."""
    counts = [{4: 1_000_000, 0: 10}, {5: 7, 0: 10}]
    samples = [
        Seen(
            irqs=tuple(
                irq(24 + n, "0", {cpu: taken for cpu, taken in each.items() if cpu in cpus(online)})
                for n, each in enumerate(counts)
            ),
            sample=HostSample(spare_ms=dict.fromkeys(cpus(online), 5)),
        )
        for online in (first, then)
    ]
    return reading(*samples, [placed()])


def test_an_interrupt_is_not_reset_by_a_cpu_that_goes_offline():
    gone = [each for each in findings(cpu_change(first="0-15", then="0-3,5-15")) if each.code == "irq-count-reset"]
    why = "CPU 4 went offline during the sample: its counts are not listed now (interrupts: 1)"
    assert [(str(each.subject), each.message) for each in gone] == [("cpu 4", f"not known, because {why}")]


def test_an_interrupt_that_is_reset_while_a_cpu_goes_offline_is_known_to_be_reset():
    of = cpu_change(first="0-15", then="0-3,5-15")
    reset = tuple(replace(each, counts={0: 3}) for each in of.now.irqs)
    of = replace(of, samples=(of.samples[0], replace(of.now, irqs=reset)))
    found = [str(each.subject) for each in findings(of) if each.code == "irq-count-reset"]
    assert sorted(found) == ["cpu 4", "irq 24", "irq 25"]


def test_a_cpu_that_comes_online_did_not_take_all_its_interrupts_in_the_sample():
    of = cpu_change(first="0-3,5-15", then="0-15")
    irqs = of.snapshot.irqs
    wrong = replace(irqs, irqs=tuple(replace(each, cpus=cpus("4"), effective=cpus("4")) for each in irqs.irqs))
    seen = findings(replace(of, snapshot=replace(of.snapshot, irqs=wrong)))
    (found,) = (each for each in seen if each.code == "irq-on-guest-cpus")
    assert found.severity == "warning"
    assert {each.name: each.value for each in found.evidence}["interrupt rate"] == 0


@pytest.mark.parametrize("managed", [False, True])
def test_no_interrupt_goes_to_a_cpu_that_is_offline(managed):
    """Nor to another node: the kernel gave it a CPU that it does not report yet."""
    queue = irq(24, "5", {5: 10}, managed=managed)
    offline = reading(Seen(irqs=(queue,)), guests=[placed("4-7")], top=host(offline="5"))
    assert not {"irq-on-guest-cpus", "irq-managed", "irq-off-node"} & codes(offline)


@pytest.mark.parametrize("number", [-1, 9000, 10**10, 2**64])
def test_a_number_in_a_capture_that_no_cpu_has_fails_no_check_of_interrupts(number):
    sample = Seen(irqs=(irq(24, "5", {5: 10}),), sample=HostSample(spare_ms={5: 1}))
    edited = replace(sample, sample=HostSample(spare_ms={5: 1, number: 1}))
    for of in (reading(sample, edited, [placed()]), reading(edited, sample, [placed()])):
        assert not [each for each in findings(of) if "the check failed" in each.message]
