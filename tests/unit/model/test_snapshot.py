import json

import pytest
from support.hosts import cpus, guest, plain, snapshot

from pinner import codec
from pinner.model.nova import NovaConf, NovaGuest, NovaSets
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot


def test_a_snapshot_of_before_there_was_a_shared_set_loads():
    now = snapshot(plain(8), [guest(1, 2, cpus("0-7"))], dedicated=cpus("7"))
    stored = json.loads(codec.dump(now))
    del stored["shared"], stored["nova"], stored["guests"][0]["emulator"]["policy"]
    assert codec.load(Snapshot, json.dumps(stored)) == now


def test_a_request_of_before_emulators_could_be_asked_for_loads():
    stored = json.loads(codec.dump(Request()))
    del stored["nova_emulators"]
    assert codec.load(Request, json.dumps(stored)) == Request()


def test_all_of_novas_is_kept():
    conf = NovaConf(("/etc/nova/nova.conf",), "4-7", "0-3", "", "both", ("a", "b"), ("messagingv2",))
    now = snapshot(plain(8), dedicated=cpus("4-7"), shared=cpus("0-3"), nova=conf)
    assert codec.load(Snapshot, codec.dump(now)) == now


@pytest.mark.parametrize(
    ("pins", "policy", "theirs"), [(["6", "7"], "", "6-7"), (["6", "0-3"], "share", "6"), (["5-7", "5-7"], "", "5-7")]
)
def test_what_novas_is(pins, policy, theirs):
    pinned = guest(1, 2, cpus("0-7"), pins=pins, dedicated=True, policy=policy)
    owns = snapshot(plain(8), [pinned, guest(2, 1, cpus("0-3"))], shared=cpus("0-4")).nova_owns()
    assert owns.sets == NovaSets(shared=cpus("0-4"))
    assert owns.guests == (NovaGuest(pinned.uuid, "g1", cpus(theirs), floating=not policy),)
    assert owns.dedicated == cpus(theirs)
