import pytest
from support.values import cpus

from pinner.host import evidence
from pinner.host.causes import Cpuset, Seen, Unit, explained
from pinner.model.change import Target, ThreadMask
from pinner.model.drift import Drift

SLICE = Cpuset("machine.slice", cpus("0-3"))
SCOPE = Cpuset("machine.slice/g1.scope", cpus(""))
VCPU = Cpuset("machine.slice/g1.scope/libvirt/vcpu0", cpus("7"), part=True)
MISPLACED = "somebody set its threads' affinity, as taskset does"
SERVICE = Cpuset("system.slice/busyd.service", cpus(""))


def drift(actual, expected="7", *, kind="vcpu", cause="unknown"):
    target = Target(kind, "u", 0, "g1")
    return Drift(target, cpus(expected), (ThreadMask(10, 1, cpus(actual)), ThreadMask(11, 1, cpus(actual))), cause)


@pytest.mark.parametrize(
    ("actual", "seen", "cause", "detail"),
    [
        ("0-3", Seen((VCPU, SCOPE, SLICE)), "cpuset", "cpuset machine.slice allows only CPUs 0-3"),
        (
            "0-3",
            Seen((VCPU, SCOPE, SLICE), units={"machine.slice": Unit(cpus("0-3"))}),
            "systemd",
            "AllowedCPUs=0-3 of machine.slice",
        ),
        (
            "0-3",
            Seen((VCPU, SLICE), units={"machine.slice": Unit(cpus("0-4"))}),
            "cpuset",
            "cpuset machine.slice allows only CPUs 0-3",
        ),
        (
            "6",
            Seen((Cpuset("g1/vcpu0", cpus("6"), part=True),), pin=cpus("6")),
            "libvirt",
            "another writer had libvirt pin it to CPUs 6",
        ),
        (
            "6",
            Seen((Cpuset("g1/vcpu0", cpus("6"), part=True),), pin=cpus("7")),
            "cpuset",
            "cpuset g1/vcpu0 was given CPUs 6",
        ),
        ("6", Seen((VCPU,), pin=cpus("7")), "unknown", MISPLACED),
        ("6", Seen((Cpuset("g1/vcpu0", cpus("0-7"), part=True),)), "unknown", MISPLACED),
        (
            "0-7",
            Seen((Cpuset("g1/vcpu0", cpus("0-7"), part=True),)),
            "cpuset",
            "cpuset g1/vcpu0 was given CPUs 0-7",
        ),
        (
            "5",
            Seen((SERVICE,), units={"busyd.service": Unit(affinity=cpus("5"))}),
            "systemd",
            "CPUAffinity=5 of busyd.service",
        ),
        (
            "6",
            Seen((SERVICE,), units={"busyd.service": Unit(affinity=cpus("5"))}, running=frozenset({"tuned"})),
            "balancer",
            "tuned runs here and moves threads",
        ),
        (
            "6",
            Seen(running=frozenset({"numad", "tuned", "irqbalance"})),
            "balancer",
            "numad and tuned runs here and moves threads",
        ),
        (
            "6",
            Seen(running=frozenset({"irqbalance"})),
            "unknown",
            f"{MISPLACED}; irqbalance runs here, but moves interrupts only",
        ),
    ],
)
def test_the_first_cause_that_fits(actual, seen, cause, detail):
    found = explained(drift(actual), seen)
    assert (found.cause, found.detail) == (cause, detail)


def test_a_cause_that_is_known_stays():
    seen = Seen((SLICE,))
    for known in (drift("0-3", cause="restarted"), Drift(Target("workqueue", "", None, "w"), cpus("0"), (), "unknown")):
        assert explained(known, seen) == known


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("AllowedCPUs=0-3 8\nCPUAffinity=\n", Unit(cpus("0-3,8"))),
        ("AllowedCPUs=\nCPUAffinity=1 5-6\n", Unit(affinity=cpus("1,5-6"))),
        ("AllowedCPUs=\nCPUAffinity=numa\n", Unit()),
        ("", Unit()),
    ],
)
def test_what_systemd_says_of_a_unit(text, unit):
    assert evidence.parse_unit(text) == unit
