"""Measures as tables, sparklines and pictures."""

import struct
from dataclasses import replace
from datetime import timedelta

import pytest
from lxml import etree
from support.fakes.in_memory_service import InMemoryService
from support.values import EVIL, NOON

from pinner.model.errors import Invalid
from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, History, Measures, Span
from pinner.render.chart import ChartLine, chart
from pinner.render.measures import host_line, rows, scaled, sorted_rows, sparkline


def history(name, **values):
    """A history whose other series are zero."""
    given = {series.name: (0.0, 0.0, 0.0) for series in (*GUEST_SERIES, *HOST_SERIES)}
    return History(name or HOST, name, NOON, 5, given | values)


def measures(*histories):
    return Measures("h1", 5, GUEST_SERIES, HOST_SERIES, histories)


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ((0.0, 1.0, 2.0, 3.5, 7.0), 5, "▁▂▃▅█"),
        ((7.0, None, 7.0), 3, "█ █"),
        ((0.0, 0.0), 2, "▁▁"),
        ((1.0, 9.0, 2.0, 3.0), 2, "█▃"),
        ((None, None), 2, "  "),
        ((), 5, ""),
        ((4.0,), 9, "█"),
    ],
)
def test_a_sparkline_has_the_highest_value_of_each_bar(values, width, line):
    assert sparkline(values, width) == line


def test_the_latest_values_of_each_guest_are_in_its_row():
    web = history("web", delay_vcpu=(1.0, 60.0, None), delay_vhost=(0.0, 5.0, 5.0), use_vcpu=(0.0, 90.0, 95.0))
    (row,) = rows(measures(history(""), web))
    assert (row.name, row.delay, row.use, row.is_late) == ("web", 65.0, 95.0, True)


def test_a_value_that_is_long_unknown_is_no_latest_one():
    (row,) = rows(measures(history("web", delay_vcpu=(60.0, None, None, None))))
    assert (row.delays, row.delay, row.is_late) == ((None, 0.0, 0.0, 0.0), None, False)


def test_a_guest_of_which_nothing_is_known_now_is_no_good_one():
    """As while the agent's measuring hangs: 0 ms/s would look as if the guest waited no more."""
    unknown = {series.name: (60.0, None, None, None) for series in GUEST_SERIES}
    found = rows(measures(history("a", **unknown), history("b", delay_vcpu=(5.0,), drops=(None,))))
    assert [(row.delay, row.use, row.drops) for row in found] == [(None, None, None), (5.0, 0.0, None)]
    for key in ("delay", "cpu"):
        assert [row.name for row in sorted_rows(found, key)] == ["b", "a"]


def test_guests_that_do_not_run_have_no_row():
    assert rows(measures(replace(history("web"), name=""))) == ()


def test_rows_are_sorted_by_what_is_asked_for():
    found = rows(
        measures(
            history("a", drops=(9.0,)),
            history("b", delay_vcpu=(5.0,)),
            history("c", use_vcpu=(7.0,)),
            history("d", packets_in=(1.0,), packets_out=(9.0,)),
        )
    )
    keys = ("delay", "cpu", "drops", "packets", "name")
    assert [sorted_rows(found, key)[0].name for key in keys] == ["b", "c", "a", "d", "a"]


def test_the_host_s_line_has_its_units():
    line = host_line(measures(history("", pressure=(3.0, 4.5), use_host=(250.0, None))))
    assert "pressure 4.5 ms/s" in line
    assert "use_host 250.0 %" in line
    assert host_line(measures()) == "nothing is measured yet"


def lines_of(count):
    return [ChartLine(f"{EVIL} {number}: 100% \\", history("web", drops=(1.0, None, 3.0))) for number in range(count)]


def test_a_chart_is_an_svg_with_every_name_made_visible():
    drawn = chart(lines_of(2), GUEST_SERIES[-1], "SVG", f"drops of {EVIL}")
    assert etree.fromstring(drawn).tag.endswith("svg")
    assert b"\x1b" not in drawn


def test_a_chart_is_a_png_of_a_size_for_tickets():
    drawn = chart(lines_of(1), GUEST_SERIES[-1], "PNG", "drops")
    assert drawn[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", drawn[16:24])
    assert (800 <= width <= 1000, 250 <= height <= 400) == (True, True)


def test_a_chart_of_nothing_is_refused():
    with pytest.raises(Invalid):
        chart([], GUEST_SERIES[0], "SVG", "")


def test_the_service_s_measures_can_be_drawn():
    found = InMemoryService().measures("h1", Span(NOON, NOON + timedelta(hours=1)))
    assert rows(found)[0].trend == (None, 10.0, 20.0, 80.0)


def test_pings_are_in_the_row_of_a_guest_that_answers_them():
    web = history("web", ping=(1.0, 2.5, None), ping_loss=(0.0, 20.0, None), ping_worst=(9.0, 8.0, 7.0))
    without = History(
        "db", "db", NOON, 5, {name: each for name, each in history("db").values.items() if "ping" not in name}
    )
    found = {row.name: row.pings for row in rows(measures(web, without))}
    assert found == {"web": (2.5, 20.0, 0.0, 7.0), "db": (None,) * 4}


def test_the_traffic_of_a_guest_is_in_its_row():
    web = history("web", packets_in=(5e5,), packets_out=(4e5,), bits_in=(8e9,), bits_out=(1.0,), loss=(0.73,))
    (row,) = rows(measures(web))
    assert (row.traffic, row.loss) == ((5e5, 4e5, 8e9, 1.0), 0.73)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (9999.94, "9999.9"), (250_000.0, "250k"), (-1_234_567.0, "-1.235M"), (5.5e9, "5.5G")],
)
def test_a_large_number_has_a_unit(value, text):
    assert scaled(value) == text
    assert scaled(abs(value), "+") == f"+{text.removeprefix('-')}"
