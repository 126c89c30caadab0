"""Re-packs are proposed where they pay."""

from datetime import timedelta

import pytest
from support.fakes.reconciled_host import ANN, HOST, isolated
from support.hosts import cpus, guest, plain, snapshot, with_caches

from pinner.model.page import PageRequest
from pinner.model.run.journal import ApplyOptions

CACHES = with_caches(plain(34, isolated="2-33"), "0-1", "2-9", "10-17", "18-25", "26-33")
"""Isolated CPUs 2-33 with four level-3 caches of eight CPUs each."""

SPREAD = ("2-5", "6-7,10-11", "18-21", "22-23,26-27")
"""The CPUs of four guests, of which two span two caches each."""

FULL = ("2-5,10-13", "6-9,14-17", "18-25", "26-33")
"""The CPUs of four guests that use all CPUs, of which two span two caches each."""


def spread(agent, places=SPREAD):
    floor = cpus("0-1")
    pins = {number: [str(cpu) for cpu in cpus(on)] for number, on in enumerate(places)}
    agent.host.taken = snapshot(
        CACHES, [guest(number, len(on), floor, pins=on, memory={}) for number, on in pins.items()]
    )


@pytest.mark.parametrize("mode", ["propose", "enforce"])
def test_a_re_pack_that_pays_is_proposed_after_a_while_and_not_applied(service, reconciler, agent, clock, mode):
    spread(agent)
    service.set_policy(HOST, isolated("enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, isolated(mode), ANN)
    before = agent.host.kernel()
    assert reconciler.reconcile(HOST, "resync").repack is None
    clock.at += timedelta(minutes=14)
    assert reconciler.reconcile(HOST, "resync").repack is None
    clock.at += timedelta(minutes=1)
    found = reconciler.reconcile(HOST, "resync").repack
    assert (found.pressure, found.why) == (10, "")
    assert service.drift(HOST).repack == found
    assert (agent.host.kernel(), service.drift(HOST).drifts) == (before, ())
    clock.at += timedelta(hours=1)
    assert reconciler.reconcile(HOST, "resync").repack == found
    list(service.follow(service.apply(found.plan, ApplyOptions(), ANN).id))
    assert agent.host.kernel() != before
    after = reconciler.reconcile(HOST, "resync")
    assert (after.repack, after.drifts) == (None, ())
    assert service.run(service.runs(HOST, PageRequest(5)).items[0].id).plan == found.plan


def test_a_re_pack_without_a_free_cpu_is_not_proposed_and_says_so(service, reconciler, agent, clock):
    spread(agent, FULL)
    service.set_policy(HOST, isolated("enforce"), ANN)
    for _ in range(3):
        report = reconciler.reconcile(HOST, "resync")
        clock.at += timedelta(minutes=15)
    assert (report.repack.plan, report.repack.why) == ("", "no move of a guest gains")


def test_a_policy_that_observes_proposes_no_re_pack(service, reconciler, agent, clock):
    spread(agent)
    service.set_policy(HOST, isolated("observe"), ANN)
    for _ in range(3):
        clock.at += timedelta(minutes=15)
        assert reconciler.reconcile(HOST, "resync").repack is None
