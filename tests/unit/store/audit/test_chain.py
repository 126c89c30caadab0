"""The canonical JSON of records, whose hashes make the chain."""

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as some

from pinner.store.audit.chain import START, canonical, check, link

NAMES = some.text("abcdefghij_Z09", min_size=1)
ANYTHING = (
    some.text(some.characters())
    | some.text(some.characters(categories=["Cs", "Cc"]))
    | some.integers()
    | some.sampled_from((2**53 - 1, 2**53, -(2**53) + 1, -(2**53)))
    | some.floats()
    | some.booleans()
    | some.none()
    | some.binary()
    | some.lists(some.text(), max_size=2)
)


@settings(deadline=None)  # the machine of the tests may be busy
@given(some.dictionaries(NAMES, ANYTHING, max_size=6))
def test_records_have_the_canonical_json_of_rfc_8785(fields):
    try:
        expected = rfc8785.dumps(fields)
    except rfc8785.CanonicalizationError as error:
        with pytest.raises(type(error)):
            canonical(fields)
    else:
        assert canonical(fields) == expected


@pytest.mark.fault(46)
@pytest.mark.parametrize("value", [3, None, True, 0.5, b"3"])
def test_a_field_that_is_not_text_is_a_changed_record_although_its_hash_is_correct(value):
    """The comparison of the trails takes text alone, and would leave the record out."""
    record = {"action": "run.change", "before": value, "after": "5"}
    checked = check(link(START, [record]), START, lambda: 1, lambda _: None)
    assert checked.why == "record 1 was changed: its field before is not text"
