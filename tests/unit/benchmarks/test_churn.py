import pytest
from benchmarks.peers.quality import Quality
from benchmarks.planning import churn
from benchmarks.planning.churn import Event, Outcome, events
from benchmarks.report.timing import Time


@pytest.mark.parametrize("mix", ["friendly", "any"])
def test_the_guests_never_need_more_than_the_room_and_nearly_fill_it(mix):
    present, most = {}, 0
    for event in events(200, mix, 7, 400):
        if event.vcpus:
            present[event.number] = event.vcpus
        else:
            del present[event.number]
        assert sum(present.values()) <= 200
        most = max(most, sum(present.values()))
    assert most > 190


def test_the_same_seed_gives_the_same_events():
    assert list(events(200, "any", 7, 100)) == list(events(200, "any", 7, 100))
    assert list(events(200, "any", 7, 100)) != list(events(200, "any", 8, 100))


def test_a_guest_that_comes_is_placed_and_stays_where_it_is_while_others_come_and_go():
    here = churn.Host()
    for number in range(4):
        here.happens(Event(number, 8))
        here.apply(churn.REQUEST)
    before = {guest.name: [vcpu.thread.affinity for vcpu in guest.vcpus] for guest in here.guests}
    assert all(len(mask) == 1 and mask <= here.pool for masks in before.values() for mask in masks)
    here.happens(Event(2, 0))
    here.happens(Event(4, 4))
    here.apply(churn.REQUEST)
    after = {guest.name: [vcpu.thread.affinity for vcpu in guest.vcpus] for guest in here.guests}
    assert sorted(after) == ["g0", "g1", "g3", "g4"]
    assert all(after[name] == before[name] for name in ("g0", "g1", "g3"))


def test_planning_afresh_does_not_know_where_the_guests_are():
    here = churn.Host()
    here.happens(Event(0, 8))
    _, first = here.afresh()
    here.apply(churn.REQUEST)
    assert here.afresh()[1] == first


def test_the_drifted_placement_is_judged_beside_planning_afresh_once_the_host_is_full():
    found = churn.churned(0.9, "any", rebalance=True, count=75)
    assert found.looks >= 1
    assert len(found.times) == 75
    assert found.taken <= found.looks
    made = churn.row(0.9, "any", found, rebalance=True, count=75)
    assert f"rebalances taken {found.taken} of {found.looks}" in made["more"]
    assert made["quality"] == str(found.drifted)
    assert made["their quality"] == str(found.fresh)


def test_the_row_has_the_ratio_of_drifted_and_fresh():
    found = Outcome(Quality(30, 4, 0, 0), Quality(20, 0, 0, 0), 2, 1, [Time(5.0, 6.0)], [Time(4.0, 4.0)])
    made = churn.row(0.97, "any", found, rebalance=False, count=1000)
    assert made["what"] == "churn, 256 CPUs, 97% full, any sizes, 1,000 events"
    assert made["more"] == "2 judgements; drifted / fresh: L3 1.50, shared cores 4 / 0, slowest event 5 ms"
