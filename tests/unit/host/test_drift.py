from dataclasses import replace

import pytest
from support.values import cpus

from pinner.host.drift import Cpuset, DriftEvidence, Unit, explain_drifts, parse_unit, with_cause
from pinner.model.change import Target, ThreadMask
from pinner.model.machine.interrupts import DeviceIrq
from pinner.model.policy import Drift

SLICE = Cpuset("machine.slice", cpus("0-3"))
SCOPE = Cpuset("machine.slice/g1.scope", cpus(""))
VCPU = Cpuset("machine.slice/g1.scope/libvirt/vcpu0", cpus("7"), part=True)
UNKNOWN = "another program set its threads' affinity, for example taskset"
SERVICE = Cpuset("system.slice/busyd.service", cpus(""))


def drift(actual, expected="7", *, kind="vcpu", cause="unknown"):
    target = Target(kind, "u", 0, "g1")
    return Drift(target, cpus(expected), (ThreadMask(10, 1, cpus(actual)), ThreadMask(11, 1, cpus(actual))), cause)


@pytest.mark.parametrize(
    ("actual", "evidence", "cause", "detail"),
    [
        ("0-3", DriftEvidence((VCPU, SCOPE, SLICE)), "cpuset", "cpuset machine.slice allows only CPUs 0-3"),
        (
            "0-3",
            DriftEvidence((VCPU, SCOPE, SLICE), units={"machine.slice": Unit(cpus("0-3"))}),
            "systemd",
            "AllowedCPUs=0-3 of machine.slice",
        ),
        (
            "0-3",
            DriftEvidence((VCPU, SLICE), units={"machine.slice": Unit(cpus("0-4"))}),
            "cpuset",
            "cpuset machine.slice allows only CPUs 0-3",
        ),
        (
            "6",
            DriftEvidence((Cpuset("g1/vcpu0", cpus("6"), part=True),), pin=cpus("6")),
            "libvirt",
            "another libvirt client pinned it to CPUs 6",
        ),
        (
            "6",
            DriftEvidence((Cpuset("g1/vcpu0", cpus("6"), part=True),), pin=cpus("7")),
            "cpuset",
            "another program wrote CPUs 6 to cpuset g1/vcpu0",
        ),
        ("6", DriftEvidence((VCPU,), pin=cpus("7")), "unknown", UNKNOWN),
        ("6", DriftEvidence((Cpuset("g1/vcpu0", cpus("0-7"), part=True),)), "unknown", UNKNOWN),
        (
            "0-7",
            DriftEvidence((Cpuset("g1/vcpu0", cpus("0-7"), part=True),)),
            "cpuset",
            "another program wrote CPUs 0-7 to cpuset g1/vcpu0",
        ),
        (
            "5",
            DriftEvidence((SERVICE,), units={"busyd.service": Unit(affinity=cpus("5"))}),
            "systemd",
            "CPUAffinity=5 of busyd.service",
        ),
        (
            "6",
            DriftEvidence((SERVICE,), units={"busyd.service": Unit(affinity=cpus("5"))}, running=frozenset({"tuned"})),
            "balancer",
            "services on this host move threads: tuned",
        ),
        (
            "6",
            DriftEvidence(running=frozenset({"numad", "tuned", "irqbalance"})),
            "balancer",
            "services on this host move threads: numad, tuned",
        ),
        (
            "6",
            DriftEvidence(running=frozenset({"irqbalance"})),
            "unknown",
            f"{UNKNOWN}; irqbalance runs too, but moves only interrupts",
        ),
    ],
)
def test_the_first_cause_that_fits_is_given(actual, evidence, cause, detail):
    found = with_cause(drift(actual), evidence)
    assert (found.cause, found.detail) == (cause, detail)


def test_a_unit_of_a_container_is_none_of_the_host():
    nested = Cpuset("system.slice/c1.scope/payload/busyd.service", cpus("0-3"), False)
    found = with_cause(drift("0-3"), DriftEvidence((nested,), units={"busyd.service": Unit(cpus("0-3"))}))
    assert (found.cause, found.detail) == ("cpuset", f"cpuset {nested.path} allows only CPUs 0-3")


def test_a_known_cause_is_unchanged():
    evidence = DriftEvidence((SLICE,))
    for known in (drift("0-3", cause="restarted"), Drift(Target("workqueue", "", None, "w"), cpus("0"), (), "unknown")):
        assert with_cause(known, evidence) == known


@pytest.mark.parametrize(
    ("running", "cause", "detail"),
    [
        ("irqbalance", "balancer", "irqbalance runs on this host and moves interrupts"),
        ("tuned", "unknown", "another program or its driver set the interrupt's affinity"),
    ],
)
def test_irqbalance_is_the_likely_cause_where_it_runs(tmp_path, running, cause, detail):
    (tmp_path / "proc/812").mkdir(parents=True)
    (tmp_path / "proc/812/comm").write_text(f"{running}\n")
    target = DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", cpus("9")).target
    moved = Drift(target, cpus("0"), (), "unknown", states=(cpus("9"), cpus("0")))
    arrived = replace(moved, cause="arrived")
    found = explain_drifts(tmp_path, (moved, arrived), lambda _: None)
    assert [(each.cause, each.detail) for each in found] == [(cause, detail), ("arrived", "")]


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("AllowedCPUs=0-3 8\nCPUAffinity=\n", Unit(cpus("0-3,8"))),
        ("AllowedCPUs=\nCPUAffinity=1 5-6\n", Unit(affinity=cpus("1,5-6"))),
        ("AllowedCPUs=\nCPUAffinity=numa\n", Unit()),
        ("", Unit()),
    ],
)
def test_the_settings_of_a_systemd_unit_are_parsed(text, unit):
    assert parse_unit(text) == unit
