"""RPS inside a made-up guest, which may be hostile; tests/functional has a real guest with a real agent."""

import pytest
from support.fakes.guest_agents import ANSWERS, BOOT, HUNG, MAC, NET, UUID, MadeUpGuest, guest, queue_path
from support.hosts import cpus

from pinner.host.inventory import LIVE
from pinner.host.settings import table
from pinner.host.settings.inside import guest_rps
from pinner.host.settings.inside.guests import FIRST_PAUSE, LONGEST_PAUSE, InsideReader
from pinner.model.change import Target
from pinner.model.errors import ApplyFailed, Busy, Gone, Invalid, PinnerError
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus


def target(boot=BOOT, index=2, number=0, name="eth0"):
    return GuestRps(UUID, "g", boot).target(GuestQueue(name, index, number, cpus("")))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def read(made, *guests, clock=None):
    return ask(InsideReader(made, clock or Clock()), *guests)


def ask(reader, *guests):
    return reader.read(guests or (guest(),), {"guest_rps": guest_rps.ROW.inside})["guest_rps"]


def test_the_queues_of_a_virtio_card_are_read_and_every_file_is_closed():
    made = MadeUpGuest(queues=2)
    (found,) = read(made)
    queues = tuple(GuestQueue("eth0", 2, number, cpus("")) for number in (0, 1))
    assert (found.boot, found.online, found.queues, found.unread) == (BOOT, cpus("0-3"), queues, "")
    assert made.open == {}


@pytest.mark.parametrize("queues", [4, 9])
def test_a_card_with_a_queue_for_each_vcpu_needs_no_rps(queues):
    (found,) = read(MadeUpGuest(queues))
    assert (found.queues, found.unread) == ((), "")


def test_the_queues_of_such_a_card_are_not_read():
    made = MadeUpGuest(queues=4)
    del made.files[queue_path(0)]
    assert read(made)[0].unread == ""


@pytest.mark.parametrize("path", [queue_path(3), f"{NET}/eth0/device/modalias"])
def test_a_guest_that_refuses_a_file_is_unread(path):
    """A card with a queue for each vCPU looked like one with fewer."""
    made = MadeUpGuest(queues=4)
    made.refused[path] = "Too many open files"
    (found,) = read(made)
    assert (found.queues, "Too many open files" in found.unread) == ((), True)


def test_only_virtio_cards_of_libvirt_are_read():
    made = MadeUpGuest()
    made.interfaces += [
        {"name": name, "hardware-address": MAC} for name in ("br0", "../../etc", "a\nb", "a b", "..", "x" * 16, 7)
    ]
    made.interfaces += [None, {}, {"name": "eth0"}, {"name": "eth1", "hardware-address": "52:54:00:00:00:99"}]
    made.files[f"{NET}/br0/device/modalias"] = "pci:v00008086d0000100E\n"
    (found,) = read(made)
    assert [queue.interface for queue in found.queues] == ["eth0"]


@pytest.mark.parametrize(
    "left_alone", [guest(state="paused"), guest(vcpus=1), guest(taps=()), guest(unread="no XML")], ids=range(4)
)
def test_a_guest_that_needs_no_rps_is_not_asked(left_alone):
    made = MadeUpGuest()
    assert read(made, left_alone) == ()
    assert made.asked == []


@pytest.mark.parametrize("command", ["guest-file-open", "guest-file-read"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_hostile_answer_is_an_error_of_this_guest_alone_and_its_text_cannot_harm_a_terminal(command, answer):
    made = MadeUpGuest()
    made.hostile[command] = answer
    (found,) = read(made)
    assert found.queues == ()
    assert found.unread.startswith(f"guest {found.name}: ")
    assert found.unread.isprintable()
    assert len(found.unread) < 400
    with pytest.raises(PinnerError):
        table.set_state(LIVE, target(), GuestCpus(cpus("0-3")), made)
    assert made.files[queue_path(0)] == "0\n"


WINDOWS = {
    "name": "Microsoft Windows",
    "kernel-release": "20348",
    "version": "Microsoft Windows Server 2022",
    "variant": "server",
    "pretty-name": "Windows Server 2022 Datacenter",
    "version-id": "2022",
    "variant-id": "server",
    "kernel-version": "10.0",
    "machine": "x86_64",
    "id": "mswindows",
}
NO_FILE = ApplyFailed(
    "guest",
    "libvirt: internal error: unable to execute QEMU agent command 'guest-file-open': failed to open file "
    "'/proc/sys/kernel/random/boot_id': The system cannot find the path specified.",
)


def test_a_windows_guest_has_no_such_settings():
    """As the agent of Windows answers (qga/commands-win32.c)."""
    made = MadeUpGuest()
    made.hostile["guest-file-open"], made.system = NO_FILE, WINDOWS
    (found,) = read(made)
    assert found.unread.endswith("it runs Windows Server 2022 Datacenter, whose kernel has no such settings")
    made.system = {"id": "mswindows", "pretty-name": "\x1b[2J" + "x" * 100_000}
    (found,) = read(made)
    assert (found.unread.isprintable(), len(found.unread) < 400) == (True, True)


@pytest.mark.parametrize("system", [{}, [], None, "mswindows", {"id": ["mswindows"]}, {"id": "debian"}], ids=range(6))
def test_another_guest_without_such_a_file_says_so(system):
    made = MadeUpGuest()
    made.hostile["guest-file-open"], made.system = NO_FILE, system
    (found,) = read(made)
    assert "failed to open file '/proc/sys/kernel/random/boot_id'" in found.unread


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/proc/sys/kernel/random/boot_id", "../../etc/passwd"),
        ("/sys/devices/system/cpu/online", "0-99999999"),
        ("/sys/devices/system/cpu/online", "\x1b[2J"),
        (f"{NET}/eth0/ifindex", "-1"),
        (f"{NET}/eth0/ifindex", "2 3"),
        (queue_path(0), "zz"),
        (queue_path(0), "f" * 3000),
        (queue_path(0), ""),
    ],
)
def test_a_file_with_a_strange_content_is_an_error(path, content):
    made = MadeUpGuest()
    made.files[path] = content
    (found,) = read(made)
    assert found.queues == ()
    assert found.unread
    assert found.unread.isprintable()


def test_the_words_of_an_agent_that_refuses_are_cut_and_made_printable():
    made = MadeUpGuest()
    made.hostile["guest-file-open"] = ApplyFailed("guest", "libvirt: \x1b[2J" + "x" * 1_000_000)
    (found,) = read(made)
    assert found.unread.isprintable()
    assert len(found.unread) < 400


def test_an_agent_that_hangs_is_asked_once_and_then_not_for_a_while_and_other_guests_are():
    clock, made, other = Clock(), MadeUpGuest(), guest(2, uuid=UUID[:-1] + "2")

    class Agents:
        def ask_guest_agent(self, which, command):
            if which != UUID:
                return made.ask_guest_agent(which, command)
            calls.append(command)
            clock.now += 3
            raise HUNG

    calls = []
    reader = InsideReader(Agents(), clock)
    hung, fine = ask(reader, guest(), other)
    assert ("not responding" in hung.unread, fine.unread, len(calls)) == (True, "", 1)
    hung, fine = ask(reader, guest(), other)
    assert hung.unread == f"its agent did not answer in time, or slowly; it is asked again in {FIRST_PAUSE:.0f} s"
    assert (fine.unread, len(calls)) == ("", 1)
    pauses = []
    for _ in range(9):
        clock.now += LONGEST_PAUSE
        ask(reader, guest(), other)
        pauses.append(reader._pauses[UUID].seconds)
    assert (pauses[:2], pauses[-1], len(calls)) == ([120, 240], LONGEST_PAUSE, 10)
    ask(reader, other)
    assert reader._pauses == {}


def test_only_the_chosen_guests_are_asked_and_what_is_known_of_the_others_stays():
    hung, fine = guest(), guest(2, uuid=UUID[::-1])
    made = MadeUpGuest()
    clock = Clock()

    class Agents:
        def ask_guest_agent(self, which, command):
            asked.add(which)
            if which == UUID:
                clock.now += 3
                raise HUNG
            return made.ask_guest_agent(which, command)

    asked, questions = set(), {"guest_rps": guest_rps.ROW.inside}
    reader = InsideReader(Agents(), clock)
    ask(reader, hung, fine)
    asked.clear()
    (found,) = reader.read((hung, fine), questions, among={fine.uuid})["guest_rps"]
    assert (found.guest, found.unread, asked) == (fine.uuid, "", {fine.uuid})
    assert "it is asked again in" in ask(reader, hung, fine)[0].unread
    assert reader.read((hung, fine), questions, among=())["guest_rps"] == ()


def test_a_guest_whose_agent_does_not_run_is_asked_at_each_snapshot():
    """It may be starting: a policy sets its masks soon after the agent runs."""
    made = MadeUpGuest()
    made.hostile["guest-file-open"] = Busy("guest", "libvirt: QEMU guest agent is not connected", overdue=False)
    reader = InsideReader(made, Clock())
    for _ in range(2):
        (found,) = ask(reader)
        assert "not connected" in found.unread
    made.hostile.clear()
    (found,) = ask(reader)
    assert (found.unread, len(found.queues)) == ("", 1)


def test_a_guest_cannot_have_more_vcpus_or_cards_than_libvirt_gave_to_it():
    """It could have any number of queues then, and each of them is a change of the plan, with answers of its own."""
    (found,) = read(MadeUpGuest(queues=200, online="0-255"))
    assert (found.queues, "0-255" in found.unread) == ((), True)
    made = MadeUpGuest(queues=3)
    for number in range(1, 16):
        made.interfaces.append({"name": f"eth{number}", "hardware-address": MAC})
        card = {path.replace("eth0", f"eth{number}"): text for path, text in made.files.items()}
        made.files |= card
    (found,) = read(made)
    assert [queue.interface for queue in found.queues] == ["eth0"] * 3


def test_a_queue_gets_its_vcpus_and_its_old_ones_back():
    made = MadeUpGuest(queues=2)
    table.set_state(LIVE, target(number=1), GuestCpus(cpus("0-3")), made)
    assert (made.files[queue_path(0)], made.files[queue_path(1)]) == ("0\n", "0000000f\n")
    assert table.state_of(LIVE, target(number=1), made) == GuestCpus(cpus("0-3"))
    table.set_state(LIVE, target(number=1), GuestCpus(cpus("")), made)
    assert table.state_of(LIVE, target(number=1), made) == GuestCpus(cpus(""))
    assert made.open == {}


def test_a_guest_that_does_not_do_what_it_says_is_found_out():
    made = MadeUpGuest()
    made.lies = True
    with pytest.raises(ApplyFailed, match="asked for vCPUs 0-3, the guest says none"):
        table.set_state(LIVE, target(), GuestCpus(cpus("0-3")), made)


def test_the_kernels_refusal_comes_with_the_flush():
    made = MadeUpGuest()
    made.hostile["guest-file-flush"] = ApplyFailed("guest", "libvirt: failed to flush file: Permission denied")
    with pytest.raises(ApplyFailed, match="Permission denied"):
        table.set_state(LIVE, target(), GuestCpus(cpus("0-3")), made)
    assert made.open == {}


@pytest.mark.parametrize("other", [target(boot=UUID), target(index=9)], ids=["restarted", "another interface"])
def test_a_guest_that_has_restarted_has_lost_the_masks(other):
    made = MadeUpGuest()
    for act in (table.state_of, lambda root, key, agents: table.set_state(root, key, GuestCpus(cpus("0-3")), agents)):
        with pytest.raises(Gone):
            act(LIVE, other, made)
    assert made.files[queue_path(0)] == "0\n"


@pytest.mark.parametrize(
    "owner",
    [
        "",
        UUID,
        f"{UUID} {BOOT} ../x 2",
        f"{UUID} {BOOT} .. 2",
        f"{UUID} x eth0 2",
        f"../ {BOOT} eth0 2",
        f"{UUID} {BOOT} a\n 2",
    ],
)
def test_an_owner_that_names_no_queue_is_refused_before_the_guest_is_asked(owner):
    made = MadeUpGuest()
    with pytest.raises(Invalid, match="the UUID and the boot of a guest"):
        table.state_of(LIVE, Target("guest_rps", owner, 0, "x"), made)
    assert made.asked == []


def test_without_libvirt_no_guest_can_be_asked():
    with pytest.raises(ApplyFailed, match="without libvirt"):
        table.state_of(LIVE, target())
