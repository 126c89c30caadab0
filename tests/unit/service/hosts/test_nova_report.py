"""`pinner nova check` agrees with `pinner check` on the same host."""

import pytest
from data.field.named import floats_outside
from data.field.remedies import nova_sets
from support.hosts import cpus, guest, plain, snapshot
from support.made_up.checks.check_cases_hosts import CASES
from support.made_up.checks.remedied_hosts import remedied_host
from support.made_up.readings import findings

from pinner.model.guest.nova import Listening
from pinner.model.reading import HostReading
from pinner.service.hosts.checker import nova_report

SET = "cpu_shared_set = "
HOSTS = {
    "isolated": snapshot(plain(16, isolated="4-7"), shared=cpus("2-7")),
    "on dedicated": floats_outside.ON_DEDICATED,
    "floating on isolated": snapshot(
        plain(16, isolated="4-7"), [guest(1, 2, cpus("2-7"), nova=floats_outside.NOVA)], shared=cpus("2-7")
    ),
    **{f"random {seed}": remedied_host(seed).snapshot for seed in range(24)},
    **{code: faulty.snapshot for code, (faulty, _) in CASES.items() if code.startswith(("nova", "ovs"))},
}


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_critical_for_nova_is_misconfigured_with_the_same_line(name):
    found = [each for each in findings(HostReading(HOSTS[name])) if each.code.startswith(("nova", "ovs"))]
    report = nova_report(HOSTS[name], Listening())
    assert report.findings or not [each for each in found if each.severity == "critical"]
    lines = {remedy.line for each in found for remedy in each.remedies} | {each.remedy for each in report.findings}
    assert len([line for line in lines if line.startswith(SET)]) <= 1


def test_floating_guests_on_isolated_cpus():
    report = nova_report(HOSTS["floating on isolated"], Listening())
    assert [(each.what, each.remedy) for each in report.findings] == [
        ("guest g1", "pinner plan --strategy isolated"),
        ("cpu_shared_set", "cpu_shared_set = 2-3"),
    ]


def test_vcpu_pin_set_goes_with_its_successors():
    report = nova_report(nova_sets.SOME, Listening())
    lines = [each.remedy for each in report.findings if each.why == "CPUs 8-15 of cpu_shared_set are isolated"]
    assert lines == ["cpu_dedicated_set = 8-15", "cpu_shared_set = 4-7", "#vcpu_pin_set"]
