"""A release restores the affinities that a guest had before pinner placed it."""

from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, snapshot
from support.values import recorded

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Vcpu
from pinner.model.machine.process import Thread
from pinner.model.plan.request import Request
from pinner.planning import planner
from pinner.planning.policy.release import past_of, release

HOST = snapshot(plain(16), [guest(1, 2, cpus("0-15"), pins=["0-7", "8-15"], iothreads=1, vhost_threads=1)])
UUID = HOST.guests[0].uuid


def placed(host):
    """The host after a plan, and the plan's changes."""
    changes = planner.plan(host, "s", Request()).changes
    after = {mask.tid: change.after for change in changes for mask in change.before}
    return moved(host, after), changes


def moved(host, masks):
    def thread(one):
        return replace(one, affinity=masks.get(one.tid, one.affinity))

    guests = tuple(
        replace(
            each,
            vcpus=tuple(replace(vcpu, thread=thread(vcpu.thread)) for vcpu in each.vcpus),
            emulator=replace(each.emulator, threads=tuple(map(thread, each.emulator.threads))),
            iothreads=tuple(replace(one, thread=thread(one.thread)) for one in each.iothreads),
            vhost_threads=tuple(map(thread, each.vhost_threads)),
        )
        for each in host.guests
    )
    return replace(host, guests=guests)


def affinities(host):
    parts = host.guests[0].threads_by_target.items()
    return {str(target): {str(one.affinity) for one in threads} for target, threads in parts}


@pytest.mark.parametrize(
    ("within", "vcpus"), [("", ("0-7", "8-15")), ("0-3", ("0-3", "0-3")), ("0-9", ("0-7", "8-9")), ("90", None)]
)
def test_prior_affinities_are_restored_as_far_as_the_destination_has_the_cpus(within, vcpus):
    now, done = placed(HOST)
    plan = release(now, "s2", UUID, recorded(done), cpus(within), "it leaves")
    after = moved(now, {mask.tid: change.after for change in plan.changes for mask in change.before})
    if not within or vcpus is None:
        assert affinities(after) == affinities(HOST)
    else:
        assert [affinities(after)[f"guest g1 vcpu {part}"] for part in (0, 1)] == [{one} for one in vcpus]
        assert set().union(*affinities(after).values()) <= {within, *vcpus}
    assert {change.target.owner for change in plan.changes} == {UUID}
    assert all(change.reason == "it leaves" for change in plan.changes)
    assert (plan.purpose, planner.plan(now, "s", Request()).purpose) == ("release", "place")


def test_a_destination_that_has_only_cpus_of_others_here_does_not_count():
    """An agent refuses to confine the guest to CPUs that Nova dedicates, so the guest kept its placement."""
    now, done = placed(replace(HOST, dedicated=cpus("0-3")))
    plan = release(now, "s2", UUID, recorded(done), cpus("0-3"), "it leaves")
    after = moved(now, {mask.tid: change.after for change in plan.changes for mask in change.before})
    assert affinities(after) == affinities(HOST)
    plan = release(now, "s2", UUID, recorded(done), cpus("0-4"), "it leaves")
    assert {str(change.after) for change in plan.changes if change.target.kind == "vcpu"} == {"0-4"}


def test_only_online_cpus_are_restored_also_where_all_belong_to_others():
    """An agent refuses a release to offline CPUs."""
    now, done = placed(HOST)
    now = replace(now, dedicated=cpus("0-15"), topology=plain(16, offline="15"))
    plan = release(now, "s2", UUID, recorded(done), CpuSet(), "it leaves")
    assert {str(c.target): str(c.after) for c in plan.changes}["guest g1 vcpu 1"] == "8-14"


def test_the_affinities_before_the_first_of_two_placements_are_restored():
    once, first = placed(HOST)
    parts = once.guests[0].threads_by_target.values()
    elsewhere = moved(once, dict.fromkeys((thread.tid for threads in parts for thread in threads), cpus("9")))
    twice, second = placed(elsewhere)
    plan = release(twice, "s2", UUID, recorded((*first, *second)), CpuSet(), "it leaves")
    after = moved(twice, {mask.tid: change.after for change in plan.changes for mask in change.before})
    assert affinities(after) == affinities(HOST)
    assert release(after, "s3", UUID, recorded((*first, *second, *plan.changes)), CpuSet(), "again").changes == ()


def test_targets_that_pinner_did_not_place_stay():
    assert release(HOST, "s", UUID, (), CpuSet(), "it leaves").changes == ()
    now, done = placed(HOST)
    assert release(now, "s", "another", recorded(done), CpuSet(), "it leaves").changes == ()
    changed = moved(now, {HOST.guests[0].vcpus[0].thread.tid: cpus("9")})
    plan = release(changed, "s", UUID, recorded(done), CpuSet(), "it leaves")
    assert "guest g1 vcpu 0" not in {str(change.target) for change in plan.changes}
    assert "guest g1 vcpu 1" in {str(change.target) for change in plan.changes}


def test_a_target_of_which_another_program_moved_a_single_thread_is_released():
    threads = HOST.guests[0].emulator.threads
    assert len(threads) > 1
    now, done = placed(HOST)
    changed = moved(now, {threads[0].tid: cpus("9")})
    plan = release(changed, "s", UUID, recorded(done), CpuSet(), "it leaves")
    assert "guest g1 emulator" in {str(change.target) for change in plan.changes}
    changed = moved(now, dict.fromkeys((thread.tid for thread in threads), cpus("9")))
    plan = release(changed, "s", UUID, recorded(done), CpuSet(), "it leaves")
    assert "guest g1 emulator" not in {str(change.target) for change in plan.changes}


def test_a_thread_that_is_younger_than_its_placement_gets_all_cpus():
    now, done = placed(HOST)
    born = replace(now.guests[0].vcpus[0].thread, tid=777, started=99)
    again = replace(now.guests[0], vcpus=(replace(now.guests[0].vcpus[0], thread=born), now.guests[0].vcpus[1]))
    plan = release(replace(now, guests=(again,)), "s", UUID, recorded(done), CpuSet(), "it leaves")
    assert {str(c.target): str(c.after) for c in plan.changes}["guest g1 vcpu 0"] == "0-15"


def test_a_vcpu_that_was_plugged_in_does_not_take_the_placement_for_its_past():
    """It inherited the emulator's new mask. The next plan places it, and has that mask as the one before."""
    now, first = placed(HOST)
    given = next(change.after for change in first if change.target.kind == "emulator")
    born = Vcpu(2, Thread(777, 500, "CPU 2/TCG", given), given)
    grown = replace(now, guests=(replace(now.guests[0], vcpus=(*now.guests[0].vcpus, born)),))
    twice, second = placed(grown)
    assert "guest g1 vcpu 2" in {str(change.target) for change in second}
    past = (*recorded(first, since=400), *recorded(second, since=600))
    plan = release(twice, "s", UUID, past, CpuSet(), "it leaves")
    assert {str(c.target): str(c.after) for c in plan.changes}["guest g1 vcpu 2"] == "0-15"
    older = (*recorded(first, since=550), *recorded(second, since=600))
    plan = release(twice, "s", UUID, older, CpuSet(), "it leaves")
    assert {str(c.target): c.after for c in plan.changes}["guest g1 vcpu 2"] == given, "it had the mask before"


def test_an_inheritor_has_the_prior_mask_of_the_part_that_started_it():
    """The main thread has started the vCPU, and a placed iothread the last worker."""
    emulator, vcpu, iothread = (
        Target(kind, UUID, part, "g1") for kind, part in (("emulator", None), ("vcpu", 1), ("iothread", 1))
    )

    def change(target, after, **before):
        masks = tuple(ThreadMask(int(tid[1:]), int(tid[1:]), cpus(mask)) for tid, mask in before.items())
        return AffinityChange(target, masks, cpus(after), "so")

    past = past_of(
        (
            *recorded([change(iothread, "4", t3="2-3")], since=20),
            *recorded([change(emulator, "1", t1="0-7", t11="5", t12="5", t21="4")], since=30),
            *recorded([change(vcpu, "6", t31="1")], since=40),
        )
    )
    first = {key.tid: str(mask) for key, mask in past.first.items()}
    assert first == {3: "2-3", 1: "0-7", 11: "5", 12: "5", 21: "2-3", 31: "0-7"}


def test_a_guest_whose_migration_has_begun_is_not_changed():
    """libvirt refuses each pin until the migration has ended."""
    now, done = placed(HOST)
    now = replace(now, guests=tuple(replace(each, state="migrating") for each in now.guests))
    assert release(now, "s2", UUID, recorded(done), cpus("0-3"), "it leaves").changes == ()
