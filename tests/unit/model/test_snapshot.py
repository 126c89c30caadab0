import json
from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, snapshot

from pinner import codec
from pinner.model.errors import Invalid, NotFound
from pinner.model.guest.guest import InactiveGuest
from pinner.model.guest.nova import NovaConf, NovaGuest, NovaSets
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot


def test_a_snapshot_stored_without_a_shared_set_still_loads():
    now = snapshot(plain(8), [guest(1, 2, cpus("0-7"))], dedicated=cpus("7"))
    stored = json.loads(codec.dump(now))
    del stored["shared"], stored["nova"], stored["guests"][0]["emulator"]["policy"]
    assert codec.load(Snapshot, json.dumps(stored)) == now


def test_a_request_stored_without_nova_emulators_still_loads():
    stored = json.loads(codec.dump(Request()))
    del stored["nova_emulators"]
    assert codec.load(Request, json.dumps(stored)) == Request()


def test_a_stored_snapshot_contains_nova_conf_and_both_sets():
    conf = NovaConf(("/etc/nova/nova.conf",), "4-7", "0-3", "", "both", ("a", "b"), ("messagingv2",))
    now = snapshot(plain(8), dedicated=cpus("4-7"), shared=cpus("0-3"), nova=conf)
    assert codec.load(Snapshot, codec.dump(now)) == now


@pytest.mark.parametrize("name", ["web", "00000000-0000-4000-8000-000000000077"])
def test_a_guest_that_is_shut_off_is_no_unknown_guest(name):
    off = InactiveGuest("web", "00000000-0000-4000-8000-000000000077")
    now = replace(snapshot(plain(8), [guest(1, 2, cpus("0-7"))]), inactive=(off,))
    assert now.running_guest("g1") == now.running_guest(now.guests[0].uuid) == now.guests[0]
    with pytest.raises(Invalid, match="guest: 'web' is not valid: a running guest; this one is shut off"):
        now.running_guest(name)
    with pytest.raises(NotFound, match="there is no 'g9'; known: g1"):
        now.running_guest("g9")


@pytest.mark.parametrize(
    ("pins", "policy", "dedicated"),
    [(["6", "7"], "", "6-7"), (["6", "0-3"], "share", "6"), (["5-7", "5-7"], "", "5-7")],
)
def test_nova_owns_its_sets_and_the_cpus_of_guests_that_it_pinned(pins, policy, dedicated):
    pinned = guest(1, 2, cpus("0-7"), pins=pins, dedicated=True, policy=policy)
    owns = snapshot(plain(8), [pinned, guest(2, 1, cpus("0-3"))], shared=cpus("0-4")).nova_owns()
    assert owns.sets == NovaSets(shared=cpus("0-4"))
    assert owns.guests == (NovaGuest(pinned.uuid, "g1", cpus(dedicated), floating=not policy),)
    assert owns.dedicated == cpus(dedicated)


def test_a_guest_named_like_the_uuid_of_another_one_is_not_that_one():
    first, second = guest(1, 2, cpus("0-7")), guest(2, 1, cpus("0-3"))
    off = InactiveGuest("off", "00000000-0000-4000-8000-000000000077")
    now = replace(snapshot(plain(8), [replace(first, name=second.uuid), second]), inactive=(off,))
    assert now.running_guest(second.uuid) == second
    now = replace(now, guests=(replace(first, name=off.uuid),))
    with pytest.raises(Invalid, match="shut off"):
        now.running_guest(off.uuid)
