"""Plans without the changes of targets that wait."""

from support.hosts import cpus, guest, plain, snapshot
from support.values import make_plan

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.planning.policy.backoff_counts import leave_out

GUESTS = tuple(guest(number, 1, cpus("0"), pins=[str(number)]) for number in (1, 2, 3, 4))
HOST = snapshot(plain(8), GUESTS)


def move(number: int, then: str) -> AffinityChange:
    """The move of a guest from the CPU of its number."""
    owner, (vcpu,) = GUESTS[number - 1], GUESTS[number - 1].vcpus
    before = ThreadMask(vcpu.thread.tid, vcpu.thread.started, vcpu.thread.affinity)
    return AffinityChange(Target("vcpu", owner.uuid, 0, owner.name), (before,), cpus(then), "so")


def test_guests_that_wait_for_each_other_are_all_left_out():
    """g1 stays; so CPU 1 stays in use, which g2 needs, and so does CPU 2, which g3 needs."""
    changes = (move(1, "5"), move(2, "1"), move(3, "2"), move(4, "6"))
    plan = make_plan("plan-1", "s", changes)
    less = leave_out(plan, {changes[0].target.key: "its QEMU hangs"}, None, HOST)
    assert less.changes == (changes[3],)
    assert [(left.target.name, left.why) for left in less.skipped] == [
        ("g1", "its QEMU hangs"),
        ("g2", "it needs a CPU of a target that stays as it is"),
        ("g3", "it needs a CPU of a target that stays as it is"),
    ]
    assert less.id != plan.id


def test_a_plan_that_changes_none_of_the_targets_stays_the_same():
    plan = make_plan("plan-1", "s", (move(1, "5"),))
    assert leave_out(plan, {move(2, "1").target.key: "its QEMU hangs"}, None, HOST) is plan
