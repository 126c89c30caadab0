"""What a person may paste from a report: no word of a host may begin a command of its own."""

import shlex
from dataclasses import replace

import pytest
from support.made_up.checks.check_cases_cpus import CASES as CPUS
from support.made_up.checks.check_cases_hosts import CASES as HOSTS
from support.made_up.checks.check_cases_network import CASES as NETWORK
from support.made_up.readings import findings

HOSTILE = "x;touch /tmp/y;'`$(id)`"
"""A saved snapshot and the folder of a captured machine may contain any words."""


def with_hostile_words(made):
    snapshot = made.snapshot
    kernel = replace(snapshot.topology.kernel, release=HOSTILE)
    guests = [replace(guest, uuid=HOSTILE, name=HOSTILE) for guest in snapshot.guests]
    topology = replace(snapshot.topology, kernel=kernel)
    return replace(made, snapshot=replace(snapshot, topology=topology, guests=tuple(guests)))


@pytest.mark.parametrize("code", {**CPUS, **HOSTS, **NETWORK})
def test_a_word_of_the_host_is_one_word_of_the_command(code):
    faulty, _ = {**CPUS, **HOSTS, **NETWORK}[code]
    lines = [
        remedy.line
        for found in findings(with_hostile_words(faulty))
        for remedy in found.remedies
        if remedy.where.startswith("as ")
    ]
    assert not [line for line in lines if "touch" in line and not any(HOSTILE in word for word in shlex.split(line))]
