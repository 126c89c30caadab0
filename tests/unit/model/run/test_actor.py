"""The names of actors in the audit trail: nobody is named like a part of pinner."""

import pytest

from pinner.model.errors import Invalid
from pinner.model.run.audit import OWN_ACTORS
from pinner.model.run.token import require_actor

LOOK_ALIKES = [
    *sorted(OWN_ACTORS),
    "Policy",
    "PINNER",
    "p\u043elicy",  # a Cyrillic o
    "\u0440\u043e\u04cf\u0456\u0441\u0443",  # Cyrillic letters only
    "p\u03bfl\u03b9cy",  # Greek letters
    "\uff50olicy",  # a wide p
    "pol\u200bicy",  # a blank without width
    "poli\u0301cy",  # an accent of its own
    "p\u00f3licy",
    "po1icy",
    "p0licy",
    "p\u0585licy",
    "po\u0142icy",
    "po|icy",
    "\u1d18inner",
    "policy.",
    "_policy_",
    "pol icy",
    "\u24df\u24d8\u24dd\u24dd\u24d4\u24e1",  # letters in circles
]
BLANK = ["", " ", "\u00a0", "\u3164", " ann", "ann ", "ann  bell", "ann\tbell", "ann\nbell", "\u200b", "\u2800"]
NUMBERED = ["uid 0", "u\u0456d 0", "uid 10", "uid 7", "UID 7", "uid\u00a07", "uid  7"]


@pytest.mark.parametrize("name", [*LOOK_ALIKES, *BLANK, *NUMBERED, "ann\u202e", "\uff41nn", "ju\u0308rg", "x" * 256])
def test_a_name_that_people_can_mistake_is_refused_with_its_field(name):
    with pytest.raises(Invalid) as refused:
        require_actor(name, "X-Pinner-Actor")
    assert refused.value.details["field"] == "X-Pinner-Actor"


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_an_error_names_the_actor_of_pinner_that_the_name_looks_like(name):
    with pytest.raises(Invalid, match="|".join(OWN_ACTORS)):
        require_actor(name, "name")


@pytest.mark.parametrize(
    "name",
    [
        "ann", "EXAMPLE\\j\u00fcrg", "ann bell", "root", "policy-bot",
        "pinner-nova-listener", "locally", "\u0438\u0432\u0430\u043d", "\u5c0f\u6797",
        "ann@example.net", "x" * 255, "host/compute1",
    ],
)  # fmt: skip
def test_names_of_people_and_programs_stay_as_they_are(name):
    assert require_actor(name, "name") == name
