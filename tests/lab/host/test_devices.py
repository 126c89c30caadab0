"""Cards and disks of two nodes on a lab host: their interrupts and settings are placed, kept in drift, and restored.

The host is devices.toml. The virtio cards begin with one queue of four, because the kernel finds them with one CPU.
"""

import io
import json
import re
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.system.lab import CALLER, apply, ended, guests, name, plan, rollback, server
from support.system.lab_interrupts import affinities, cpus_of, irqbalance, wait

from pinner import codec
from pinner.model.change import StateChange
from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.states import Coalescing, Number

VIRTIO, E1000E, PCNET = (0, 2), 4, 5
"""The positions of the cards in devices.toml; their MAC addresses end with them."""
HOUSEKEEPING = CpuSet.of([0, 4])
"""A CPU of each node."""
OPTIONS = {"housekeeping": str(HOUSEKEEPING)}
_FLOOD = """\
import socket, sys, time
card = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
card.bind((sys.argv[1], 0))
frame = bytes.fromhex(sys.argv[2]) + bytes.fromhex("020000000001") + b"\\x88\\xb5" + bytes(46)
until = time.monotonic() + 240
while time.monotonic() < until:
    try:
        card.send(frame)
    except BlockingIOError:
        time.sleep(0.001)
"""
"""Sends frames of a local experimental type (IEEE 802, 0x88b5) to a card, as fast as it takes them."""

_HOMES = """\
import glob, json
found = {}
for device in glob.glob("/sys/bus/pci/devices/*/"):
    node = int(open(device + "numa_node").read())
    for irq in glob.glob(device + "msi_irqs/*"):
        if node >= 0:
            found[irq.split("/")[-1]] = node
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def host(lab_host):
    host = lab_host("devices")
    for card in cards(host).values():
        host.run(f"ip link set {card} up")
    with guests(host, {"alpha": 2, "beta": 1}):
        yield host


def cards(host):
    """The name of the interface of each card, by the card's position in devices.toml."""
    found = {each["address"]: each["ifname"] for each in json.loads(host.run("ip -json link").out)}
    return {number: found[f"52:54:00:19:01:{number:02x}"] for number in (*VIRTIO, E1000E, PCNET)}


def of_kind(made, kind):
    return [change for change in made.changes if change.target.kind == kind]


def ethtool(host, option, card, line, occurrence):
    """A number in the word of ethtool."""
    said = host.run(f"ethtool {option} {card}").out
    return int(re.findall(rf"^{line}:\s+(\d+)$", said, re.MULTILINE)[occurrence])


def queues(host, card):
    return ethtool(host, "-l", card, "Combined", 1)


@contextmanager
def flood(host, position):
    """Very many packets for a card, from this machine's end of its tap."""
    tap = host.machine.tap(position)
    subprocess.run(["ip", "link", "set", tap, "up", "txqueuelen", "100000"], check=True)
    command = [sys.executable, "-c", _FLOOD, tap, f"5254001901{position:02x}"]
    with subprocess.Popen(command) as sender:
        try:
            yield
        finally:
            sender.kill()


@pytest.fixture
def several_queues(host):
    """The names of the virtio cards, which have four queues."""
    names = [cards(host)[each] for each in VIRTIO]
    for card in names:
        host.run(f"ethtool -L {card} combined 4")
    yield names
    for card in names:
        host.run(f"ethtool -L {card} combined 1")


def test_cards_with_one_of_several_queues_get_one_for_each_cpu_of_their_node(host):
    names = {cards(host)[each] for each in VIRTIO}
    before = {card: queues(host, card) for card in names}
    made = plan(host, remedies=("queues",))
    changes = of_kind(made, "queues")
    assert {change.target.name: (change.before, change.after) for change in changes} == dict.fromkeys(
        names, (Number(1), Number(4))
    )
    run, state = apply(host, made)
    assert state == "applied"
    assert {card: queues(host, card) for card in names} == dict.fromkeys(names, 4)
    assert of_kind(plan(host, remedies=("queues",)), "queues") == []
    assert rollback(host, run) == "rolled_back"
    assert {card: queues(host, card) for card in names} == before


def homes(host):
    """The node of each interrupt whose device has one, by its number, from the kernel."""
    return {number: int(node) for number, node in json.loads(host.run("python3 -", stdin=_HOMES).out).items()}


def irqs(made):
    """The CPUs that the plan gives to each interrupt, by its number."""
    return {str(change.target.part): str(change.after) for change in of_kind(made, "irq")}


def test_interrupts_of_cards_and_disks_go_to_the_housekeeping_cpus_of_their_node(host, several_queues):
    found, home = affinities(host), homes(host)
    before = cpus_of(found)
    made = plan(host, remedies=("irqs",), **OPTIONS)
    moved = irqs(made)
    run, state = apply(host, made)
    assert state.startswith("applied")
    after = cpus_of(affinities(host))
    assert {number: after[number] for number in moved} == moved

    drivers = {driver: number for number, (driver, _) in found.items()}
    queues_of_disks = {number for driver, number in drivers.items() if re.fullmatch(r"nvme\d+q[1-9]\d*", driver)}
    assert len(queues_of_disks) == 16
    others = home.keys() & found.keys() - queues_of_disks
    assert {home[number] for number in others} == {0, 1}
    assert {drivers["nvme0q0"], drivers["nvme1q0"]} <= others
    assert len([number for number in others if re.search(r"-(input|output)\.", found[number][0])]) == 16
    assert {number: after[number] for number in others} == {number: str(4 * home[number]) for number in others}
    assert cpus_of(affinities(host)).items() >= {number: before[number] for number in queues_of_disks}.items()
    assert irqs(plan(host, remedies=("irqs",), **OPTIONS)) == {}
    assert rollback(host, run) == "rolled_back"
    assert cpus_of(affinities(host)) == before


def test_what_irqbalance_moves_is_drift_and_a_policy_puts_it_back(host, several_queues):
    before = cpus_of(affinities(host))
    request = Request("shared-pool", remedies=("irqs",), **OPTIONS)
    moved = irqs(plan(host, remedies=("irqs",), **OPTIONS))
    server(host).set_policy(name(host), Policy(request, "enforce"), CALLER)
    wait(lambda: moved.items() <= cpus_of(affinities(host)).items(), host)
    server(host).set_policy(name(host), Policy(request, "observe"), CALLER)
    with irqbalance(host):
        wait(lambda: not moved.items() <= cpus_of(affinities(host)).items(), host)
        drifts = server(host).drift(name(host)).drifts
        assert {str(drift.target.part) for drift in drifts if drift.target.kind == "irq"} & moved.keys()
    server(host).set_policy(name(host), Policy(request, "enforce"), CALLER)
    wait(lambda: moved.items() <= cpus_of(affinities(host)).items(), host)
    server(host).delete_policy(name(host), CALLER)
    assert ended(host, server(host).rollback_all(name(host), CALLER))[1] == "rolled_back"
    assert cpus_of(affinities(host)).items() >= {number: before[number] for number in moved}.items()


def ring(host, card):
    return ethtool(host, "-g", card, "RX", 1)


def test_the_ring_of_a_card_that_drops_packets_gets_the_drivers_maximum(host):
    card = cards(host)[PCNET]
    size, most = ring(host, card), ethtool(host, "-g", card, "RX", 0)
    assert size < most
    assert of_kind(plan(host, remedies=("rings",)), "ring") == []
    with flood(host, PCNET):
        wait(lambda: int(host.run(f"cat /sys/class/net/{card}/statistics/rx_missed_errors").out) > 0, host)
    made = plan(host, remedies=("rings",))
    (change,) = of_kind(made, "ring")
    assert (change.target.name, change.before, change.after) == (card, Number(size), Number(most))
    run, state = apply(host, made)
    assert (state, ring(host, card)) == ("applied", most)
    host.run(f"ethtool -G {card} rx {size}")
    drifts = {drift.target.key: drift.states for drift in server(host).drift(name(host)).drifts}
    assert drifts[change.target.key] == (Number(size), Number(most))
    host.run(f"ethtool -G {card} rx {most}")
    assert rollback(host, run) == "rolled_back"
    assert ring(host, card) == size


def test_a_card_with_very_many_packets_gathers_them_before_it_interrupts(host):
    card = cards(host)[E1000E]

    def usecs():
        return ethtool(host, "-c", card, "rx-usecs", 0)

    host.run(f"ethtool -C {card} rx-usecs 0")
    assert of_kind(plan(host, remedies=("coalescing",)), "coalescing") == []
    with flood(host, E1000E):
        plans = (plan(host, remedies=("coalescing",)) for _ in range(10))
        made = next(each for each in plans if of_kind(each, "coalescing"))
    (change,) = of_kind(made, "coalescing")
    assert (change.target.name, change.before, change.after) == (card, Coalescing(0), Coalescing(50))
    run, state = apply(host, made)
    assert (state, usecs()) == ("applied", 50)
    host.run(f"ethtool -C {card} rx-usecs 0")
    drifts = {drift.target.key: drift.states for drift in server(host).drift(name(host)).drifts}
    assert drifts[change.target.key] == (Coalescing(0), Coalescing(50))
    host.run(f"ethtool -C {card} rx-usecs 50")
    assert rollback(host, run) == "rolled_back"
    assert usecs() == 0


def test_rps_of_each_queue_of_a_card_loses_the_cpus_of_guests_and_gets_them_back(host, several_queues):
    files = [f"/sys/class/net/{several_queues[1]}/queues/rx-{queue}/rps_cpus" for queue in range(4)]

    def masks():
        return [int(line.replace(",", ""), 16) for line in host.run(f"cat {' '.join(files)}").out.split()]

    before = [0xFF, 0xF0, 0x0F, 0xFE]
    for file, mask in zip(files, before, strict=True):
        host.run(f"echo {mask:x} > {file}")
    made = plan(host, remedies=("rps",), **OPTIONS)
    theirs = made.roles.vcpu | made.roles.emulator
    run, state = apply(host, made)
    assert (state, masks()) == ("applied", [mask & ~theirs.bits for mask in before])
    assert of_kind(plan(host, remedies=("rps",), **OPTIONS), "rps") == []
    assert rollback(host, run) == "rolled_back"
    assert masks() == before
    for file in files:
        host.run(f"echo 0 > {file}")


def test_sysctls_get_the_values_of_the_table_and_their_own_back(host):
    made = plan(host, remedies=("sysctls",))
    changes = {change.target.owner: change for change in of_kind(made, "sysctl")}
    assert "kernel.numa_balancing" in changes  # this kernel begins with it, and the host has two nodes

    def values():
        said = host.run("cat " + " ".join("/proc/sys/" + key.replace(".", "/") for key in changes)).out
        return dict(zip(changes, (Number(int(value)) for value in said.split()), strict=True))

    assert values() == {key: change.before for key, change in changes.items()}
    run, state = apply(host, made)
    assert (state, values()) == ("applied", {key: change.after for key, change in changes.items()})
    assert rollback(host, run) == "rolled_back"
    assert values() == {key: change.before for key, change in changes.items()}


def chosen(made):
    """The first change of a plan for each kind of setting; of interrupts, for each kind of the driver's names."""
    found = {}
    for change in made.changes:
        if isinstance(change, StateChange):
            driver = re.sub(r"[\d.]+", "", change.target.name.split()[0]) if change.target.kind == "irq" else ""
            found.setdefault((change.target.kind, driver), change)
    return tuple(found.values())


def test_a_kill_at_every_point_of_a_run_of_settings_leaves_what_the_journal_says(host, several_queues):
    """The script runs on the host: its points are those of the journal, and before and after each write."""
    card = cards(host)[PCNET]
    with flood(host, PCNET):
        wait(lambda: int(host.run(f"cat /sys/class/net/{card}/statistics/rx_missed_errors").out) > 0, host)
    rps = f"/sys/class/net/{several_queues[1]}/queues/rx-0/rps_cpus"
    host.run(f"echo ff > {rps}")
    made = plan(host, remedies=("irqs", "rings", "rps", "sysctls"), **OPTIONS)
    made = replace(made, changes=chosen(made))
    assert {change.target.kind for change in made.changes} == {"irq", "ring", "rps", "sysctl"}
    host.run("rm -rf /run/tests && mkdir /run/tests && tar -xC /run/tests", stdin=_support())
    script = "cd /run/tests && PYTHONPATH=.:/opt/pinner/tree:/opt/pinner/tree/tools:/opt/pinner/site-packages"
    said = host.run(f"{script} python3 -m support.kills.kill_settings", stdin=codec.dump(made), timeout=1800).out
    counts = json.loads(said.splitlines()[-1])
    print(len(made.changes), counts)
    assert counts["kills"] > 6 * len(made.changes)
    assert counts.keys() == {"kills", "applied", "undone", "rolled_back"}
    host.run(f"echo 0 > {rps}")


def _support():
    """The modules that the script needs, as an archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(Path(__file__).parents[2] / "support", "support", filter=_without_bytecode)
    return packed.getvalue()


def _without_bytecode(member):
    return None if "__pycache__" in member.name else member
