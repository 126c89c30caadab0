"""The measures that a caller asks for."""

from datetime import UTC, datetime

import pytest
from support.values import NOON

from pinner.model.errors import Invalid
from pinner.model.measures import Span
from pinner.service.measures import MeasureReader


class NoHost:
    """Hosts that nobody may ask."""


@pytest.mark.parametrize("year", [1, 1969, 1979])
def test_an_end_before_all_measures_is_refused(year):
    """An hour before the year 1 there is no time at all."""
    reader = MeasureReader(NoHost(), lambda: NOON)
    with pytest.raises(Invalid, match=r"to: .*1980-01-01"):
        reader.measures("h1", Span(end=datetime(year, 1, 1, tzinfo=UTC)))
