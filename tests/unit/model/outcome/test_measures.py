"""Rates from two counts."""

from datetime import timedelta

import pytest
from support.values import NOON

from pinner.model.change import ThreadKey
from pinner.model.outcome.measures import HOST, PINGS_OF_P99, Counts, Pings, ThreadCount, finest, loss_share, measured

GUEST = "6f1f5d6e-0000-4000-8000-000000000001"
MS = 1_000_000


def guest(at: float, threads: dict[ThreadKey, ThreadCount], drops: dict[str, float] | None = None) -> Counts:
    return Counts(GUEST, "web-1", at, threads, {"drops": drops or {}})


def host(at: float, nics: dict[str, float]) -> Counts:
    return Counts(HOST, "", at, {}, {"nic_drops": nics})


def test_run_delay_and_use_are_summed_by_role():
    before = guest(10, {ThreadKey(1, 5): ThreadCount("vcpu", 0, 0), ThreadKey(2, 5): ThreadCount("vcpu", 0, 50 * MS)})
    after = guest(
        15,
        {
            ThreadKey(1, 5): ThreadCount("vcpu", 2500 * MS, 100 * MS),
            ThreadKey(2, 5): ThreadCount("vcpu", 2500 * MS, 100 * MS),
            ThreadKey(3, 5): ThreadCount("vhost", 0, 0),
        },
    )
    rates = measured(before, after).rates
    assert rates["delay_vcpu"] == pytest.approx(30.0)
    assert rates["use_vcpu"] == pytest.approx(100.0)
    assert rates["delay_vhost"] == 0.0


def test_a_new_thread_counts_from_its_start_and_an_ended_one_no_more():
    before = guest(0, {ThreadKey(1, 5): ThreadCount("vcpu", 0, 9000 * MS)})
    after = guest(5, {ThreadKey(1, 99): ThreadCount("vcpu", 0, 10 * MS)})
    assert measured(before, after).rates["delay_vcpu"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        ({"eth0": 100}, {"eth0": 150}, 10.0),
        ({"eth0": 100, "eth1": 7}, {"eth0": 150, "eth1": 7}, 10.0),
        ({"eth0": 100}, {"eth0": 3}, None),  # reset or wrapped: not known
        ({"eth0": 100, "eth1": 7}, {"eth0": 3, "eth1": 12}, 1.0),
        ({}, {"eth0": 3}, None),  # the NIC is new
        ({"eth0": 3}, {}, None),  # the NIC has gone
    ],
)
def test_a_counter_that_falls_or_is_new_is_left_out(before, after, rate):
    assert measured(host(0, before), host(5, after)).rates["nic_drops"] == rate


def test_without_time_between_the_counts_nothing_is_known():
    assert set(measured(host(5, {"eth0": 1}), host(5, {"eth0": 9})).rates.values()) == {None}


def test_what_a_kernel_does_not_count_is_not_known():
    assert measured(host(0, {"eth0": 1}), host(5, {"eth0": 1})).rates["pressure"] is None


@pytest.mark.parametrize(
    ("age", "step"),
    [(timedelta(minutes=5), 5), (timedelta(hours=1), 5), (timedelta(hours=2), 60), (timedelta(days=9), 900)],
)
def test_the_finest_step_that_reaches_back_is_taken(age, step):
    assert finest(NOON - age, NOON) == step


@pytest.mark.parametrize(
    ("before", "after", "ping", "loss", "worst"),
    [
        (Pings(10, 1, 1100.0, (900.0,)), Pings(14, 2, 2106.0, (900.0, 2.0, 3.0, 1000.0, 1.0)), 251.5, 25.0, 1000.0),
        (None, Pings(4, 0, 8.0, (2.0,) * 4), None, None, None),  # the guest has just begun to answer
        (Pings(4, 0, 8.0, (2.0,) * 4), None, None, None, None),
        (Pings(4, 0, 8.0, (2.0,) * 4), Pings(4, 0, 8.0, (2.0,) * 4), None, None, None),  # none could be sent
        (Pings(400, 0, 8.0, (2.0,) * 4), Pings(4, 0, 8.0, (2.0,) * 4), None, None, None),  # the guest was restarted
    ],
)
def test_pings_have_a_mean_round_trip_a_longest_one_and_a_loss(before, after, ping, loss, worst):
    rates = of_pings(before, after)
    assert (rates["ping"], rates["ping_loss"], rates["ping_worst"], rates["ping_p99"]) == (ping, loss, worst, None)


def test_of_a_hundred_pings_the_second_longest_is_their_p99():
    """One is above it. Of fewer pings there is no such value but the longest one."""
    recent = (*(1.0,) * (PINGS_OF_P99 - 3), 7.0, 9.0, 2.0)
    assert of_pings(Pings(0, 0, 0.0, ()), Pings(PINGS_OF_P99, 0, 115.0, recent))["ping_p99"] == 7.0
    assert of_pings(Pings(0, 0, 0.0, ()), Pings(PINGS_OF_P99 - 1, 0, 114.0, recent[1:]))["ping_p99"] is None


def of_pings(before: Pings | None, after: Pings | None):
    return measured(Counts(GUEST, "web-1", 10, {}, {}, before), Counts(GUEST, "web-1", 15, {}, {}, after)).rates


@pytest.mark.parametrize(
    ("drops", "passed", "share"),
    [(5.0, (600.0, 395.0), 0.5), (0.0, (0.0, 0.0), 0.0), (None, (1.0, 1.0), None), (1.0, (1.0, None), None)],
)
def test_the_loss_is_a_share_of_the_packets_that_were_to_pass(drops, passed, share):
    """An idle guest lost none."""
    assert loss_share(drops, *passed) == share
