"""The agent bounds calls that it accepts and that could fill its disk; they keep nobody else from an undo."""

import os
from contextlib import closing, contextmanager

import pytest
from support.fakes.in_memory_host import InMemoryHost, vcpu
from support.values import NOON, make_plan, make_run, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.socket import peers, server
from pinner.agent.socket.client import AgentClient
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import MAX_HEADS, MAX_MARKS, WINDOW_SECONDS, AgentTrailFile, CallLimit
from pinner.apply import executor
from pinner.model.errors import Busy, Gone, NotPermitted, StoreUnavailable
from pinner.model.run.agent_audit import ChainHead
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.fault(69)
API_USER = 54321
MOST = 3


class Setup:
    """An agent of a host with one guest, and its clock."""

    def __init__(self, folder, journal):
        self.seconds = 1000.0
        self.journal = journal
        self.host = InMemoryHost()
        self.host.add(vcpu(0), "0-7")
        self.host.set_excluded = lambda guest, *, excluded: self.marks.append((guest, excluded))
        self.marks = []
        trail = AgentTrailFile(
            "h1", journal.chain, SigningKey(folder / "signing.key"), lambda: NOON, clock=lambda: self.seconds
        )
        self.agent = LocalAgent(
            lambda _: make_snapshot(), self.host, journal, lambda: NOON, HostEventQueue(lambda: NOON), trail,
            name="h1", idle_limit=CallLimit(lambda: self.seconds, MOST),
        )  # fmt: skip

    def apply(self, name):
        plan = make_plan(changes=(self.host.change(vcpu(0), "1"),))
        executor.apply(plan, make_run(name), self.host, self.journal, lambda: NOON, lambda *_: None)

    def roll_back(self, name, undoes=""):
        return self.agent.rollback(make_run(name, kind="rollback", plan="", undoes=undoes), lambda *_: None)

    def flood(self):
        """As many calls that do nothing as the agent accepts."""
        for number in range(MOST):
            self.agent.close_run(make_run(f"idle-{number}"))
        with pytest.raises(Busy, match="did nothing"):
            self.agent.close_run(make_run("idle-more"))


@pytest.fixture
def setup(tmp_path):
    with closing(StoredJournal(tmp_path)) as journal:
        yield Setup(tmp_path, journal)


@contextmanager
def called_by(user):
    before = peers.calling.set(peers.Peer(1, user))
    try:
        yield
    finally:
        peers.calling.reset(before)


def refuse_writes(_write):
    raise NotPermitted("affinity", "EPERM")


def test_the_calls_of_another_user_leave_those_of_root(setup):
    with called_by(API_USER):
        setup.flood()
    with called_by(0):
        assert setup.roll_back("root-1").state == "rolled_back"
        assert setup.agent.close_run(make_run("root-2")).state == "failed"
    with called_by(API_USER), pytest.raises(Busy):
        setup.roll_back("of-api")


def test_the_user_of_a_call_is_that_of_its_connection(setup, tmp_path, monkeypatch):
    users = iter([API_USER] * (MOST + 1))
    monkeypatch.setattr(server.peers, "of", lambda _: peers.Peer(1, next(users, 0)))
    serving = server.AgentServer(setup.agent, tmp_path / "agent.sock", user=os.geteuid())
    serving._users.add(API_USER)
    serving.start()
    setup.agent = AgentClient("h1", tmp_path / "agent.sock")
    try:
        setup.flood()
        assert setup.roll_back("root-1").state == "rolled_back"
    finally:
        serving.close()


@pytest.mark.parametrize("undoes", ["", "run-1"])
def test_calls_that_do_nothing_keep_nobody_from_a_rollback_that_undoes_something(setup, undoes):
    setup.apply("run-1")
    setup.flood()
    assert setup.roll_back("undo", undoes).state == "rolled_back"
    assert setup.journal.run("run-1").state == "rolled_back"
    with pytest.raises(Busy):
        setup.roll_back("again")


@pytest.mark.parametrize("undoes", ["", "run-1"])
def test_rollbacks_that_undo_nothing_of_what_is_in_force_are_bounded(setup, undoes):
    setup.apply("run-1")
    setup.host.before_write = refuse_writes
    for number in range(MOST):
        assert setup.roll_back(f"undo-{number}", undoes).state == "rolled_back_partly"
    with pytest.raises(Busy, match="did nothing"):
        setup.roll_back("undo-more", undoes)
    other = "" if undoes else "run-1"
    assert setup.roll_back("undo-other", other).state == "rolled_back_partly"
    setup.seconds += WINDOW_SECONDS
    setup.host.before_write = lambda _: None
    assert setup.roll_back("undo-later", undoes).state == "rolled_back"


def test_heads_of_the_centre_are_bounded_in_the_agents_trail(setup):
    heads = [ChainHead(1 + number % 2, f"{number:064x}") for number in range(MAX_HEADS + 1)]
    with called_by(API_USER):
        for head in heads[:-1]:
            setup.agent.audit_head(head)
        with pytest.raises(Busy, match=f"{MAX_HEADS} calls of the last 60 s reported heads"):
            setup.agent.audit_head(heads[-1])
        assert setup.agent.audit_head(None).centre == setup.agent.audit_head(heads[-2]).centre == heads[-2]
    assert len(setup.agent.audit_records(1, 1000)) == MAX_HEADS
    with called_by(0):
        assert setup.agent.audit_head(heads[-1]).centre == heads[-1]
    setup.seconds += WINDOW_SECONDS
    with called_by(API_USER):
        assert setup.agent.audit_head(heads[0]).centre == heads[0]


def test_a_head_that_the_agent_has_already_counts_for_nothing(setup):
    same, other = ChainHead(7, "ab" * 32), ChainHead(8, "cd" * 32)
    for _ in range(MAX_HEADS + 20):
        setup.agent.audit_head(same)
    assert setup.agent.audit_head(other).centre == other


def test_marks_of_guests_are_bounded_and_each_is_recorded(setup):
    with called_by(API_USER):
        for number in range(MAX_MARKS):
            setup.agent.set_excluded("g1", excluded=number % 2 == 0)
        with pytest.raises(Busy, match=f"{MAX_MARKS} calls of the last 60 s marked guests"):
            setup.agent.set_excluded("g1", excluded=True)
    assert len(setup.marks) == len(setup.agent.audit_records(1, 1000)) == MAX_MARKS
    with called_by(0):
        setup.agent.set_excluded("g1", excluded=True)
    setup.seconds += WINDOW_SECONDS
    with called_by(API_USER):
        setup.agent.set_excluded("g1", excluded=True)
    assert len(setup.marks) == len(setup.agent.audit_records(1, 1000)) == MAX_MARKS + 2


def test_a_guest_is_not_marked_where_its_record_cannot_be_stored(setup, monkeypatch):
    """A mark that no record names looked like one that the agent never made."""

    def append(*_):
        raise StoreUnavailable("journal.sqlite", "attempt to write a readonly database")

    monkeypatch.setattr(setup.journal.chain, "append", append)
    with pytest.raises(StoreUnavailable):
        setup.agent.set_excluded("g1", excluded=True)
    assert setup.marks == []


def test_marks_that_fail_are_recorded_and_bounded_too(setup):
    def fail(*_, **__):
        raise Gone("guest g1")

    setup.host.set_excluded = fail
    with called_by(API_USER):
        for _ in range(MAX_MARKS // 2):
            with pytest.raises(Gone):
                setup.agent.set_excluded("g1", excluded=True)
        with pytest.raises(Busy):
            setup.agent.set_excluded("g1", excluded=True)
    records = setup.agent.audit_records(1, 1000)
    assert [record.result for record in records] == ["excluded", "excluded: failed, gone"] * (MAX_MARKS // 2)


def test_a_failed_mark_without_a_record_of_its_failure_is_told_as_such(setup, monkeypatch):
    """Else the caller would record a failure that the agent's trail does not have."""
    append = setup.journal.chain.append

    def fail(*_, **__):
        def full(*_):
            raise StoreUnavailable("journal.sqlite", "database or disk is full")

        monkeypatch.setattr(setup.journal.chain, "append", full)
        raise Gone("guest g1")

    setup.host.set_excluded = fail
    with pytest.raises(StoreUnavailable, match="disk is full"):
        setup.agent.set_excluded("g1", excluded=True)
    monkeypatch.setattr(setup.journal.chain, "append", append)
    assert [record.result for record in setup.agent.audit_records(1, 1000)] == ["excluded"]
