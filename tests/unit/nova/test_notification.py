"""Nova's notifications parsed: every sample, and samples with random changes."""

import copy
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import samples

from pinner.model.errors import Invalid
from pinner.model.guest import NovaIdentity
from pinner.nova.notification import Message, parse

pytestmark = samples.needed

GUEST = "178b0921-8f85-4257-88b6-2e743b5a975c"
KINDS = {
    "create-end": "started",
    "reboot-end": "started",
    "power_on-end": "started",
    "resize_finish-end": "started",
    "resize_revert-end": "started",
    "rebuild-end": "started",
    "unrescue-end": "started",
    "unshelve-end": "started",
    "resume-end": "started",
    "unpause-end": "started",
    "live_migration_post_dest-end": "started",
    "live_migration_rollback-end": "started",
    "live_migration_pre-start": "leaving",
    "delete-end": "gone",
}
"""Sample name to event kind. The parser returns None for all other samples."""


@pytest.mark.parametrize("file", samples.FILES, ids=lambda file: file.stem)
def test_every_sample(file):
    name = file.stem.removeprefix("instance-")
    nova_event = parse(samples.message(samples.load(file.stem)))
    assert (nova_event.guest_event.kind if nova_event else None) == KINDS.get(name)
    if nova_event:
        assert nova_event.guest_event.guest == GUEST
        assert nova_event.host == ("host2" if name == "live_migration_post_dest-end" else "compute")


def test_every_field_of_an_event():
    nova_event = parse(samples.message(samples.load("instance-create-end")))
    event = nova_event.guest_event
    assert event.event == "instance.create.end"
    assert event.source == "nova req-5b6c791d-5709-4f36-8fbe-c3e02869e35d, user fake"
    assert event.at == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)
    project = "6f70656e737461636b20342065766572"
    assert event.nova == NovaIdentity("some-server", project, "fake", "test_flavor", {"hw:watchdog_action": "disabled"})
    assert nova_event.destination == ""


def test_a_leaving_guest_has_a_source_and_a_destination():
    nova_event = parse(samples.message(samples.load("instance-live_migration_pre-start")))
    assert (nova_event.host, nova_event.destination) == ("compute", "host2")


def test_the_source_host_reports_that_a_guest_has_left():
    sample = samples.load("instance-live_migration_post-start")
    sample["event_type"] = "instance.live_migration_post.end"
    sample["payload"]["nova_object.data"]["host"] = "host2"
    nova_event = parse(samples.message(sample))
    assert (nova_event.host, nova_event.guest_event.kind) == ("compute", "gone")


def test_a_deleted_instance_without_a_host_is_ignored():
    sample = samples.load("instance-delete-end")
    sample["payload"]["nova_object.data"]["host"] = None
    assert parse(samples.message(sample)) is None


def test_an_older_nova_has_the_request_id_only_in_the_context():
    sample = samples.load("instance-create-end")
    for name in ("request_id", "action_initiator_user"):
        del sample["payload"]["nova_object.data"][name]
    assert parse(samples.message(sample)).guest_event.source == "nova req-c, user fake"
    assert parse(replace(samples.message(sample), context=None)).guest_event.source == "nova, user fake"


def test_fields_of_a_newer_nova_are_ignored():
    sample = samples.load("instance-create-end")
    sample["payload"]["nova_object.version"] = "1.99"
    sample["payload"]["nova_object.data"]["new"] = {"a": 1}
    assert parse(samples.message(sample)) == parse(samples.message(samples.load("instance-create-end")))


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
def test_invalid_messages_name_the_wrong_field(path, value, field):
    sample = samples.load("instance-create-end")
    parent = sample
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    if field is None:
        assert parse(samples.message(sample)) is not None
        return
    with pytest.raises(Invalid) as caught:
        parse(samples.message(sample))
    assert caught.value.details["field"] == field


@pytest.mark.parametrize("name", ["uuid", "host", "tenant_id", "user_id", "flavor"])
def test_a_missing_field_is_named(name):
    sample = samples.load("instance-reboot-end")
    del sample["payload"]["nova_object.data"][name]
    with pytest.raises(Invalid, match=name):
        parse(samples.message(sample))


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 7, "2026-13-01"])
def test_an_invalid_timestamp_is_refused(timestamp):
    with pytest.raises(Invalid, match="timestamp"):
        parse(replace(samples.message(samples.load("instance-create-end")), timestamp=timestamp))


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


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_sample_is_parsed_or_refused(data):
    sample = copy.deepcopy(samples.load(data.draw(st.sampled_from(samples.FILES)).stem))
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
        parse(samples.message(sample))
    except Invalid as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(_JSON, _JSON, _JSON, _JSON, _JSON)
def test_random_messages_are_parsed_or_refused(publisher, event_type, payload, context, timestamp):
    for kind in (event_type, "instance.create.end", "instance.live_migration_pre.start"):
        try:
            parse(Message(publisher, kind, payload, context, timestamp))
        except Invalid as error:
            assert str(error)
