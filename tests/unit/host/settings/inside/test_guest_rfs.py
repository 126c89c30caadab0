"""RFS inside a made-up guest."""

import pytest
from support.fakes.guest_agents import ANSWERS, BOOT, ENTRIES, HUNG, UUID, MadeUpGuest, flow_path, guest

from pinner.host.inventory import LIVE
from pinner.host.settings import table
from pinner.host.settings.inside.guests import InsideReader
from pinner.host.settings.row import Facts
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid
from pinner.model.settings.inside import FLOWS, FlowQueue, GuestRfs
from pinner.model.states import Number

KERNEL, *QUEUES = GuestRfs(UUID, "g", BOOT, 0, tuple(FlowQueue("eth0", 2, number, 0) for number in (0, 1))).states


def read(made, *kinds):
    facts = Facts(LIVE, guests=(guest(),), ask_guests=InsideReader(made).read)
    return table.read(facts, kinds or ["guest_rfs"])


def test_the_numbers_of_the_kernel_and_of_each_queue_are_read():
    made = MadeUpGuest(queues=2)
    made.files |= {ENTRIES: "32768\n", flow_path(1): "4096\n"}
    (found,) = read(made)["guest_rfs"]
    assert (found.entries, [queue.flows for queue in found.queues], found.unread) == (32768, [0, 4096], "")
    assert made.open == {}


def test_a_card_with_a_queue_for_each_vcpu_needs_no_rfs():
    (found,) = read(MadeUpGuest(queues=4))["guest_rfs"]
    assert (found.states, found.unread) == ({}, "")


def test_a_snapshot_asks_a_guest_once_for_what_several_settings_need():
    made = MadeUpGuest()
    taken = read(made, "guest_rps", "guest_rfs")
    assert [taken[name][0].unread for name in ("guest_rps", "guest_rfs")] == ["", ""]
    assert made.asked.count("guest-network-get-interfaces") == 1


def test_a_kernel_without_rfs_hides_no_rps():
    made = MadeUpGuest()
    del made.files[flow_path(0)]
    taken = read(made, "guest_rps", "guest_rfs")
    assert (taken["guest_rps"][0].unread, len(taken["guest_rps"][0].queues)) == ("", 1)
    assert f"failed to open file '{flow_path(0)}'" in taken["guest_rfs"][0].unread


def test_an_agent_that_hangs_is_asked_once_for_all_settings():
    made = MadeUpGuest()
    made.hostile["guest-file-open"] = HUNG
    taken = read(made, "guest_rps", "guest_rfs")
    assert made.asked == ["guest-file-open"]
    assert taken["guest_rps"][0].unread == taken["guest_rfs"][0].unread == str(HUNG)


@pytest.mark.parametrize("command", ["guest-file-open", "guest-file-read"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_hostile_answer_is_an_error_of_this_guest_alone(command, answer):
    made = MadeUpGuest()
    made.hostile[command] = answer
    (found,) = read(made)["guest_rfs"]
    assert (found.states, found.unread.isprintable(), len(found.unread) < 400) == ({}, True, True)
    assert found.unread.startswith(f"guest {found.name}: ")
    for target in (KERNEL, QUEUES[0]):
        with pytest.raises((ApplyFailed, Busy, Gone)):
            table.set_state(LIVE, target, FLOWS, made)
    assert (made.files[ENTRIES], made.files[flow_path(0)]) == ("0\n", "0\n")


@pytest.mark.parametrize("content", ["-1", "", "4096 1", "9" * 11, "\x1b[2J", "0x10"])
@pytest.mark.parametrize("path", [ENTRIES, flow_path(0)])
def test_a_strange_number_is_an_error(path, content):
    made = MadeUpGuest()
    made.files[path] = content
    (found,) = read(made)["guest_rfs"]
    assert (found.states, bool(found.unread), found.unread.isprintable()) == ({}, True, True)


@pytest.mark.parametrize("target", [KERNEL, QUEUES[1]], ids=["kernel", "queue"])
def test_a_number_is_set_and_its_former_one_is_given_back(target):
    made = MadeUpGuest(queues=2)
    for number in (FLOWS, Number(0)):
        table.set_state(LIVE, target, number, made)
        assert table.state_of(LIVE, target, made) == number
        changed = ENTRIES if target == KERNEL else flow_path(1)
        assert (made.files[changed], made.files[flow_path(0)], made.open) == (f"{number}\n", "0\n", {})


def test_a_guest_that_does_not_do_what_it_says_is_found_out():
    made = MadeUpGuest()
    made.lies = True
    with pytest.raises(ApplyFailed, match="asked for 4096, the guest says 0"):
        table.set_state(LIVE, KERNEL, FLOWS, made)


@pytest.mark.parametrize("owner", [f"{UUID} {UUID}", f"{UUID} {UUID} eth0 2 0", f"{UUID} {BOOT} eth0 9 0"])
def test_a_guest_that_has_restarted_has_lost_the_numbers(owner):
    made = MadeUpGuest()
    with pytest.raises(Gone):
        table.set_state(LIVE, Target("guest_rfs", owner, None, "x"), FLOWS, made)
    assert (made.files[ENTRIES], made.files[flow_path(0)]) == ("0\n", "0\n")


@pytest.mark.parametrize(
    "owner", ["", UUID, f"{UUID} {BOOT} eth0 2", f"{UUID} {BOOT} .. 2 0", f"{UUID} {BOOT} eth0 2 x"]
)
def test_an_owner_that_names_no_number_is_refused_before_the_guest_is_asked(owner):
    made = MadeUpGuest()
    with pytest.raises(Invalid, match="the UUID and the boot of a guest"):
        table.state_of(LIVE, Target("guest_rfs", owner, None, "x"), made)
    assert made.asked == []
