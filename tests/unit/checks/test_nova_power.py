"""Slow governors on hosts whose dedicated CPUs Nova powers down: no remedy is undone or refused by Nova."""

from dataclasses import replace

import pytest
from support.hosts import cpus
from support.made_up.readings import findings, host, placed, reading

from pinner.model.guest.nova import NovaConf

CPUPOWER = "cpupower -c {} frequency-set -g performance"
STATE, GOVERNOR = (NovaConf((), power_management=True, power_strategy=each) for each in ("cpu_state", "governor"))


def remedies(conf, governors, dedicated="4-11", guests=("8-9",)):
    """The CPUs and the remedy of each finding. ``governors``: by CPU list."""
    of = {cpu: governor for listed, governor in governors.items() for cpu in cpus(listed)}
    top = host()
    top = replace(top, cpus=tuple(replace(cpu, governor=of.get(cpu.id)) for cpu in top.cpus))
    whole = reading(guests=[placed(each) for each in guests], top=top, dedicated=cpus(dedicated), nova=conf)
    return [
        (each.subject.name, each.remedies[0].line, each.remedies[0].needs)
        for each in findings(whole)
        if each.code == "cpu-slow-governor"
    ]


def test_a_cpu_that_nova_slowed_down_is_no_finding():
    assert remedies(GOVERNOR, {"4-7,10-11": "powersave", "8-9": "performance"}) == []


@pytest.mark.parametrize("conf", [None, NovaConf(())], ids=["no Nova", "no power management"])
def test_without_novas_power_management_each_dedicated_cpu_counts(conf):
    found = remedies(conf, {"4-7,10-11": "powersave", "8-9": "performance"})
    assert found == [("4-7,10-11", CPUPOWER.format("4-7,10-11"), "nothing")]


def test_a_slow_governor_that_nova_sets_for_guests_is_changed_in_nova_conf():
    conf = replace(GOVERNOR, governor_high="ondemand")
    found = remedies(conf, {"4-7,10-11": "powersave", "8-9": "ondemand"})
    assert found == [("8-9", "cpu_power_governor_high = performance", "guest restart")]


def test_a_governor_that_another_program_set_is_changed_at_once():
    found = remedies(GOVERNOR, {"4-11": "powersave"})
    assert found == [("8-9", CPUPOWER.format("8-9"), "nothing")]


def test_where_nova_takes_cpus_offline_all_cpus_get_one_governor_at_boot():
    """Offline CPUs keep the governor that they had, and nova-compute does not start with different ones."""
    found = remedies(STATE, {"8-9": "powersave"})
    assert found == [("8-9", "cpufreq.default_governor=performance", "reboot")]


@pytest.mark.parametrize("conf", [STATE, GOVERNOR])
def test_other_cpus_are_not_novas(conf):
    found = remedies(conf, {"0-3": "powersave"}, dedicated="0,8-11", guests=("2-3",))
    assert found == [("0,2-3", CPUPOWER.format("0,2-3"), "nothing")]
