"""Made-up guests that answer slowly, or not at all, take a bounded time."""

from contextlib import suppress

import pytest
from support.fakes.guest_agents import BOOT, HUNG, NET, UUID, MadeUpGuest, guest, queue_path
from support.hosts import cpus

from pinner.host.inventory import LIVE
from pinner.host.settings import table
from pinner.host.settings.inside import agent as conversations
from pinner.host.settings.inside import guest_rps
from pinner.host.settings.inside.agent import GuestAgent, LimitedAgents
from pinner.host.settings.inside.guests import LONGEST_PAUSE, InsideReader
from pinner.model.errors import Busy
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus


def target(number=0):
    return GuestRps(UUID, "g", BOOT).target(GuestQueue("eth0", 2, number, cpus("")))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def ask(reader, *guests):
    return reader.read(guests or (guest(),), {"guest_rps": guest_rps.ROW.inside})["guest_rps"]


def test_a_snapshot_does_not_wait_for_many_guests_that_hang():
    clock, calls = Clock(), []

    class Agents:
        def ask_guest_agent(self, which, command):
            calls.append(which)
            clock.now += 3
            raise HUNG

    many = [guest(number, uuid=f"{UUID[:-3]}{number:03}") for number in range(1, 101)]
    found = ask(InsideReader(Agents(), clock), *many)
    assert len(calls) == 5
    assert found[-1].unread == "the agents of g1, g2, g3 and 2 more took too long"


def test_a_guest_that_answers_each_snapshot_slowly_takes_a_part_of_the_time_only():
    clock, made, times = Clock(), MadeUpGuest(), []
    made.before = lambda: setattr(clock, "now", clock.now + 0.2)
    reader = InsideReader(made, clock)
    for _ in range(3600):
        began = clock.now
        (found,) = ask(reader)
        times.append(clock.now - began)
        assert not found.unread or "slowly" in found.unread
        clock.now += 1
    assert times[0] > 3
    assert sum(times) < conversations.ALLOWED + times[0] + conversations.REFILL * (clock.now - 1000)
    made.before = lambda: None
    clock.now += LONGEST_PAUSE
    assert ask(reader)[0].unread == ""


def test_a_guest_that_is_slow_once_is_asked_again_at_once():
    clock, made = Clock(), MadeUpGuest()
    reader = InsideReader(made, clock)
    made.before = lambda: setattr(clock, "now", clock.now + 0.2)
    assert ask(reader)[0].unread == ""
    made.before = lambda: None
    assert [ask(reader)[0].unread for _ in range(100)] == [""] * 100


def test_a_conversation_that_drips_ends():
    clock = Clock()

    def slow(_command):
        clock.now += 1
        return '{"return": 1}'

    agent = GuestAgent("guest x", slow, clock)
    with pytest.raises(Busy, match="needs more than 5 s"):
        while True:
            agent.call("guest-ping")
    assert clock.now == 1000 + conversations.SECONDS


def test_the_changes_of_a_slow_guest_end_soon_and_other_guests_are_asked():
    """A guest with a hundred queues could answer each command at the last moment."""
    clock, made = Clock(), MadeUpGuest(queues=100)
    agents = LimitedAgents(made, clock)
    made.before = lambda: setattr(clock, "now", clock.now + 0.3)
    for number in range(100):
        with suppress(Busy):
            table.set_state(LIVE, target(number=number), GuestCpus(cpus("0-3")), agents)
    assert clock.now - 1000 < conversations.ALLOWED / (1 - conversations.REFILL) + 2
    with pytest.raises(Busy, match="its agent answers too slowly, and is not asked now"):
        table.state_of(LIVE, target(), agents)
    made.before = lambda: None
    agents.ask_guest_agent("another", '{"execute": "guest-network-get-interfaces"}')
    clock.now += 120
    assert table.state_of(LIVE, target(), agents) == GuestCpus(cpus("0-3"))


def test_an_undo_that_is_repeated_again_and_again_ends_after_a_hang():
    """The repetitions must not spend the time that the guest gets back: each asked until it was spent again."""
    clock, made = Clock(), MadeUpGuest()
    agents = LimitedAgents(made, clock)

    def hang():
        clock.now += 3
        raise Busy("guest", "its agent does not answer", overdue=False)

    made.before = hang
    for _ in range(5):
        with pytest.raises(Busy):
            table.state_of(LIVE, target(), agents)
    made.before = lambda: setattr(clock, "now", clock.now + 0.01)
    end = clock.now + 120
    while clock.now < end:
        clock.now += 0.5
        with suppress(Busy):
            table.state_of(LIVE, target(), agents)
            table.set_state(LIVE, target(), GuestCpus(cpus("0-3")), agents)
            break
    assert made.files[queue_path(0)] == "0000000f\n"
    assert made.open == {}


@pytest.mark.parametrize("limited", [True, False], ids=["the allowance", "the conversation"])
@pytest.mark.parametrize("slow_command", ["guest-file-open", "guest-file-read", "guest-file-write"])
def test_a_file_is_closed_although_the_time_is_over(slow_command, limited):
    """The agent keeps what was written, and would write it when the agent ends, maybe after the undo."""
    clock, made = Clock(), MadeUpGuest()
    agents = LimitedAgents(made, clock) if limited else made
    seconds = conversations.ALLOWED + 1 if limited else conversations.SECONDS + 1

    def slow():
        if made.asked.count(slow_command) == (2 if slow_command == "guest-file-open" else 0):
            clock.now += seconds

    made.before = slow
    agent = GuestAgent("guest x", lambda command: agents.ask_guest_agent(UUID, command), clock)
    with pytest.raises(Busy):
        agent.read(f"{NET}/eth0/ifindex")
        agent.write(queue_path(0), "f\n")
        agent.read(queue_path(0))
    assert made.open == {}
