"""The measures that a caller asks for."""

from datetime import UTC, datetime, timedelta

import pytest
from support.values import NOON

from pinner.model.errors import Invalid
from pinner.model.measures import Span
from pinner.service.measures import MeasureReader


class Spans:
    """Hosts whose agent notes the spans that it is asked for, and knows nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[datetime, datetime]] = []

    def agent(self, _host):
        return self

    def measures(self, begin, end, _step, _subject):
        self.asked.append((begin, end))
        return ()


@pytest.mark.parametrize("minutes", [1, 30, 60, 90])
def test_a_span_may_end_in_the_first_hour_of_all_times(minutes):
    """An hour before the year 1 there is no time at all."""
    hosts, first = Spans(), datetime(1, 1, 1, tzinfo=UTC)
    end = first + timedelta(minutes=minutes)
    assert MeasureReader(hosts, lambda: NOON).measures("h1", Span(end=end)).histories == ()
    assert hosts.asked == [(first + timedelta(minutes=max(0, minutes - 60)), end)]


def test_before_the_first_of_all_times_nothing_can_begin():
    with pytest.raises(Invalid, match="from"):
        MeasureReader(Spans(), lambda: NOON).measures("h1", Span(end=datetime(1, 1, 1, tzinfo=UTC)))
