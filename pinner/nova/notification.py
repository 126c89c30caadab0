"""Nova's versioned notifications, read: pure.

https://docs.openstack.org/nova/latest/reference/notifications.html. Fields that a newer Nova adds are passed over; one
that is needed and lacks, or another major version of the payload, is not guessed at.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from pinner import codec
from pinner.model.errors import Invalid
from pinner.model.event import GuestEvent, GuestEventKind
from pinner.model.guest import NovaIdentity

T = TypeVar("T")

KIND_OF_ACTION: Mapping[str, GuestEventKind] = {
    **dict.fromkeys(
        (
            "create",
            "reboot",
            "power_on",
            "resize_finish",
            "resize_revert",
            "rebuild",
            "rescue",
            "unrescue",
            "unshelve",
            "restore",
            "resume",
            "unpause",
            "live_migration_post_dest",
            "live_migration_rollback",
        ),
        "started",
    ),
    "live_migration_post": "gone",
    "delete": "gone",
}
"""What the end of each of Nova's actions means to a host."""

LEAVING = "live_migration_pre"
"""Its start is told by the destination, of an instance that is on the source still."""

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,253}[A-Za-z0-9_])?")
_GUEST = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Notified:
    """An event of a guest of a host, as Nova told it."""

    host: str
    event: GuestEvent
    destination: str = ""
    """Of a guest that is leaving: the host that it goes to."""


@dataclass(frozen=True, slots=True)
class Message:
    """A notification as it came; nothing of it has been looked at."""

    publisher: object
    event_type: object
    payload: object
    context: object
    timestamp: object


@dataclass(frozen=True, slots=True)
class _Flavor:
    name: str
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Instance:
    """What is used of InstancePayload."""

    uuid: str
    host: str | None
    tenant_id: str | None
    user_id: str | None
    display_name: str | None = None
    request_id: str | None = None
    action_initiator_user: str | None = None


def read(message: Message) -> Notified | None:
    """What a notification asks for; None: nothing. Raises Invalid, naming the field, where it cannot be told."""
    words = message.event_type.split(".") if isinstance(message.event_type, str) else []
    if len(words) < 2:
        raise Invalid("event_type", message.event_type, "Nova's words with dots between them")
    if len(words) != 3 or words[0] != "instance":
        return None
    _, action, phase = words
    kind = (
        KIND_OF_ACTION.get(action) if phase == "end" else "leaving" if (action, phase) == (LEAVING, "start") else None
    )
    return _notified(message, action, kind) if kind else None


def _notified(message: Message, action: str, kind: GuestEventKind) -> Notified | None:
    data = _data(message.payload, "payload")
    instance = _read(_Instance, data, "payload")
    if not _GUEST.fullmatch(instance.uuid):
        raise Invalid("payload.uuid", instance.uuid, "a UUID")
    # The source tells that the guest has left it; by then the instance may name the destination.
    publisher = _publisher(message.publisher)
    host = publisher if action == "live_migration_post" else instance.host
    if host is None and action == "delete":
        return None  # it never got a host
    flavor = _read(_Flavor, _data(data.get("flavor"), "payload.flavor"), "payload.flavor")
    event = GuestEvent(
        guest=instance.uuid,
        kind=kind,
        event=str(message.event_type),
        source=_source(instance, message.context),
        at=_moment(message.timestamp),
        nova=NovaIdentity(
            instance=instance.display_name or "",
            project=instance.tenant_id or "",
            user=instance.user_id or "",
            flavor=flavor.name,
            extra_specs=flavor.extra_specs,
        ),
    )
    return Notified(_host(host, "payload.host"), event, publisher if kind == "leaving" else "")


def _data(thing: object, where: str) -> Mapping[str, object]:
    """The fields of one of Nova's objects."""
    if not isinstance(thing, Mapping):
        raise Invalid(where, thing, "an object of Nova's")
    version = thing.get("nova_object.version")
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise Invalid(f"{where}.nova_object.version", version, "1.x: the versions that this pinner knows")
    data = thing.get("nova_object.data")
    if not isinstance(data, Mapping):
        raise Invalid(f"{where}.nova_object.data", data, "the object's fields")
    return data


def _read(kind: type[T], data: Mapping[str, object], where: str) -> T:
    return codec.read(kind, dict(data), where)


def _publisher(publisher: object) -> str:
    service, _, host = str(publisher).partition(":")
    return _host(host or service, "publisher_id")


def _host(host: object, where: str) -> str:
    """It becomes part of a URL."""
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise Invalid(where, host, "the name of a host")
    return host


def _source(instance: _Instance, context: object) -> str:
    found = context.get("request_id") if isinstance(context, Mapping) else None
    request = instance.request_id or (found if isinstance(found, str) else None)
    user = instance.action_initiator_user or instance.user_id
    return " ".join(filter(None, ("nova", request))) + (f", user {user}" if user else "")


def _moment(timestamp: object) -> datetime:
    """oslo.messaging's: UTC, and not said so."""
    try:
        return datetime.fromisoformat(str(timestamp)).replace(tzinfo=UTC)
    except ValueError:
        raise Invalid("timestamp", timestamp, "a moment such as 2026-11-21 10:00:00.123456") from None
