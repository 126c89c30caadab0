"""The demo says what became worse, and praises nothing beside it."""

from dataclasses import replace

import pytest
from demo.figures import Window, table, verdict
from demo.traffic import Load, pings

BEFORE = Window(
    Load(seconds=8.0, packets=150_000, drops=10_000, pings=400, pings_lost=8, worst_ping_ms=48.2),
    received=150_000,
    delays={("g1", "vcpu 0"): 300.0, ("g1", "emulator"): 80.0, ("g2", "vcpu 0"): 20.0},
)
BETTER = Window(
    Load(seconds=8.0, packets=160_000, drops=0, pings=400, pings_lost=0, worst_ping_ms=6.1),
    received=160_000,
    delays={("g1", "vcpu 0"): 30.0, ("g1", "emulator"): 8.0, ("g2", "vcpu 0"): 20.0},
)
WORSE_PING = replace(BETTER, load=replace(BETTER.load, worst_ping_ms=48.3))
WORSE_GUEST = replace(BETTER, delays={**BETTER.delays, ("g2", "vcpu 0"): 40.0})
ALL = [BETTER, WORSE_PING, WORSE_GUEST, BEFORE]


@pytest.mark.parametrize("after", ALL)
def test_the_verdict_is_called_an_observation(after):
    assert verdict(BEFORE, after).startswith("Observed, not tested: ")


def test_all_figures_that_became_less_are_named_where_none_became_more():
    said = verdict(BEFORE, BETTER)
    assert "less of: packets that the tap dropped, pings without an answer, worst ping, run delay of g1;" in said
    assert "no figure became worse" in said


@pytest.mark.parametrize(
    ("after", "worse"), [(WORSE_PING, "worst ping"), (WORSE_GUEST, "run delay of g2")], ids=["ping", "guest"]
)
def test_one_figure_that_became_worse_ends_all_praise(after, worse):
    assert verdict(BEFORE, after) == f"Observed, not tested: after the plan there is MORE of: {worse}."


def test_one_role_may_wait_longer_where_its_guest_waits_less():
    after = replace(BETTER, delays={**BETTER.delays, ("g1", "emulator"): 100.0})
    assert "no figure became worse" in verdict(BEFORE, after)


def test_no_change_is_no_praise():
    assert verdict(BEFORE, BEFORE) == "Observed, not tested: no figure changed."


def test_a_difference_that_is_not_printed_is_none():
    slightly = replace(BEFORE, delays={**BEFORE.delays, ("g2", "vcpu 0"): 20.2})
    assert verdict(BEFORE, slightly) == "Observed, not tested: no figure changed."


@pytest.mark.parametrize("packets", [0, 100_000, 200_000])
def test_windows_of_different_load_are_not_compared(packets):
    other = replace(BETTER, load=replace(BETTER.load, packets=packets))
    assert "no verdict, because" in verdict(BEFORE, other)
    assert "no verdict, because" in verdict(other, BEFORE)


def test_the_table_shows_each_figure_of_both_windows():
    lines = [line.split() for line in table(BEFORE, WORSE_PING)]
    assert ["packets", "that", "the", "tap", "dropped", "10,000", "0", "packets", "less"] in lines
    assert ["worst", "ping", "48.2", "48.3", "ms", "more"] in lines
    assert ["run", "delay", "of", "g2", "20", "20", "ms/s", "the", "same"] in lines
    assert ["waiting:", "g1", "vcpu", "0", "300.00", "30.00", "ms/s"] in lines
    assert ["packets", "that", "were", "sent", "to", "the", "tap", "20,000", "20,000", "a", "second"] in lines


SUMMARY = """\
PING 192.0.2.2 (192.0.2.2) 56(84) bytes of data.

--- 192.0.2.2 ping statistics ---
400 packets transmitted, {} received, {} packet loss, time 8012ms
"""


def test_pings_and_the_worst_round_trip_are_read_from_the_summary():
    text = SUMMARY.format(398, "0.5%") + "rtt min/avg/max/mdev = 0.171/0.623/48.203/2.4 ms, pipe 2\n"
    assert pings(text) == (400, 2, 48.203)


def test_a_guest_that_answers_no_ping_has_no_round_trip():
    assert pings(SUMMARY.format(0, "100%")) == (400, 400, 0.0)
