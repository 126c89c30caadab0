"""The listener's endpoint: whatever a message has, no error leaves it."""

import json
import subprocess
import sys

import pytest
from support.nova.samples import OWN

# A process of its own: the listener chooses the threads of oslo.service for the whole process.
PROGRAM = """
import json, sys
from pathlib import Path
from pinner.nova.listener import Endpoint
from pinner.nova.broker.quarantine import Quarantine

file, what, text = sys.argv[1:]
value = 10**5000
if what == "nested":
    value = []
    for _ in range(2000):
        value = [value]
quarantine = Quarantine(Path(file))
for where in (["publisher_id"], ["event_type"], ["timestamp"], ["payload"], ["payload", "nova_object.version"],
              *(["payload", "nova_object.data", name] for name in ("uuid", "host", "flavor"))):
    message = json.loads(text) | {"timestamp": "2026-11-21 10:00:00"}
    place = message
    for name in where[:-1]:
        place = place[name]
    place[where[-1]] = value
    metadata = {"timestamp": message["timestamp"]}
    Endpoint(None, quarantine).info({}, message["publisher_id"], message["event_type"], message["payload"], metadata)
quarantine.close()
print(quarantine.count)
"""


@pytest.mark.parametrize("what", ["nested", "a long number"])
def test_a_value_that_cannot_be_shown_is_quarantined(tmp_path, what):
    file = tmp_path / "quarantine.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(file), what, json.dumps(OWN.load("create-end"))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "8\n"), ended.stderr
    assert len(file.read_text().splitlines()) == 8
