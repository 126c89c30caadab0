"""The canonical JSON of records, whose hashes make the chain."""

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as some

from pinner.store.audit.chain import canonical

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
