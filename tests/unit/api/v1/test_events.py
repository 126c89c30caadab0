"""Guest events over REST."""

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens, bearer, make_control

from pinner.api.app import create_app
from pinner.model.event import GuestEvent
from pinner.model.guest.guest import NovaIdentity

GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
STARTED = {"host": "h1", "guest": GUEST, "event": "started"}


@pytest.mark.parametrize("kind", ["started", "leaving", "gone"])
def test_an_event_is_accepted(client, pinner, kind):
    answer = client.post(f"/v1/events/guest-{kind}", json=STARTED)
    expected = {"host": "h1", "guest": GUEST, "known": True, "run": "", "ignored": ""}
    assert (answer.status_code, answer.json) == (202, expected)
    (event,) = pinner.events
    assert (event.guest, event.kind, event.event, event.source) == (GUEST, kind, "started", "nobody")


def test_every_field_of_an_event(client, pinner):
    nova = {"instance": "i", "project": "p", "user": "u", "flavor": "f", "extra_specs": {"pinner:excluded": "true"}}
    nova |= {"flavor_id": "7", "has_specs": True}
    fields = {"guest": GUEST.upper(), "event": "e", "source": "nova req-1", "at": "2026-11-21T13:00:00+01:00"}
    order = {"publisher": "h2", "request": "req-1"}
    client.post("/v1/events/guest-leaving", json={**fields, **order, "nova": nova, "cpus": "0-3"})
    (event,) = pinner.events
    at = event.at
    assert event == GuestEvent(GUEST, "leaving", "e", "nova req-1", at, NovaIdentity(**nova), event.cpus, **order)
    assert (at.isoformat(), str(event.cpus)) == ("2026-11-21T12:00:00+00:00", "0-3")


def test_an_unknown_guest_is_no_error(client):
    answer = client.post("/v1/events/guest-started", json=STARTED | {"guest": GUEST.replace("1", "2")})
    assert (answer.status_code, answer.json["known"]) == (202, False)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"host": "elsewhere"}, 404),
        ({"host": "$(reboot); `id` '\"<b>\n"}, 404),
        ({"guest": "web; rm -rf /"}, 400),
        ({"guest": GUEST + "\n"}, 400),
        ({"guest": 7}, 400),
        ({"event": "x" * 501}, 400),
        ({"event": None}, 400),
        ({"at": "yesterday"}, 400),
        ({"at": 7}, 400),
        ({"name": "web"}, 400),
        ({"nova": {"extra_specs": {"a": 1}}}, 400),
        ({"nova": {"extra_specs": dict.fromkeys(map(str, range(129)), "")}}, 400),
        ({"cpus": "0-3"}, 400),
        ({"event": "x" * 70_000}, 413),
    ],
)
def test_invalid_events_are_refused(client, pinner, change, status):
    answer = client.post("/v1/events/guest-started", json=STARTED | change)
    assert answer.status_code == status
    assert pinner.events == []


def test_events_without_the_token_are_refused(pinner: InMemoryService):
    tokens = InMemoryTokens()
    client = create_app(pinner, control=make_control(tokens), max_body_bytes=65536).test_client()
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        assert client.post("/v1/events/guest-started", json=STARTED, headers=headers).status_code == 401
    assert pinner.events == []
    hook = bearer(tokens.add("hook"))
    assert client.post("/v1/events/guest-started", json=STARTED, headers=hook).status_code == 202
    assert pinner.events[0].source == "hook"
