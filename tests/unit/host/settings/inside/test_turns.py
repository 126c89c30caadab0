"""Many made-up guests in turn, of which some answer correctly, but slowly."""

from support.fakes.guest_agents import MadeUpGuest, guest

from pinner.host.settings.inside import guest_rps
from pinner.host.settings.inside.agent import ALLOWED, REFILL, SECONDS
from pinner.host.settings.inside.guests import InsideReader

MANY = [guest(number, uuid=f"00000000-0000-0000-0000-{number:012}") for number in range(1, 51)]
SLOW = ("g1", "g2", "g3", "g4")
NAMES = {each.uuid: each.name for each in MANY}
PASSES = 20


class Agents:
    """The slow guests need 0.27 s a command, nearly all of the time of a conversation."""

    def __init__(self, slow):
        self.now, self._made, self._slow = 0.0, MadeUpGuest(), slow

    def clock(self):
        return self.now

    def ask_guest_agent(self, which, command):
        self.now += 0.27 if NAMES[which] in self._slow else 0.001
        return self._made.ask_guest_agent(which, command)


def passes(slow=SLOW):
    """The reasons by guest for each of the snapshots, one a minute, and the seconds that each took."""
    agents = Agents(slow)
    reader = InsideReader(agents, agents.clock)
    for _ in range(PASSES):
        began = agents.now
        found = reader.read(MANY, {"guest_rps": guest_rps.ROW.inside})["guest_rps"]
        assert [each.name for each in found] == [each.name for each in MANY]
        yield {each.name: each.unread for each in found if each.unread}, agents.now - began
        agents.now = began + 60


def test_guests_that_answer_slowly_delay_the_others_once():
    (first, _), *later = passes()
    assert {*first} == {*NAMES.values()} - {*SLOW}
    assert {*first.values()} == {"the agents of g1, g2, g3 and 1 more took too long"}
    assert {name for unread, _ in later for name in unread} == {*SLOW}
    assert {why for unread, _ in later for why in unread.values()} == {
        "the agents of g1, g2, g3 and 1 more answer slowly, and are not asked now"
    }


def test_many_guests_that_are_not_known_yet_as_slow_delay_the_others_for_two_snapshots():
    slow = {f"g{number}" for number in range(1, 21)}
    _, _, *later = passes(slow)
    assert {name for unread, _ in later for name in unread} == slow


def test_guests_that_answer_slowly_take_turns_in_the_time_of_one():
    taken = [*passes()]
    for name in SLOW:
        assert sum(name not in unread for unread, _ in taken) >= PASSES // 5, name
    fast = 0.02 * len(MANY) * PASSES
    assert sum(seconds for _, seconds in taken) < ALLOWED + SECONDS + REFILL * 60 * PASSES + fast
