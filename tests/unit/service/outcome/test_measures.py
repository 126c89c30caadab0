"""The measures that a caller asks for."""

from datetime import UTC, datetime, timedelta

import pytest
from support.values import NOON

from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.measures import HOST, History, Span
from pinner.service.outcome.measures import MeasureReader

GUEST = "12345678-1234-1234-1234-123456789012"


class Spans:
    """Hosts whose agent notes the spans that it is asked for, and knows nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[datetime, datetime]] = []

    def agent(self, _host):
        return self

    def measures(self, begin, end, _step, _subject, _series):
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


def test_the_measures_of_one_guest_are_asked_of_the_agent_alone():
    asked = []

    class Hosts:
        def agent(self, _host):
            return self

        def measures(self, begin, _end, step, subject, _series):
            asked.append(subject)
            if subject not in ("web-1", ""):
                raise Invalid("subject", subject, "host, or the UUID of a guest")
            return (History(GUEST if subject == "web-1" else HOST, "web-1", begin, step, {}),)

    reader = MeasureReader(Hosts(), lambda: NOON)
    assert [each.subject for each in reader.measures("h1", Span(), "web-1").histories] == [GUEST]
    for other in ("web-2", "host"):
        with pytest.raises(NotFound):
            reader.measures("h1", Span(), other)
    assert asked == ["web-1", "web-2", ""]


def test_the_wanted_series_are_asked_of_the_agent_alone():
    asked = []

    class Hosts:
        def agent(self, _host):
            return self

        def measures(self, begin, _end, step, subject, series):
            asked.append((subject, series))
            return (History(GUEST, "web-1", begin, step, {}),)

    reader = MeasureReader(Hosts(), lambda: NOON)
    found = reader.measures("h1", Span(), None, ("drops", "pressure"))
    assert [each.name for each in found.guest_series] == ["drops"]
    assert [each.name for each in found.host_series] == ["pressure"]
    reader.measures("h1", Span(), "web-1", ("drops",))
    assert asked == [("", ("drops", "pressure")), ("web-1", ("drops",))]


@pytest.mark.parametrize(("guest", "series", "wrong"), [(None, "drop", "drop"), ("web-1", "pressure", "pressure")])
def test_a_series_that_nobody_measures_is_named(guest, series, wrong):
    with pytest.raises(Invalid, match="delay_vcpu") as refused:
        MeasureReader(Spans(), lambda: NOON).measures("h1", Span(), guest, (series,))
    assert (refused.value.details["field"], refused.value.details["value"]) == ("series", wrong)
