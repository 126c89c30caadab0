"""Which processes descend from a placed process, by the facts that /proc shows."""

import pytest

from pinner.host.processes.lineage import Relative, descendants
from pinner.model.change import ThreadKey
from pinner.model.cpuset import CpuSet
from pinner.model.machine.process import Descendants, Lineage

pytestmark = pytest.mark.fault(50)

SINCE = 100
PLACED = Relative(10, 1, 10, 10, 50, "a b c", kernel=False)
KNOWN = Lineage("b", SINCE, "/x.service", "a b c")
OURS, ANY = CpuSet.of([0]), CpuSet.of([0, 1])


def relative(pid, parent=1, *, group=0, session=0, started=200, layout="", kernel=False):
    return Relative(pid, parent, group or pid, session or pid, started, layout, kernel)


def found(*others, **facts):
    return searched(*others, **facts).sure


def searched(*others, placed=PLACED, lineage=KNOWN, masks=None, services=None, own=()):
    living = {each.pid: each for each in (relative(1, 0, started=1), *others, *([placed] if placed else []))}
    masks, services = masks or {1: ANY}, services or {}
    own = {ThreadKey(*each): own[each] if isinstance(own, dict) else 1 for each in own}
    return descendants(
        10, 50, lineage, living, own, lambda pid: masks.get(pid, OURS), lambda pid: services.get(pid, "/")
    )


def test_children_and_their_children_descend():
    assert found(relative(20, 10), relative(21, 20), relative(22, 21)) == (20, 21, 22)


def test_a_process_that_started_before_the_change_is_none():
    assert found(relative(20, 10, started=99), relative(21, 20)) == ()


def test_a_daemon_that_left_its_parent_and_session_is_found_by_the_addresses_of_its_program():
    assert found(relative(20, layout="a b c"), relative(21, layout="a b d")) == (20,)


def test_a_daemon_that_started_another_program_is_found_in_its_service():
    assert found(relative(20), relative(21), services={20: "/x.service"}) == (20,)


def test_an_orphan_is_found_by_the_group_or_session_of_a_descendant():
    assert found(relative(20, 10), relative(21, group=20), relative(22, session=10)) == (20, 21, 22)


def test_an_orphan_that_started_another_program_is_found_in_the_session_of_the_process():
    """A shell in session 7 started the placed process, which has ended, and others."""
    known = Lineage("b", SINCE, session=7)
    shell, init = relative(7, started=20), relative(1, 0, session=1, started=1)
    orphan, of_shell, leader = relative(20, session=7), relative(21, 7, session=7), relative(22)
    others = (init, shell, orphan, of_shell, leader)
    assert found(*others, placed=None, lineage=known) == (20,)
    assert found(*others, placed=None, lineage=known, masks={1: OURS, 20: OURS}) == (), "of init, perhaps"
    assert found(*others, placed=None, lineage=Lineage("b", SINCE)) == (), "an old run knows no session"


def test_an_unrelated_process_with_the_same_mask_is_none():
    assert found(relative(20), relative(21, 20)) == ()


def test_a_process_that_may_have_its_mask_from_another_parent_is_none():
    parent = relative(5, started=60)
    assert found(parent, relative(20, 5, layout="a b c"), relative(21, 5), services={21: "/x.service"}) == ()


def test_an_orphan_is_found_although_the_process_that_adopted_it_has_the_same_mask():
    """pinner has given that process the mask later."""
    adopts = relative(5, started=60, layout="d e f")
    fork, of_session = relative(20, 5, layout="a b c"), relative(21, 5, group=10, session=10)
    assert found(adopts, fork, of_session) == (20, 21)
    assert found(adopts, fork, of_session, placed=None) == (20, 21)
    of_group = relative(22, 5, group=10)
    assert found(adopts, of_group) == (), "a shell makes one group of the processes of a pipe"


def test_a_worker_of_the_same_program_may_have_its_mask_from_the_process_that_forked_it():
    first = relative(5, started=40, layout="a b c")
    assert found(first, relative(20, 5, layout="a b c")) == ()


@pytest.mark.parametrize("placed", [PLACED, None])
def test_a_fork_is_found_although_a_process_of_the_same_program_adopted_it_and_was_placed_later(placed):
    """The one that adopts had other CPUs when the fork started."""
    adopts, fork = relative(5, started=40, layout="a b c"), relative(20, 5, layout="a b c")
    assert found(adopts, fork, placed=placed, own={(5, 40): 201}) == (20,)
    assert found(adopts, fork, placed=placed, own={(5, 40): 199}) == (), "the undo of the other one finds it"
    assert searched(adopts, fork, placed=placed, own={(5, 40): 199}).unsure == ()


def test_a_fork_is_unsure_whose_parent_of_the_same_program_has_the_mask_from_others():
    adopts, fork = relative(5, started=40, layout="a b c"), relative(20, 5, layout="a b c")
    stranger = relative(21, 5, layout="d e f")
    assert searched(adopts, fork, stranger) == Descendants((), (20,))
    assert searched(adopts, fork, stranger, masks={1: ANY, 5: ANY}) == Descendants((20,), ())
    assert searched(adopts, fork, own={(20, 200): 300}) == Descendants((), ())


def test_the_children_of_a_process_that_has_ended_are_found_by_its_session():
    assert found(relative(20, group=10, session=10), relative(21, 20), placed=None) == (20, 21)


def test_a_new_process_with_the_id_of_the_placed_one_has_no_part_in_it():
    reused = relative(10, started=150)
    assert found(relative(20, 10), relative(21, session=10), placed=reused) == ()


def test_a_process_with_a_change_of_its_own_is_left_out_but_not_its_children():
    assert found(relative(20, 10), relative(21, 20), own={(20, 200)}) == (21,)


def test_without_a_service_and_addresses_only_relations_count():
    bare = Lineage("b", SINCE)
    assert found(relative(20), relative(21, 10), services={20: ""}, lineage=bare) == (21,)


def test_kernel_threads_are_none():
    assert found(relative(20, 10, kernel=True)) == ()
