"""Prints notifications' payloads of which Nova's own code says that they are valid, each with a field that is null.

Run by an interpreter that has Nova. It prints one JSON object: the class of the payload and the field, with the payload
as Nova sends it. All fields that Nova declares nullable come one after the other, then all of them together.
"""

import json
from types import SimpleNamespace

import emit
import nova.conf
from nova import context, objects, rpc
from nova.notifications.objects import instance as payloads

UUID = "00000000-0000-4000-8000-000000000001"
ARGUMENTS = {
    "InstanceActionPayload": lambda: {"bdms": objects.BlockDeviceMappingList(objects=[])},
    "InstanceCreatePayload": lambda: {"bdms": objects.BlockDeviceMappingList(objects=[])},
    "InstanceActionRebuildPayload": lambda: {"bdms": objects.BlockDeviceMappingList(objects=[])},
    "InstanceActionRescuePayload": lambda: {"rescue_image_ref": None},
}
"""The classes of the payloads that pinner reads, with what each of them takes besides the instance."""


def filled(kind):
    """A payload of a running instance, as nova-compute makes it."""
    asked = context.RequestContext("ann", "p-1", request_id="req-1", is_admin=False)
    server = emit.instance(UUID, "h1", "small", {"a": "b"})
    return getattr(payloads, kind)(asked, server, fault=None, **ARGUMENTS[kind]())


def nullable(made):
    return sorted(name for name, field in made.fields.items() if field.nullable)


def payload(kind, nulls):
    """The payload of the class with these fields null: own ones, and those of its flavor behind ``flavor.``"""
    made = filled(kind)
    for name in nulls:
        owner, _, own = name.rpartition(".")
        setattr(made.flavor if owner else made, own, None)
    return made.obj_to_primitive()


def main():
    """Print all payloads."""
    nova.conf.CONF([], project="nova", default_config_files=[])
    nova.conf.CONF.set_override("notification_format", "versioned", "notifications")
    rpc.NOTIFIER = SimpleNamespace(is_enabled=lambda: True)  # Nova fills payloads only where it would send them
    objects.register_all()
    found = {}
    for kind in ARGUMENTS:
        made = filled(kind)
        names = [*nullable(made), *(f"flavor.{name}" for name in nullable(made.flavor))]
        for nulls in ((), *((name,) for name in names), tuple(names)):
            found[f"{kind} {' '.join(nulls)}"] = payload(kind, nulls)
    print(json.dumps(found, default=str))


main()
