"""The kernel's arguments that remedies name: each replaces the one of this boot, so it keeps what that one asks for."""

from dataclasses import replace

import pytest
from data.field import dpdk, tuned
from support.hosts import KERNEL, cpus, guest, interleaved, snapshot
from support.made_up.checks.check_cases_hosts import booted
from support.made_up.readings import Seen, findings, irq, placed, reading

from pinner.model.reading import HostReading


def lines(made, code):
    return [remedy.line for found in findings(made) if found.code == code for remedy in found.remedies]


@pytest.mark.parametrize(
    ("boot", "line"),
    [
        ("isolcpus=managed_irq,4-99", "isolcpus=managed_irq,4-15"),
        ("isolcpus=nohz,domain,managed_irq,4-99", "isolcpus=nohz,managed_irq,domain,4-15"),
        ("isolcpus=4-99", "isolcpus=4-15"),
        ("nohz_full=4-99", "nohz_full=4-15"),
        ("isolcpus=nohz,20-99", "no isolcpus"),
        ("rcu_nocbs=20-99", "no rcu_nocbs"),
    ],
)
def test_an_argument_without_its_absent_cpus_means_what_it_meant(boot, line):
    """isolcpus without flags means domain: it would take CPUs out of load balancing that this boot does not."""
    assert line in lines(reading(top=booted(boot)), "kernel-arguments-ignored")


def test_the_remedies_of_arguments_that_miss_each_other_do_not_swap_the_cpus():
    made = reading(top=booted("isolcpus=4-11 nohz_full=2-7 rcu_nocbs=1-7", isolated="4-11", nohz_full="2-7"))
    assert lines(made, "isolation-without-nohz") == ["nohz_full=2-11"]
    assert lines(made, "nohz-without-isolation") == ["isolcpus=2-11"]
    assert lines(made, "isolation-without-nocbs") == ["rcu_nocbs=1-11"]


@pytest.mark.parametrize(
    ("boot", "isolated", "on", "expected"),
    [
        ("isolcpus=managed_irq,4-7", "", "5", []),
        ("isolcpus=managed_irq,4-5", "", "5", ["isolcpus=managed_irq,2-7"]),
        ("isolcpus=nohz,8-9", "", "5", ["isolcpus=nohz,managed_irq,2-9"]),
        ("isolcpus=8-9", "8-9", "5", []),
        ("isolcpus=managed_irq,domain,4-7", "4-7", "5", []),
        ("isolcpus=nohz,domain,4-5", "4-5", "5", ["isolcpus=nohz,managed_irq,domain,4-5"]),
        ("ro", "", "5", ["isolcpus=managed_irq,2-7"]),
    ],
)
def test_the_argument_for_managed_interrupts_helps_and_isolates_no_more_cpus(boot, isolated, on, expected):
    """The kernel has one list of CPUs for all flags of isolcpus."""
    sample = Seen(irqs=(irq(40, on, {int(on): 10}, managed=True),))
    assert lines(reading(sample, guests=[placed()], top=booted(boot, isolated=isolated)), "irq-managed") == expected


def test_shared_cpus_of_nova_lose_nohz_full_instead_of_being_isolated():
    made = reading(top=booted("nohz_full=2-7", nohz_full="2-7"), shared=cpus("6-9"))
    assert lines(made, "nohz-without-isolation") == ["isolcpus=managed_irq,domain,2-5", "nohz_full=2-5"]


def test_the_host_gets_dedicated_cpus_that_no_guest_has_and_the_kernel_balances():
    alone = "1-15,17-31"
    kernel = replace(KERNEL, command_line=f"isolcpus={alone} nohz_full={alone} rcu_nocbs={alone}")
    top = interleaved(16, isolated=alone, nohz_full=alone, kernel=kernel)
    found = findings(HostReading(replace(dpdk.HOST, topology=top)))
    assert [remedy.line for each in found if each.code == "nova-few-host-cpus" for remedy in each.remedies] == [
        "cpu_dedicated_set = 4,6-15,20,22-31",
        "isolcpus=1-4,6-15,17-20,22-31",
        "nohz_full=1-4,6-15,17-20,22-31",
        "rcu_nocbs=1-4,6-15,17-20,22-31",
    ]


def test_work_queues_that_have_only_isolated_cpus_get_others():
    """The kernel refuses a mask without CPUs."""
    top = booted("isolcpus=4-7", isolated="4-7")
    top = replace(top, kernel=replace(top.kernel, unbound=cpus("4-7")))
    (line,) = lines(reading(top=top), "workqueue-on-isolated")
    assert line == "echo 0000ff0f > /sys/devices/virtual/workqueue/cpumask"


def test_cpus_of_the_host_and_of_floating_guests_lose_nohz_full_instead():
    """Of 0-31 with nohz_full=1-31, CPU 0 alone would be left for everything."""
    top = interleaved(16, nohz_full="1-31", kernel=replace(KERNEL, command_line="quiet nohz_full=1-31"))
    assert lines(HostReading(snapshot(top, [guest(1, 4, cpus("0-31"))])), "nohz-without-isolation") == ["no nohz_full"]
    assert lines(HostReading(snapshot(top)), "nohz-without-isolation") == [
        "isolcpus=managed_irq,domain,4-15,20-31",
        "nohz_full=4-15,20-31",
    ]


def test_polling_cpus_keep_nohz_full():
    assert lines(HostReading(tuned.HOST), "nohz-without-isolation") == [f"isolcpus=managed_irq,domain,{tuned.ALONE}"]


def test_tuned_goes_on_where_it_isolates():
    assert lines(HostReading(tuned.HOST), "placer-running") == []
    kernel = replace(KERNEL, command_line="quiet")
    elsewhere = replace(tuned.HOST, topology=replace(tuned.TOPOLOGY, kernel=kernel))
    assert lines(HostReading(elsewhere), "placer-running") == ["systemctl disable --now tuned.service"]


def test_cpus_that_isolcpus_keeps_from_managed_interrupts_alone_are_not_isolated():
    top = booted("isolcpus=managed_irq,4-7")
    codes = {each.code for each in findings(reading(top=top, shared=cpus("2-7")))}
    assert not codes & {"nova-shared-isolated", "cpuaffinity-isolated"}
