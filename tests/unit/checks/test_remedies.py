"""Every remedy may be pasted: it ends its finding, brings none as bad, and names no CPU of another owner."""

from importlib import import_module
from pathlib import Path

import pytest
from support.machines import EACH, root_of
from support.made_up.checks.check_cases_cpus import CASES as CPUS
from support.made_up.checks.check_cases_hosts import CASES as HOSTS
from support.made_up.checks.check_cases_network import CASES as NETWORK
from support.made_up.checks.judged import left_out, wrong
from support.made_up.checks.remedied_hosts import remedied_host
from support.made_up.readings import findings

from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.service.hosts.checker import installed
from pinner.wiring import captured_agent, configuration

CASES = {**CPUS, **HOSTS, **NETWORK}
FIELD = Path(__file__).parents[2] / "data/field"
NOT_APPLIED = {
    "guest-packets-one-vcpu": {"pinner (apply|compare)"},
    "guest-without-iothread": {"<"},
    "housekeeping-pressure": {"systemctl (restart|set-property system.slice)"},
    "irqbalance-unbanned": {"systemctl (restart|set-property system.slice)"},
    "journal-disk-full": {"journalctl"},
    "memory-low": {"reserved_host_memory_mb"},
    "memory-remote": {"pinner (apply|compare)"},
    "nova-dedicated-some-nodes": {"(hw|quota):"},
    "nvme-queues-cut": {"<"},
    "tap-drops": {"<"},
    "tap-single-queue": {"ethtool -L DEVICE"},
    "vcpu-run-delay": {"pinner (apply|compare)"},
}
"""Kinds of lines that change nothing which a reading has."""
NOT_JUDGED = {
    "guest-packets-one-vcpu",
    "journal-disk-full",
    "memory-low",
    "nova-dedicated-some-nodes",
    "nvme-queues-cut",
}
"""Their lines spare later guests, or free a room of unknown size."""
WITHOUT_LINE = {"tcp-retransmits", "udp-in-errors"}


def in_the_field():
    """The hosts of tests/data/field, by module and name."""
    for path in sorted(FIELD.rglob("*.py")):
        module = import_module(".".join(["data", "field", *path.relative_to(FIELD).with_suffix("").parts]))
        for name, host in vars(module).items():
            if isinstance(host, Snapshot | HostReading):
                found = HostReading(host) if isinstance(host, Snapshot) else host
                yield pytest.param(found, id=f"{path.stem}.{name}")


@pytest.mark.parametrize("code", CASES)
def test_for_each_check(code):
    faulty, _ = CASES[code]
    assert list(wrong(faulty)) == []


def test_lines_that_are_not_applied():
    kinds = {
        code: {kind for each in findings(faulty) if each.code == code for kind in left_out(faulty, each)}
        for code, (faulty, _) in CASES.items()
    }
    assert {code: some for code, some in kinds.items() if some} == NOT_APPLIED


def test_each_code_is_judged():
    judged = {
        code
        for code, (faulty, _) in CASES.items()
        for each in findings(faulty)
        if each.code == code and len([*left_out(faulty, each)]) < len(each.remedies)
    }
    known = {check.code for check in installed() if check.severity != "unknown"}
    assert known - judged == NOT_JUDGED | WITHOUT_LINE


@pytest.mark.parametrize("reading", list(in_the_field()))
def test_on_each_host_of_the_field(reading):
    assert list(wrong(reading)) == []


@EACH
def test_on_each_captured_machine(name):
    """As it is, and with guests on it."""
    reading = captured_agent(configuration([]), root_of(name)).reading(0)
    with_guests = [remedied_host(seed, reading.snapshot.topology) for seed in range(3)]
    assert [line for each in (reading, *with_guests) for line in wrong(each)] == []


@pytest.mark.parametrize(
    "seeds",
    [range(24), pytest.param(range(24, 500), marks=pytest.mark.slow("remedies of many random hosts"))],
    ids=["some", "many"],
)
def test_on_random_hosts(seeds):
    assert [line for seed in seeds for line in wrong(remedied_host(seed))] == []
