"""The anchor of a request, as JSON gives it."""

import json

import pytest
from pydantic import ValidationError

from pinner.api.schemas.bodies import AnchorInput

HEAD = {"host": "h1", "hash": "", "centre_seq": 0, "centre_hash": "", "at": "", "key": "", "signature": ""}


@pytest.mark.parametrize("number", [455, 455.0])
def test_a_number_without_a_fraction_is_an_integer(number):
    document = {"version": 1.0, "heads": [HEAD | {"seq": number}]}
    anchor = AnchorInput.model_validate_json(json.dumps(document)).value()
    assert (anchor.heads[0].seq, type(anchor.heads[0].seq)) == (455, int)


@pytest.mark.parametrize("field", ["seq", "centre_seq"])
def test_a_number_that_no_signature_can_express_is_refused(field):
    document = {"version": 1, "heads": [HEAD | {"seq": 2**53 - 1} | {field: 2**53}]}
    with pytest.raises(ValidationError, match="9007199254740992"):
        AnchorInput.model_validate_json(json.dumps(document))
