"""Parses Nova's versioned notifications, and warns of hosts that send only the others
(https://docs.openstack.org/nova/latest/reference/notifications.html). No I/O. Unknown fields are ignored; a missing
field that pinner needs, and another major version of the payload, are errors."""

import json
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TypeVar

from cachetools import LRUCache

from pinner import codec
from pinner.model.errors import Invalid
from pinner.model.event import GuestEvent, GuestEventKind
from pinner.model.guest.guest import NovaIdentity
from pinner.render import visible
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

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
    "resize_confirm": "gone",
    "shelve_offload": "gone",
    "delete": "gone",
}
"""The kind of event that the end notification of each of Nova's actions reports."""

BY_PUBLISHER = ("rebuild", "live_migration_post", "resize_confirm", "shelve_offload")
"""The actions whose end concerns the host that publishes it: ``host`` is for a rebuild the host from which the guest
was evacuated, for the second and third the destination, for the last null."""

LEFT_AT_START = ("rebuild", "resize_revert")
"""Their start names in ``host`` the host that the guest has left, if another host publishes it."""

LEAVING = "live_migration_pre"
"""Its start reports that a guest is leaving. The destination publishes it; ``host`` is the source."""

MAX_SIZE = 48 << 10
"""Bytes of an event's texts as JSON. A server accepts requests of 64 KiB, and thousands of events may wait."""
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,253}[A-Za-z0-9_])?")
_GUEST = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

MAX_HOSTS = 10_000
MAX_NAME = 255
"""Characters of a host's name: any program with access to the broker can send a longer publisher."""
ENOUGH = 2
"""Unversioned notifications without a versioned one. With both formats, Nova sends each in turn."""


@dataclass(frozen=True, slots=True)
class NovaEvent:
    host: str
    guest_event: GuestEvent
    destination: str = ""
    """For a guest that is leaving; else empty."""


@dataclass(frozen=True, slots=True)
class Message:
    publisher: object
    event_type: object
    payload: object
    context: object
    timestamp: object


@dataclass(frozen=True, slots=True)
class _Flavor:
    name: str
    flavorid: str | None = None
    extra_specs: Mapping[str, str] | None = None
    """None: Nova has not loaded them."""


@dataclass(frozen=True, slots=True)
class _Instance:
    uuid: str
    host: str | None
    tenant_id: str | None
    user_id: str | None
    display_name: str | None = None
    request_id: str | None = None
    action_initiator_user: str | None = None


def parse(message: Message) -> NovaEvent | None:
    """None for one that pinner does not use. Raises Invalid."""
    parts = message.event_type.split(".") if isinstance(message.event_type, str) else []
    if len(parts) < 2:
        raise Invalid("event_type", message.event_type, "words with dots between them, such as instance.create.end")
    if len(parts) != 3 or parts[0] != "instance":
        return None
    _, action, phase = parts
    kind = KIND_OF_ACTION.get(action) if phase == "end" else _kind_of_start(action) if phase == "start" else None
    return _nova_event(message, action, phase, kind) if kind else None


def _kind_of_start(action: str) -> GuestEventKind | None:
    return "leaving" if action == LEAVING else "gone" if action in LEFT_AT_START else None


def _nova_event(message: Message, action: str, phase: str, kind: GuestEventKind) -> NovaEvent | None:
    data = _object_data(message.payload, "payload")
    instance = _fields(_Instance, data, "payload")
    if not _GUEST.fullmatch(instance.uuid):
        raise Invalid("payload.uuid", instance.uuid, "a UUID")
    publisher = _publisher(message.publisher)
    host = publisher if phase == "end" and action in BY_PUBLISHER else instance.host
    if host is None and kind == "gone":
        return None  # Nova never chose a host for this instance
    if publisher == instance.host and (action == "resize_confirm" or (action in LEFT_AT_START and phase == "start")):
        return None  # the guest stays on its host
    flavor = _fields(_Flavor, _object_data(data.get("flavor"), "payload.flavor"), "payload.flavor")
    size = len(json.dumps((asdict(instance), asdict(flavor), _request(instance, message.context))))
    if size > MAX_SIZE:
        raise Invalid("payload", f"{size} bytes", f"names and extra specs of at most {MAX_SIZE} bytes in all")
    guest_event = GuestEvent(
        guest=instance.uuid,
        kind=kind,
        event=str(message.event_type),
        source=_source(instance, message.context),
        at=_timestamp(message.timestamp),
        publisher=publisher,
        request=_request(instance, message.context),
        nova=NovaIdentity(
            instance=instance.display_name or "",
            project=instance.tenant_id or "",
            user=instance.user_id or "",
            flavor=flavor.name,
            extra_specs=flavor.extra_specs or {},
            flavor_id=flavor.flavorid or "",
            has_specs=flavor.extra_specs is not None,
        ),
    )
    return NovaEvent(_host(host, "payload.host"), guest_event, publisher if kind == "leaving" else "")


def _object_data(nova_object: object, where: str) -> Mapping[str, object]:
    if not isinstance(nova_object, Mapping):
        raise Invalid(where, nova_object, "a versioned object of Nova")
    version = nova_object.get("nova_object.version")
    if not isinstance(version, str) or version.partition(".")[0] != "1":
        raise Invalid(f"{where}.nova_object.version", version, "a version that this pinner supports: 1.x")
    data = nova_object.get("nova_object.data")
    if not isinstance(data, Mapping):
        raise Invalid(f"{where}.nova_object.data", data, "the object's fields")
    return data


def _fields(kind: type[T], data: Mapping[str, object], where: str) -> T:
    return codec.read(kind, dict(data), where)


def _publisher(publisher: object) -> str:
    service, _, host = str(publisher).partition(":")
    return _host(host or service, "publisher_id")


def _host(host: object, where: str) -> str:
    """The name becomes part of a URL."""
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        raise Invalid(where, host, "a host name of letters, digits, dots, dashes and underscores")
    return host


def _source(instance: _Instance, context: object) -> str:
    user = instance.action_initiator_user or instance.user_id
    return " ".join(filter(None, ("nova", _request(instance, context)))) + (f", user {user}" if user else "")


def _request(instance: _Instance, context: object) -> str:
    # Older versions of Nova have the request id only in the context.
    in_context = context.get("request_id") if isinstance(context, Mapping) else None
    return instance.request_id or (in_context if isinstance(in_context, str) else "")


def _timestamp(timestamp: object) -> datetime:
    """oslo.messaging's timestamp is in UTC, and names no time zone."""
    try:
        return datetime.fromisoformat(str(timestamp)).replace(tzinfo=UTC)
    except ValueError:
        raise Invalid("timestamp", timestamp, "a date and time such as 2026-11-21 10:00:00.123456") from None


class Formats:
    """Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warning = Repeated(LOG)
        self._unversioned: LRUCache[str, int] = LRUCache(MAX_HOSTS)
        """Since the host's last versioned one."""

    def is_unversioned(self, publisher: object, event_type: object, payload: object) -> bool:
        """Warns, at most once a minute, of a host that sends no versioned ones. The publisher is ``compute.HOST`` in an
        unversioned notification, ``nova-compute:HOST`` in a versioned one."""
        if isinstance(payload, Mapping) and "nova_object.version" in payload:
            with self._lock:
                self._unversioned.pop(str(publisher).partition(":")[2], None)
            return False
        if str(event_type).startswith("instance."):
            return False
        service, _, host = str(publisher).partition(".")
        if service == "compute" and len(host) <= MAX_NAME and self._count(host) >= ENOUGH:
            self._warning.warn(
                "host %s sends unversioned notifications only (%s), which pinner cannot use: set [notifications] "
                "notification_format = both (or versioned) in its nova.conf and restart nova-compute",
                visible(host),
                visible(str(event_type)[:MAX_NAME]),
            )
        return True

    def _count(self, host: str) -> int:
        with self._lock:
            count = self._unversioned[host] = self._unversioned.get(host, 0) + 1
        return count
