"""Partitions and unbound kernel threads: before Linux 7.0, the kernel overwrites their masks.

A host in memory: no kernel lets a test make partitions on every machine. The lab has real ones.
"""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor, recover
from pinner.apply.undo.all_runs import can_be_undone
from pinner.model.change import StateChange, Target
from pinner.model.cpuset import union

pytestmark = pytest.mark.fault(63)

SCOPES = [Target("partition", f"machine.slice/g{number}.scope", None, f"g{number}.scope") for number in (1, 2)]
ALL = cpus("0-7")
KSWAPD = [daemon(40 + node, f"kswapd{node}") for node in (0, 1)]


class OldKernel(InMemoryHost):
    """Linux 6.2 to 6.19: a cpuset change keeps masks set by hand, but not those of unbound kernel threads."""

    def set_state(self, target, state):
        self._record((str(target), str(state)))
        self.states[target] = state
        self.overwrite()

    def overwrite(self):
        taken = union(each.cpus for each in self.states.values() if each.kind == "isolated")
        for kernel in self.kernel_targets:
            for thread in self.threads[kernel]:
                self._write(thread.tid, ALL - taken)

    def end(self, scope):
        """The guest ends, and so do its scope and partition."""
        del self.states[scope]
        self.overwrite()


@pytest.fixture
def host():
    host = OldKernel()
    host.add(KSWAPD[0], "0-3")
    host.add(KSWAPD[1], "4-7")
    host.add(vcpu(0), "0-7")
    host.add(daemon(500), "2")
    host.kernel_targets |= set(KSWAPD)
    host.states |= dict.fromkeys(SCOPES, MEMBER)
    return host


def made(scope, after, before=MEMBER):
    return StateChange(scope, before, isolated(after), "so")


def apply(host, journal, name, *changes):
    ended = executor.apply(host.plan(*changes), make_run(name), host, journal, lambda: NOON, lambda *_: None)
    assert ended.state == "applied"


def undo(host, journal, undoes, name="back"):
    return executor.rollback(
        make_run(name, kind="rollback", undoes=undoes), host, journal, lambda: NOON, lambda *_: None
    )


def test_their_masks_are_in_the_journal_before_the_partition_is_made(host, journal):
    found = {}
    host.before_write = lambda write: found.setdefault(write[0], journal.entries("r1")[0].found)
    apply(host, journal, "r1", made(SCOPES[0], "4-5"))
    before = {thread.tid: str(thread.cpus) for thread in found[str(SCOPES[0])]}
    assert [before[host.threads[each][0].tid] for each in KSWAPD] == ["0-3", "4-7"]


def test_their_masks_come_back_with_the_partitions(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", made(SCOPES[0], "4-5"), made(SCOPES[1], "6-7"))
    assert {host.kernel()[tid] for tid in (100, 200)} == {"0-3"}
    assert undo(host, journal, "r1").state == "rolled_back"
    assert host.kernel() == before


def test_a_partition_of_another_program_in_the_meantime_does_not_hide_them(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", made(SCOPES[0], "6-7"))
    host.overwrite()
    assert host.kernel()[100] == "0-5"
    assert undo(host, journal, "r1").state == "rolled_back"
    assert host.kernel() == before


def test_their_masks_come_back_after_the_guest_has_ended(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", made(SCOPES[0], "4-7"))
    host.end(SCOPES[0])
    assert {host.kernel()[tid] for tid in (100, 200)} == {"0-7"}
    run, entries = journal.run("r1"), journal.entries("r1")
    assert can_be_undone(run, entries, host), "retention must not delete the masks"
    undo(host, journal, "r1")
    assert host.kernel() == before
    assert not can_be_undone(run, entries, host)


def test_a_changed_partition_gives_them_back_too(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", made(SCOPES[0], "4-7"))
    apply(host, journal, "r2", made(SCOPES[0], "4-5", isolated("4-7")))
    run = make_run("all", kind="rollback", plan="")
    ended = executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, host.kernel(), host.states[SCOPES[0]]) == ("rolled_back", before, MEMBER)


def test_they_come_back_if_the_apply_is_interrupted(host, journal):
    before = host.kernel()

    dead = []

    def dies(write):
        if dead or write[0] == str(SCOPES[1]):
            dead.append(write)
            raise KeyboardInterrupt

    host.before_write = dies
    end, journal.end = journal.end, lambda *_: None
    with pytest.raises(KeyboardInterrupt):
        apply(host, journal, "r1", made(SCOPES[0], "4-5"), made(SCOPES[1], "6-7"))
    journal.end, host.before_write = end, lambda write: None
    host.overwrite()
    ended = recover.recover(host, journal, "back", lambda: NOON)
    assert ended is not None
    assert (ended.state, host.states[SCOPES[0]], host.kernel()) == ("undone", MEMBER, before)
