"""Nova's notifications parsed: every sample, and samples with random changes."""

import copy
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.nova.samples import KINDS, OWN, SETS, message

from pinner.model.errors import Invalid
from pinner.nova.broker.notification import Message, parse

every_set = pytest.mark.parametrize("samples", SETS, ids=str)


@every_set
def test_there_are_samples_of_every_action(samples):
    assert len(samples.names) >= 21
    assert len(samples.events) >= 14
    assert samples is not OWN or set(samples.events) == set(KINDS)


@pytest.mark.parametrize(("samples", "name"), [(each, name) for each in SETS for name in each.names], ids=str)
def test_every_sample(samples, name):
    nova_event = parse(message(samples.load(name)))
    assert (nova_event.guest_event.kind if nova_event else None) == KINDS.get(name)
    if nova_event:
        assert nova_event.guest_event.guest == samples.guest
        assert nova_event.host == (samples.destination if name == "live_migration_post_dest-end" else samples.host)


@every_set
def test_every_field_of_an_event(samples):
    nova_event = parse(message(samples.load("create-end")))
    event = nova_event.guest_event
    assert event.event == "instance.create.end"
    assert event.source == f"nova {samples.request}, user {samples.nova.user}"
    assert event.at == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)
    assert event.nova == samples.nova
    assert (event.publisher, event.request) == (samples.host, samples.request)
    assert nova_event.destination == ""


@every_set
def test_null_extra_specs_are_not_known(samples):
    sample = samples.load("create-end")
    sample["payload"]["nova_object.data"]["flavor"]["nova_object.data"]["extra_specs"] = None
    assert parse(message(sample)).guest_event.nova == replace(samples.nova, extra_specs={}, has_specs=False)


@every_set
def test_a_leaving_guest_has_a_source_and_a_destination(samples):
    nova_event = parse(message(samples.load("live_migration_pre-start")))
    assert (nova_event.host, nova_event.destination) == (samples.host, samples.destination)


@every_set
def test_the_source_host_reports_that_a_guest_has_left(samples):
    sample = samples.load("live_migration_post-start")
    sample["event_type"] = "instance.live_migration_post.end"
    sample["payload"]["nova_object.data"]["host"] = samples.destination
    nova_event = parse(message(sample))
    assert (nova_event.host, nova_event.guest_event.kind) == (samples.host, "gone")


MOVES = {
    "evacuate, begin": ("rebuild.start", "h1", "h2", ("h1", "gone")),
    "evacuate, end": ("rebuild.end", "h1", "h2", ("h2", "started")),
    "rebuild, begin": ("rebuild.start", "h1", "h1", None),
    "rebuild, end": ("rebuild.end", "h1", "h1", ("h1", "started")),
    "resize confirmed": ("resize_confirm.end", "h2", "h1", ("h1", "gone")),
    "resize on one host confirmed": ("resize_confirm.end", "h1", "h1", None),
    "resize reverted, begin": ("resize_revert.start", "h2", "h1", ("h2", "gone")),
    "resize on one host reverted, begin": ("resize_revert.start", "h1", "h1", None),
    "resize reverted, end": ("resize_revert.end", "h1", "h1", ("h1", "started")),
    "shelve offload": ("shelve_offload.end", None, "h1", ("h1", "gone")),
    "shelve": ("shelve.end", "h1", "h1", None),
    "suspend": ("suspend.end", "h1", "h1", None),
}


@every_set
@pytest.mark.parametrize(("event_type", "host", "publisher", "expected"), MOVES.values(), ids=MOVES)
def test_a_guest_that_moves_has_left_one_host(samples, event_type, host, publisher, expected):
    sample = samples.load("create-end")
    sample["payload"]["nova_object.data"]["host"] = host
    sample |= {"event_type": f"instance.{event_type}", "publisher_id": f"nova-compute:{publisher}"}
    nova_event = parse(message(sample))
    assert (nova_event and (nova_event.host, nova_event.guest_event.kind)) == expected


@every_set
def test_a_deleted_instance_without_a_host_is_ignored(samples):
    sample = samples.load("delete-end")
    sample["payload"]["nova_object.data"]["host"] = None
    assert parse(message(sample)) is None


@every_set
def test_an_older_nova_has_the_request_id_only_in_the_context(samples):
    sample = samples.load("create-end")
    for name in ("request_id", "action_initiator_user"):
        del sample["payload"]["nova_object.data"][name]
    assert parse(message(sample)).guest_event.source == f"nova req-c, user {samples.nova.user}"
    assert parse(replace(message(sample), context=None)).guest_event.source == f"nova, user {samples.nova.user}"


@every_set
def test_fields_of_a_newer_nova_are_ignored(samples):
    sample = samples.load("create-end")
    sample["payload"]["nova_object.version"] = "1.99"
    sample["payload"]["nova_object.data"]["new"] = {"a": 1}
    assert parse(message(sample)) == parse(message(samples.load("create-end")))


@every_set
@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("event_type",), None, "event_type"),
        (("event_type",), "nonsense", "event_type"),
        (("payload",), None, "payload"),
        (("payload",), [], "payload"),
        (("payload", "nova_object.version"), "2.0", "payload.nova_object.version"),
        (("payload", "nova_object.version"), None, "payload.nova_object.version"),
        (("payload", "nova_object.data"), "text", "payload.nova_object.data"),
        (("payload", "nova_object.data", "uuid"), None, "payload.uuid"),
        (("payload", "nova_object.data", "uuid"), "$(reboot)", "payload.uuid"),
        (("payload", "nova_object.data", "host"), None, "payload.host"),
        (("payload", "nova_object.data", "host"), "a/../b", "payload.host"),
        (("payload", "nova_object.data", "host"), "compute@evil.example", "payload.host"),
        (("payload", "nova_object.data", "tenant_id"), 7, "payload.tenant_id"),
        (("payload", "nova_object.data", "flavor"), None, "payload.flavor"),
        (
            ("payload", "nova_object.data", "flavor", "nova_object.data", "extra_specs"),
            [1],
            "payload.flavor.extra_specs",
        ),
        (("publisher_id",), "nova-compute:/etc/passwd", "publisher_id"),
        (("publisher_id",), None, None),
    ],
)
def test_invalid_messages_name_the_wrong_field(samples, path, value, field):
    sample = samples.load("create-end")
    parent = sample
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    if field is None:
        assert parse(message(sample)) is not None
        return
    with pytest.raises(Invalid) as caught:
        parse(message(sample))
    assert caught.value.details["field"] == field


@every_set
@pytest.mark.parametrize("name", ["uuid", "host", "tenant_id", "user_id", "flavor"])
def test_a_missing_field_is_named(samples, name):
    sample = samples.load("reboot-end")
    del sample["payload"]["nova_object.data"][name]
    with pytest.raises(Invalid, match=name):
        parse(message(sample))


@every_set
@pytest.mark.parametrize("name", ["display_name", "request_id", "extra_specs"])
def test_an_event_that_no_server_accepts_is_refused(samples, name):
    """Servers refuse requests of more than 64 KiB. Such an event was repeated for ten minutes."""
    for size, text in ((20_000, "n"), (60_000, "n"), (9_000, "\u00e9")):
        sample = samples.load("create-end")
        data = sample["payload"]["nova_object.data"]
        holder = data["flavor"]["nova_object.data"] if name == "extra_specs" else data
        holder[name] = {f"s{n}": text * 100 for n in range(size // 100)} if name == "extra_specs" else text * size
        if size == 20_000:
            assert parse(message(sample)) is not None
        else:
            with pytest.raises(Invalid, match=r"payload: '\d+ bytes'.*at most 49152 bytes in all"):
                parse(message(sample))


@every_set
@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 7, "2026-13-01"])
def test_an_invalid_timestamp_is_refused(samples, timestamp):
    with pytest.raises(Invalid, match="timestamp"):
        parse(replace(message(samples.load("create-end")), timestamp=timestamp))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def paths(value, path=()):
    """The path of every part of a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*path, name))


@every_set
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_changed_sample_is_parsed_or_refused(samples, data):
    sample = copy.deepcopy(samples.load(data.draw(st.sampled_from(samples.names))))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in paths(sample) if path]))
        parent = sample
        for name in path[:-1]:
            parent = parent[name]
        if data.draw(st.booleans()):
            parent[path[-1]] = data.draw(_JSON)
        else:
            del parent[path[-1]]
    try:
        parse(message(sample))
    except Invalid as error:
        assert str(error)


@settings(max_examples=examples(200), deadline=None)
@given(_JSON, _JSON, _JSON, _JSON, _JSON)
def test_random_messages_are_parsed_or_refused(publisher, event_type, payload, context, timestamp):
    for kind in (event_type, "instance.create.end", "instance.live_migration_pre.start"):
        try:
            parse(Message(publisher, kind, payload, context, timestamp))
        except Invalid as error:
            assert str(error)
