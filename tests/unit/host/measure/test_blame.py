"""Who ran while others waited."""

import pytest

from pinner.host.kernel.tracefs import parse
from pinner.host.measure.blame import waits
from pinner.model.outcome.blame import Migration, Switch, Wakeup

GUEST, OTHER, THIRD = 10, 20, 30
TEXT = """\
# tracer: nop
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           <idle>-0       [001] d..2.   100.000001: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 \
prev_state=R ==> next_comm=CPU 0/KVM next_pid=10 next_prio=120
        CPU 0/TCG-10      [001] d..2.   100.500000: sched_switch: prev_comm=CPU 0/TCG prev_pid=10 prev_prio=120 \
prev_state=R+ ==> next_comm=a b) [000] x next_pid=20 next_prio=120
          <...>-44      [000] dNh5.   100.600000: sched_wakeup: comm=vhost-5 pid=44 prio=120 target_cpu=002
          <...>-44      [000] d..5.   100.700000: sched_migrate_task: comm=vhost-5 pid=44 prio=120 orig_cpu=2 dest_cpu=3
 nonsense [0 line
"""


def test_the_kernel_s_text_is_read():
    assert tuple(parse(TEXT.splitlines())) == (
        Switch(100.000001, 1, 0, True, 10, "CPU 0/KVM"),
        Switch(100.5, 1, 10, True, 20, "a b) [000] x"),
        Wakeup(100.6, 44, 2),
        Migration(100.7, 44, 3),
    )


@pytest.mark.parametrize("name", ["a\nb", "\n", "a\n\nb", "x [001] d..2.\n", "a\r\x0b\x85b"])
def test_a_thread_cannot_hide_behind_an_end_of_a_line_in_its_name(name):
    text = (
        f"{name}-7 [001] d..2. 1.0: sched_switch: prev_comm={name} prev_pid=7 prev_prio=120 prev_state=R ==> "
        f"next_comm={name} next_pid=8 next_prio=120\n"
        f"{name}-8 [001] d..2. 2.0: sched_wakeup: comm={name} pid=7 prio=120 target_cpu=002\n"
    )
    lines = [f"{line}\n" for line in text.split("\n")]
    assert tuple(parse(lines)) == (Switch(1.0, 1, 7, True, 8, name), Wakeup(2.0, 7, 2))


def test_a_thread_cannot_fake_another_ones_id_by_its_name():
    line = (
        " x-20 [001] d..2. 1.0: sched_switch: prev_comm=a prev_pid=1 b prev_pid=20 prev_prio=120 prev_state=S "
        "==> next_comm=swapper/1 next_pid=0 next_prio=120"
    )
    assert tuple(parse([line])) == (Switch(1.0, 1, 20, False, 0, "swapper/1"),)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        # Preempted, and waits until it runs again.
        ([Switch(1, 0, GUEST, True, OTHER), Switch(3, 0, OTHER, True, GUEST)], {(GUEST, OTHER): 2}),
        # It sleeps, is woken, and waits for two threads.
        (
            [
                Switch(1, 0, GUEST, False, OTHER),
                Wakeup(2, GUEST, 0),
                Switch(3, 0, OTHER, True, THIRD),
                Switch(7, 0, THIRD, True, GUEST),
            ],
            {(GUEST, OTHER): 1, (GUEST, THIRD): 4},
        ),
        # It does not want to run.
        ([Switch(1, 0, GUEST, False, OTHER), Switch(9, 0, OTHER, True, GUEST)], {}),
        # Its queue moves.
        (
            [
                Switch(0, 1, 0, True, THIRD),
                Switch(1, 0, GUEST, True, OTHER),
                Migration(2, GUEST, 1),
                Switch(5, 1, THIRD, False, GUEST),
            ],
            {(GUEST, OTHER): 1, (GUEST, THIRD): 3},
        ),
        # It waits still at the end.
        ([Switch(1, 0, GUEST, True, OTHER)], {(GUEST, OTHER): 9}),
        # A second wakeup of a waiting thread is no new beginning.
        (
            [Switch(1, 0, GUEST, True, OTHER), Wakeup(5, GUEST, 0), Switch(6, 0, OTHER, True, GUEST)],
            {(GUEST, OTHER): 5},
        ),
        # Who ran before the first switch of a CPU is known by that switch.
        ([Wakeup(2, GUEST, 0), Switch(6, 0, OTHER, True, GUEST)], {(GUEST, OTHER): 4}),
        # Threads of nobody's interest.
        ([Switch(1, 0, THIRD, True, OTHER), Switch(6, 0, OTHER, True, THIRD)], {}),
        # The idle thread is counted, too: the CPU had to wake up first.
        ([Switch(1, 0, OTHER, False, 0), Wakeup(2, GUEST, 0), Switch(2.5, 0, 0, True, GUEST)], {(GUEST, 0): 0.5}),
    ],
)
def test_waiting_is_counted_to_the_thread_that_ran(events, found):
    assert dict(waits(events, {GUEST}, 10.0)) == pytest.approx(found)
