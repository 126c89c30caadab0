"""The evidence of `pinner check` on this host is what the standard tools say: ethtool, nstat, ss, ip, numastat."""

import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.hosts import guest as made_guest
from support.made_up.readings import tap

from pinner.host.inventory import take_snapshot
from pinner.host.processes import qemu
from pinner.host.reading.network import read_counters, read_softnet
from pinner.host.reading.sampler import read_irq_counts, read_settings, read_times, take_reading
from pinner.host.settings.sysctls import read_sysctls
from pinner.model.outcome.check import CheckFinding
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.service.hosts.checker import HostChecker

pytestmark = pytest.mark.needs("root")

ROOT = Path("/")
TAP = "pnrcheck0"
TUNSETIFF, IFF_TAP_NO_PI = 0x400454CA, 0x1002
"""Makes a tap device, by include/uapi/linux/if_tun.h."""


def run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return take_snapshot(ROOT, "h1", None, sample_seconds=0, now=lambda: datetime.now(UTC))


def between(snapshot: Snapshot, cause: Callable[[], object]) -> HostReading:
    """A reading whose samples enclose the cause of a fault."""
    return take_reading(ROOT, snapshot, 0.5, sleep=lambda _: cause())


def findings(reading: HostReading) -> dict[str, CheckFinding]:
    return {each.code: each for each in HostChecker().check(reading).findings}


def fact(finding: CheckFinding, name: str) -> object:
    return next(each.value for each in finding.evidence if each.name == name)


@pytest.fixture
def cards(snapshot: Snapshot) -> Snapshot:
    return snapshot if snapshot.rings or snapshot.queues else pytest.skip("needs a network card")


def settings(text: str) -> list[dict[str, int]]:
    """The numbers of `ethtool -g` or `-l`: the maximums, then the current ones."""
    parts = re.split(r"Current hardware settings:", text)
    return [{name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)$", part, re.M)} for part in parts]


@pytest.mark.machine("needs the real cards of the machine")
def test_rings_queues_and_coalescing_are_those_of_ethtool(cards):
    for ring in cards.rings:
        most, now = settings(run("ethtool", "-g", ring.interface))
        assert (ring.size, ring.most) == (now.get("RX", 0), most.get("RX", 0))
    for queues in cards.queues:
        most, now = settings(run("ethtool", "-l", queues.interface))
        assert (queues.count, queues.most) == (now["Combined"], most["Combined"])
    for gathers in cards.coalescing:
        found = re.search(r"^rx-usecs:\s+(\d+)", run("ethtool", "-c", gathers.interface), re.M)
        assert gathers.usecs == (int(found[1]) if found else 0)


@pytest.mark.machine("needs the real cards of the machine")
def test_offloads_and_counters_are_those_of_ethtool(cards):
    reading = take_reading(ROOT, cards, 0.0)
    for nic in (each for each in reading.details.nics if each.device):
        printed = run("ethtool", "-k", nic.name)
        for name, short in (("rx-gro", "generic-receive-offload"), ("tx-tcp-segmentation", "tx-tcp-segmentation")):
            if name in nic.offloads and (found := re.search(rf"^\s*{short}: (on|off)", printed, re.M)):
                assert nic.offloads[name] == (found[1] == "on")
        names = {line.strip().rpartition(":")[0] for line in run("ethtool", "-S", nic.name).splitlines()}
        assert next(each.driver.keys() for each in reading.now.nics if each.key == nic.key) <= names


@pytest.mark.needs("network_cards")
def test_interfaces_with_their_bridge_and_queues_are_those_of_ip(snapshot):
    with ExitStack() as made:
        for arguments in ("pnrbr0 type bridge mcast_querier 1", "pnrve0 numrxqueues 3 numtxqueues 2 type veth"):
            run("ip", "link", "add", *arguments.split())
            made.callback(run, "ip", "link", "del", arguments.split()[0])
        run("ip", "link", "set", "pnrve0", "master", "pnrbr0", "txqueuelen", "77")
        nics = {nic.name: nic for nic in take_reading(ROOT, snapshot, 0.0).details.nics}
        links = {link["ifname"]: link for link in json.loads(run("ip", "-d", "-json", "link"))}
    for name in ("pnrbr0", "pnrve0"):
        nic, link = nics[name], links[name]
        assert nic.queue_length == link["txqlen"]
        assert (len(nic.rx_flows), nic.tx_queues) == (link["num_rx_queues"], link["num_tx_queues"])
        assert nic.is_up == (link["operstate"] in ("UP", "UNKNOWN"))
    told = links["pnrbr0"]["linkinfo"]["info_data"]
    bridge = nics["pnrbr0"].bridge
    assert bridge is not None
    assert (bridge.is_snooping, bridge.is_querier) == (told["mcast_snooping"] == 1, told["mcast_querier"] == 1)


def test_settings_are_those_of_sysctl():
    found = {path: text for path, text in read_settings(ROOT).items() if path.startswith("proc/sys/")}
    found |= {f"proc/sys/{key.replace('.', '/')}": str(value) for key, value in (read_sysctls(ROOT) or {}).items()}
    assert {"proc/sys/kernel/sched_rt_period_us", "proc/sys/vm/swappiness"} <= found.keys()
    for path, text in found.items():
        assert text.split() == run("sysctl", "-n", path.removeprefix("proc/sys/").replace("/", ".")).split()


def test_the_delay_of_a_thread_is_that_of_the_kernel(snapshot):
    tid = os.getpid()

    def delay() -> int:
        return int(Path(f"/proc/{tid}/schedstat").read_text().split()[1])

    before, found, after = delay(), read_times(ROOT, (tid,))[tid], delay()
    assert before <= found.wait_ns <= after


def test_interrupts_are_those_of_the_kernels_table():
    before, table, after = read_irq_counts(ROOT), Path("/proc/interrupts").read_text(), read_irq_counts(ROOT)
    count = len(table.splitlines()[0].split())
    totals = {}
    for line in table.splitlines()[1:]:
        label, *words = line.split()
        if label[:-1].isdecimal():
            totals[int(label[:-1])] = sum(map(int, words[:count]))
    assert totals
    for first, last in zip(before, after, strict=True):
        assert first.total <= totals[first.number] <= last.total


def test_counters_are_those_of_nstat():
    before = read_counters(ROOT)
    shown = json.loads(run("nstat", "-asz", "--json"))["kernel"]
    after = read_counters(ROOT)
    both = {name for name in before if name in shown and name.startswith(("Udp", "TcpExtListen"))}
    assert {"UdpRcvbufErrors", "TcpExtListenDrops", "TcpExtListenOverflows"} <= both
    for name in both:
        assert before[name] <= shown[name] <= after[name]


def test_softnet_has_a_row_for_each_online_cpu(snapshot):
    assert {row.cpu for row in read_softnet(ROOT)} == snapshot.topology.online.ids


@contextmanager
def full_socket() -> Iterator[tuple[socket.socket, Callable[[], None]]]:
    """A UDP socket that nobody reads, and a function that sends it more packets than its buffer holds."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.bind(("127.0.0.1", 0))

        def flood() -> None:
            for _ in range(200):
                sender.sendto(bytes(1000), reader.getsockname())

        yield reader, flood


def test_drops_of_a_udp_socket_are_those_of_ss_and_nstat(snapshot):
    with full_socket() as (reader, flood):
        flood()  # a socket without drops is in no sample
        reading = between(snapshot, flood)
        port = reader.getsockname()[1]
        shown = run("ss", "-uamnH", f"sport = :{port}")
    assert reading.before is not None
    (sampled,) = (each for each in reading.now.sockets if each.address == f"127.0.0.1:{port}")
    found = re.search(r"\bd(\d+)\)", shown)
    assert found
    assert sampled.drops == int(found[1])
    finding = findings(reading)["udp-socket-drops"]
    assert finding.subject.name == f"udp 127.0.0.1:{port}"
    assert fact(finding, "drops") == 200
    grew = reading.now.counters["UdpRcvbufErrors"] - reading.before.counters["UdpRcvbufErrors"]
    assert fact(findings(reading)["udp-buffer-errors"], "UdpRcvbufErrors") == grew >= 200


def test_connections_that_a_full_queue_refuses_are_those_of_nstat(snapshot):
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)

        def connect() -> None:
            for _ in range(12):
                client = sockets.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(listener.getsockname())

        reading = between(snapshot, connect)
        later = json.loads(run("nstat", "-asz", "--json"))["kernel"]["TcpExtListenDrops"]
    assert reading.before is not None
    lost = fact(findings(reading)["tcp-listen-drops"], "TcpExtListenDrops")
    assert isinstance(lost, int)
    assert 0 < lost <= later - reading.before.counters["TcpExtListenDrops"]


@contextmanager
def full_tap() -> Iterator[Callable[[], None]]:
    """A tap that nobody reads, with a queue of 8 packets; gives a function that sends it more than that."""
    with open("/dev/net/tun", "r+b", buffering=0) as device:  # noqa: PTH123 - a device
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", TAP.encode(), IFF_TAP_NO_PI))
        run("ip", "link", "set", "dev", TAP, "txqueuelen", "8", "up")
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind((TAP, 0))

            def flood() -> None:
                for _ in range(300):
                    try:
                        sender.send(b"\xff" * 12 + b"\x88\xb5" + bytes(100))
                    except OSError:  # the queue is full, and the packet counts as dropped
                        continue

            yield flood


@pytest.mark.needs("taps")
def test_drops_of_a_tap_are_those_of_ip(snapshot):
    owner = made_guest(1, 2, snapshot.topology.online, taps=(tap(TAP),), vhost_threads=1)
    inner: list[int] = []

    def count() -> None:
        inner.append(dropped())
        flood()
        inner.append(dropped())

    with full_tap() as flood:
        before = dropped()
        reading = between(replace(snapshot, guests=(owner,)), count)
        after = dropped()
    finding = findings(reading)["tap-drops"]
    assert finding.subject.name == TAP
    assert finding.severity == "critical"
    drops = fact(finding, "drops")
    assert isinstance(drops, int)
    # The kernel sends frames of its own, such as router solicitations, to the tap at any moment.
    assert 0 < inner[1] - inner[0] <= drops <= after - before
    assert fact(finding, "tx_queue_len") == 8
    assert "tap-short-queue" in findings(reading)


def dropped() -> int:
    (link,) = json.loads(run("ip", "-s", "-json", "link", "show", "dev", TAP))
    return int(link["stats64"]["tx"]["dropped"])


def test_memory_by_node_is_that_of_numastat():
    shown = run("numastat", "-p", str(os.getpid()))
    total = re.search(r"^Total\s+([\d. ]+)$", shown, re.M)
    assert total
    per_node = [float(word) for word in total[1].split()][:-1]
    found = qemu.memory_per_node(ROOT, os.getpid())
    for node, mebibytes in enumerate(per_node):
        assert found.get(node, 0) / 1024 == pytest.approx(mebibytes, abs=8)


def test_a_guest_can_be_checked(start_guest, libvirt):
    """The checks see the guest's threads twice, and no check fails."""
    guest = start_guest()
    snapshot = take_snapshot(ROOT, "h1", libvirt, sample_seconds=0, now=lambda: datetime.now(UTC))
    reading = take_reading(ROOT, snapshot, 0.5)
    assert reading.before is not None
    tids = {vcpu.thread.tid for vcpu in guest.vcpus if vcpu.thread}
    assert tids <= reading.before.threads.keys() & reading.now.threads.keys()
    report = HostChecker().check(reading)
    assert all(each.evidence for each in report.findings)
    assert not [each for each in report.findings if each.subject.kind == "check"]
