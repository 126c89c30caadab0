from hypothesis import given
from hypothesis import strategies as st

from pinner.host.watch.events import Debouncer

TIMES = st.lists(st.tuples(st.floats(0, 100), st.sampled_from("abc")), max_size=30)


@given(TIMES)
def test_every_value_is_returned_once_and_in_time(times):
    debouncer: Debouncer[str, float] = Debouncer(0.5)
    added = sorted(times)
    returned: list[tuple[str, float]] = []
    for now, key in [*added, (1000.0, "a")]:
        while (wait := debouncer.wait(now, 9.0)) == 0.0:
            returned += [(key, at) for key, values in debouncer.due(now) for at in values]
        assert wait <= 9.0
        for key_due, values in debouncer.due(now):
            raise AssertionError(f"{key_due} {values} was due without a wait of 0")
        debouncer.add(key, now, now)
    assert sorted(returned) == sorted((key, at) for at, key in added)


def test_a_burst_is_returned_together_by_the_time_of_its_first_value():
    debouncer: Debouncer[str, int] = Debouncer(0.1)
    for number, now in enumerate((10.0, 10.04, 10.08)):
        debouncer.add("g1", number, now)
    debouncer.add("g2", 7, 10.05)
    assert debouncer.due(10.09) == []
    assert debouncer.wait(10.09, 5.0) < 0.011
    assert debouncer.due(10.11) == [("g1", [0, 1, 2])]
    assert debouncer.due(10.2) == [("g2", [7])]
    assert debouncer.wait(10.2, 5.0) == 5.0
