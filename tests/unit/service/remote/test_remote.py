"""RemoteService answers as the service behind the server does."""

import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens, make_control
from support.values import EVIL, NOON
from werkzeug.exceptions import ServiceUnavailable

from pinner import codec
from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.api.streams import Streams
from pinner.model.cpuset import CpuSet
from pinner.model.errors import (
    Blocked,
    HostUnreachable,
    Invalid,
    NotFound,
    PinnerError,
    PreconditionFailed,
    RunConflict,
    StalePlan,
)
from pinner.model.event import GuestEvent
from pinner.model.guest.guest import NovaIdentity
from pinner.model.outcome.measures import Span
from pinner.model.outcome.outcome import ProbeOptions
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy, Setback
from pinner.model.questions import GuestShape, NewGuests, Scenario
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.server.sockets import listen_tcp
from pinner.service.protocol import GuestEventOutcome
from pinner.service.remote.remote import RemoteService

NOBODY = Caller("nobody", "nowhere", "req-none")


@pytest.fixture
def pinner():
    return InMemoryService()


@pytest.fixture
def remote(pinner):
    tokens = InMemoryTokens()
    app = create_app(pinner, control=make_control(tokens), max_body_bytes=65536)
    server = serve(app, [listen_tcp("127.0.0.1", 0)])
    client = RemoteService(server.url, tokens.add("admin", "ann"))
    yield client
    client.close()
    server.stop()


def planned(remote, **fields):
    return remote.plan("h1", Request(**fields), None, None, NOBODY)


def test_the_remote_service_answers_as_the_local_one(remote, pinner):
    for ask in (
        lambda it: it.hosts(),
        lambda it: {*it.strategies()},
        lambda it: it.observe("h1", 0.5),
        lambda it: it.verify_audit(),
    ):
        assert ask(remote) == ask(pinner)


def test_snapshots(remote, pinner):
    name, taken = remote.take_snapshot("h1", 0.0, NOBODY)
    assert taken == pinner.snapshots[name] == remote.snapshot(name)
    assert remote.take_snapshot("h1", None, NOBODY)[1].sample_seconds == 5.0
    assert remote.plan("h1", Request(), name, None, NOBODY).basis.snapshot == name


def test_plans(remote, pinner):
    request = Request("isolated", (EVIL,), ("90", "idle"), "0", "1-2", 7.5, "require")
    plan = remote.plan("h1", request, None, 0.0, NOBODY)
    assert plan.request == request
    assert plan == pinner.stored[plan.id] == remote.plan_by_id(plan.id)
    successor = remote.plan("h1", request, None, 0.0, NOBODY, replaces=plan.id)
    assert pinner.replaced == {successor.id: plan.id}
    others = [planned(remote) for _ in range(3)]
    first = remote.plans("h1", PageRequest(2))
    assert first == pinner.plans("h1", PageRequest(2))
    assert remote.plans("h1", PageRequest(2, first.next)).items[-1].id == successor.id
    assert [one.id for one in first.items] == [others[2].id, others[1].id]
    assert remote.plans("elsewhere", PageRequest(2)).items == ()


def test_runs(remote, pinner):
    run = remote.apply(planned(remote).id, ApplyOptions(persist=True), NOBODY)
    assert (run.actor, run.origin, run.persist, run.migrate_memory) == ("ann", "127.0.0.1", True, False)
    assert remote.apply(run.plan, ApplyOptions(migrate_memory=True), NOBODY).migrate_memory
    assert remote.run(run.id) == pinner.run(run.id)
    assert remote.entries(run.id) == pinner.entries(run.id)
    assert list(remote.follow(run.id)) == list(pinner.follow(run.id))
    undo = remote.rollback(run.id, NOBODY)
    assert remote.runs(None, PageRequest(50)) == pinner.runs(None, PageRequest(50))
    assert undo.undoes == run.id


def test_probes(remote, pinner):
    probe = remote.probe(planned(remote).id, ProbeOptions(2, 30), NOBODY)
    assert (probe.actor, probe.seconds, len(probe.order)) == ("ann", 30, 4)
    assert (
        probe == pinner.probe_by_id(probe.id) == remote.probe_by_id(probe.id) == remote.cancel_probe(probe.id, NOBODY)
    )
    assert probe.outcome.measures[0].low is None


def test_tournaments(remote, pinner):
    plans = [remote.plan("h1", Request(strategy), None, None, NOBODY).id for strategy in ("shared-pool", "numa-local")]
    tournament = remote.probe(plans[0], ProbeOptions(12, 30, (plans[1],), keep=True), NOBODY)
    assert tournament == remote.probe_by_id(tournament.id) == pinner.probe_by_id(tournament.id)
    assert (tournament.plans, tournament.winner, tournament.keep) == (tuple(plans), "shared-pool", True)


def test_the_audit_trail(remote, pinner):
    planned(remote)
    for since in (None, NOON - timedelta(hours=1), NOON + timedelta(hours=1)):
        assert remote.audit("h1", "ann", since, PageRequest(5)) == pinner.audit("h1", "ann", since, PageRequest(5))
    assert remote.audit(None, None, None, PageRequest(5)).items[0].actor == "ann"


def test_errors_come_back_as_they_were_raised(remote, pinner):
    plan = planned(remote)
    pinner.stale.add(plan.id)
    cases = [
        (lambda it: it.observe("a b ?#%", 0.0), NotFound),
        (lambda it: it.observe("none", 0.0), NotFound),
        (lambda it: it.plan("h1", Request("fastest"), None, None, NOBODY), NotFound),
        (lambda it: it.plan("h1", Request(emulator="9"), None, None, NOBODY), Invalid),
        (lambda it: it.plans(None, PageRequest(5, "nowhere")), Invalid),
        (lambda it: it.apply(plan.id, ApplyOptions(), NOBODY), StalePlan),
        (lambda it: list(it.follow("none")), NotFound),
    ]
    for ask, kind in cases[1:]:
        with pytest.raises(kind) as here:
            ask(pinner)
        with pytest.raises(kind) as there:
            ask(remote)
        assert type(there.value) is type(here.value)
        assert (there.value.message, there.value.details) == (here.value.message, dict(here.value.details))
    with pytest.raises(NotFound):
        cases[0][0](remote)


def test_conflicts(remote, pinner):
    pinner.instant = False
    run = remote.apply(planned(remote).id, ApplyOptions(), NOBODY)
    with pytest.raises(RunConflict, match="running"):
        remote.rollback(run.id, NOBODY)
    plan = planned(remote)
    object.__setattr__(plan, "blocked", "reboot first")
    pinner.stored[plan.id] = plan
    with pytest.raises(Blocked, match="reboot first"):
        remote.apply(plan.id, ApplyOptions(), NOBODY)


def test_a_limit_that_no_page_has(remote):
    with pytest.raises(Invalid) as refused:
        remote.runs(None, PageRequest(501))
    assert refused.value.details["field"] == "limit"


def test_a_run_is_followed_by_its_event_stream(remote, pinner):
    pinner.instant = False
    run = remote.apply(planned(remote).id, ApplyOptions(), NOBODY)
    threading.Timer(0.3, pinner.finish, [run.id]).start()
    assert [one.entry and one.entry.seq for one in remote.follow(run.id)] == [1, 2, 3, None]


def test_a_run_is_followed_without_a_stream_too(remote, pinner, monkeypatch):
    monkeypatch.setattr(remote, "_stream", lambda run: iter(()))
    pinner.instant = False
    run = remote.apply(planned(remote).id, ApplyOptions(), NOBODY)
    threading.Timer(0.3, pinner.finish, [run.id]).start()
    assert [one.entry and one.entry.seq for one in remote.follow(run.id)] == [1, 2, 3, None]


def test_a_run_is_polled_where_the_server_has_no_free_stream(remote, pinner, monkeypatch):
    def full(_streams, _changes):
        raise ServiceUnavailable("8 streams are open", retry_after=5)

    monkeypatch.setattr(Streams, "respond", full)
    run = remote.apply(planned(remote).id, ApplyOptions(), NOBODY)
    assert list(remote.follow(run.id))[-1].run.state == "applied"


def test_a_wrong_token(remote):
    stranger = RemoteService(remote.where, "wrong")
    with closing(stranger), pytest.raises(PinnerError, match="bearer token"):
        stranger.hosts()


def test_no_server():
    with closing(RemoteService("http://127.0.0.1:9")) as lost, pytest.raises(HostUnreachable) as gone:
        lost.hosts()
    assert gone.value.details["host"] == "http://127.0.0.1:9"
    assert "pinner serve" in gone.value.message


@pytest.mark.parametrize(
    "url", ["", "localhost:8077", "ftp://localhost", "http://", "http://[::1", "http://h:port", "http://h:99999"]
)
def test_a_bad_url_is_refused(url):
    with pytest.raises(Invalid) as refused:
        RemoteService(url)
    assert (refused.value.details["field"], refused.value.details["value"]) == ("url", url)


def test_a_token_that_no_header_can_hold_is_not_shown():
    with pytest.raises(Invalid) as refused:
        RemoteService("http://127.0.0.1:9", "s3cret\n")
    assert "s3cret" not in str(refused.value)


def test_a_name_that_is_not_utf8(remote):
    with pytest.raises(NotFound):
        remote.observe("\udcff", 0.0)
    with pytest.raises(Invalid):
        planned(remote, guests=("\udcff",))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>welcome</html>"),
        (200, b'{"items": [1], "next": ""}'),
        (200, b"[]"),
        (200, b""),
        (502, b"<html>bad gateway</html>"),
        (404, b'{"error": "gone"}'),
        (500, b"null"),
    ],
)
def test_an_answer_of_another_server_than_pinner(status, body):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request).start()
        remote = RemoteService(f"http://127.0.0.1:{other.server_port}")
        with closing(remote), pytest.raises(PinnerError, match="the server"):
            remote.hosts()


def test_the_capacity(remote, pinner):
    assert remote.capacity("h1") == pinner.capacity("h1")
    assert remote.capacity("h1", 3) == pinner.capacity("h1", 3)
    with pytest.raises(Invalid):
        remote.capacity("h1", 0)
    shape = GuestShape(1, 16, 0)
    assert remote.capacity("h1", 1, shape) == pinner.capacity("h1", 1, shape)


def test_questions_about_a_host_that_is_not_so(remote, pinner):
    scenario = Scenario((NewGuests(GuestShape(1, 16), 2),), (), (), CpuSet.of([3]), Request("numa-local"))
    assert remote.what_if("h1", Request(), scenario, 0.0) == pinner.what_if("h1", Request(), scenario, 0.0)
    with pytest.raises(NotFound):
        remote.what_if("h1", Request(), Scenario(remove=("nobody",)), 0.0)


def test_an_explanation(remote, pinner):
    plan = remote.plan("h1", Request(), None, 0.0, NOBODY)
    guest = pinner.observe("h1", 0.0).guests[0]
    assert remote.explain(plan.id, guest.uuid) == pinner.explain(plan.id, guest.name)
    with pytest.raises(NotFound):
        remote.explain(plan.id, "nobody")


def test_who_delays_a_guest(remote, pinner):
    assert remote.blame("h1", EVIL, 0.5) == pinner.blame("h1", EVIL, 0.5)
    with pytest.raises(NotFound):
        remote.blame("h1", "nobody", 0.5)


def test_the_measures(remote, pinner):
    assert remote.measures("h1", Span(step=60)) == pinner.measures("h1", Span(step=60))
    some = ("delay_vcpu", "pressure")
    assert remote.measures("h1", Span(), None, some) == pinner.measures("h1", Span(), None, some)
    begin = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert remote.measures("h1", Span(begin, begin + timedelta(1)), EVIL).histories
    with pytest.raises(NotFound):
        remote.measures("h1", Span(), "nobody")


def test_the_findings(remote, pinner):
    assert remote.findings("h1", 2.0) == pinner.findings("h1", 2.0)
    with pytest.raises(NotFound):
        remote.findings("elsewhere", 0.0)


def test_the_interrupts(remote, pinner):
    assert remote.interrupts("h1") == pinner.interrupts("h1")


def test_policies_and_drift(remote, pinner):
    with pytest.raises(NotFound, match="has no policy"):
        remote.policy("h1")
    assert remote.drift("h1") == pinner.drift("h1")
    wanted = Policy(Request("isolated", excluded_guests=(EVIL,), excluded_processes=("a.service",)), "propose")
    assert remote.set_policy("h1", wanted, NOBODY) == wanted == remote.policy("h1") == pinner.policies["h1"]
    assert remote.setback("h1") is None
    pinner.setbacks["h1"] = Setback("run-1", NOON, "worse")
    assert (remote.setback("h1"), remote.policy("h1")) == (pinner.setbacks["h1"], wanted)
    assert remote.drift("h1") == pinner.drift("h1")
    with pytest.raises(PreconditionFailed):
        remote.set_policy("h1", Policy(), NOBODY, ("",))
    with pytest.raises(PreconditionFailed):
        remote.delete_policy("h1", NOBODY, ("0", "1"))
    remote.delete_policy("h1", NOBODY, (codec.content_hash(wanted),))
    with pytest.raises(NotFound, match="has no policy"):
        remote.delete_policy("h1", NOBODY)
    recorded = [(record.action, record.actor) for record in pinner.records]
    assert recorded == [("policy.set", "ann"), ("policy.delete", "ann")]


def test_a_guest_is_marked(remote, pinner):
    (guest,) = remote.observe("h1", 0.0).guests
    for excluded in (True, False):
        assert remote.set_excluded("h1", guest.uuid, excluded, NOBODY).excluded is excluded
        assert pinner.excluded == {guest.uuid: excluded}
    with pytest.raises(NotFound):
        remote.set_excluded("h1", "nobody", True, NOBODY)


def test_events(remote, pinner):
    (guest,) = pinner.observe("h1", 0.0).guests
    nova = NovaIdentity("i", "p", "u", "f", {"pinner:excluded": "true"}, "7", has_specs=True)
    cpus = CpuSet.parse("0-3")
    leaving = GuestEvent(guest.uuid, "leaving", "an event", "nova req-1", NOON, nova, cpus, "h2", "req-1")
    assert remote.guest_event("h1", leaving, NOBODY) == GuestEventOutcome("h1", guest.uuid, True, "")
    gone = replace(leaving, kind="gone", cpus=CpuSet())
    assert remote.guest_event(None, gone, NOBODY).host == "h1"
    assert pinner.events == [leaving, gone]


@pytest.mark.parametrize("url", ["http://ann:secret@h:8077", "http://ann:se@cret@h/", "http://ann:secret@h:port"])
def test_a_password_in_a_url_is_refused_and_not_shown(url):
    with pytest.raises(Invalid) as refused:
        RemoteService(url)
    assert "ret" not in str(refused.value)
