"""The anchor of a request, as JSON gives it."""

import json

import pytest

from pinner.api.schemas.anchor import AnchorInput

HEAD = {"host": "h1", "hash": "", "centre_seq": 0, "centre_hash": "", "at": "", "key": "", "signature": ""}


@pytest.mark.parametrize("number", [455, 455.0])
def test_a_number_without_a_fraction_is_an_integer(number):
    document = {"version": 1.0, "heads": [HEAD | {"seq": number}]}
    anchor = AnchorInput.model_validate_json(json.dumps(document)).value()
    assert (anchor.heads[0].seq, type(anchor.heads[0].seq)) == (455, int)
