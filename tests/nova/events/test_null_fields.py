"""Each field of a notification that Nova's own classes declare nullable may be null: pinner reads the notification."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pinner.model.errors import Invalid
from pinner.nova.broker.notification import BY_PUBLISHER, KIND_OF_ACTION, LEAVING, Message, parse

CLASSES = {
    "create": "InstanceCreatePayload",
    "rebuild": "InstanceActionRebuildPayload",
    "rescue": "InstanceActionRescuePayload",
}
"""The classes of the payloads of actions that have one of their own."""
HOSTLESS = "payload.host"


@pytest.fixture(scope="module")
def payloads():
    """The payloads of each class by the names of their null fields."""
    pytest.importorskip("nova.conf", reason="needs Nova itself (tox -e nova)")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("null_payloads.py"))]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def read(action, phase, payload):
    of = {"request_id": "req-2"}
    return parse(Message("nova-compute:h1", f"instance.{action}.{phase}", payload, of, "2026-11-25 12:00:00.1"))


@pytest.mark.parametrize("action", [*KIND_OF_ACTION, LEAVING])
def test_a_notification_with_null_fields_is_read(payloads, action):
    kind, phase = CLASSES.get(action, "InstanceActionPayload"), "start" if action == LEAVING else "end"
    of_class = {key.partition(" ")[2]: payload for key, payload in payloads.items() if key.startswith(f"{kind} ")}
    assert {"", "host", "user_id", "flavor.extra_specs", "flavor.flavorid"} < set(of_class)
    for nulls, payload in of_class.items():
        if "host" in nulls.split() and action not in BY_PUBLISHER and action != "delete":
            # A guest that runs, or is about to leave, has a host.
            with pytest.raises(Invalid, match=HOSTLESS):
                read(action, phase, payload)
            continue
        event = read(action, phase, payload)
        if event is None:
            assert action in ("delete", "resize_confirm"), nulls
        else:
            assert (event.host, event.guest_event.nova.flavor) == ("h1", "small"), nulls
            assert event.guest_event.nova.has_specs is ("flavor.extra_specs" not in nulls.split()), nulls
            assert event.guest_event.request in ("req-1", "req-2"), nulls
