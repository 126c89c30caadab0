"""Each argument of each call is checked by the agent's own bounds, before anything of the host is read."""

import tracemalloc
from contextlib import nullcontext
from datetime import datetime, timedelta

import pytest
from pydantic import ValidationError
from support.values import NOON

from pinner import codec
from pinner.agent import limits
from pinner.agent.recorder import Recorder
from pinner.agent.socket import calls, peers, server, wire
from pinner.agent.socket.peers import CallerLeft, waits_for
from pinner.model.change import Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.outcome.measures import HOST, ROWS, History, Span
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.run.journal import Run
from pinner.service.outcome.measures import MeasureReader

pytestmark = pytest.mark.fault(68)

ALL_TIMES = {"begin": "0001-01-02T00:00:00Z", "end": "9999-12-30T00:00:00Z"}
HOUR = {"begin": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"}
HUGE = 10**30
DRIFT = codec.plain(Drift(Target("process", "1", 1, "x"), CpuSet(), (), "unknown"))
THREAD = codec.plain(ThreadMask(1, 1, CpuSet()))
LONG = "x" * 65
NAMES = [str(number) for number in range(1000)]

BOUNDS = [
    ("snapshot", "sample_seconds", {"sample_seconds": 300.1}),
    ("snapshot", "sample_seconds", {"sample_seconds": HUGE}),
    ("reading", "sample_seconds", {"sample_seconds": 300.1}),
    ("measures", "end", ALL_TIMES | {"step": 5}),
    ("measures", "end", ALL_TIMES | {"step": 900}),
    ("measures", "end", HOUR | {"step": 5, "end": "2026-01-01T04:08:01Z"}),
    ("measures", "end", {"begin": HOUR["end"], "end": HOUR["begin"], "step": 5}),
    ("measures", "begin", {"begin": "9999-12-31T23:30:00Z", "end": "9999-12-31T23:59:59Z", "step": 900}),
    ("measures", "begin", {"begin": "9999-12-31T23:30:00-14:00", "end": "9999-12-31T23:59:59-14:00", "step": 60}),
    ("measures", "begin", HOUR | {"begin": "2026-01-01T00:00:00", "step": 5}),
    ("measures", "end", HOUR | {"end": "2026-01-01T01:00:00", "step": 5}),
    ("measures", "step", HOUR | {"step": 1}),
    ("measures", "step", HOUR | {"step": 0}),
    ("measures", "step", HOUR | {"step": HUGE}),
    ("measures", "subject", HOUR | {"step": 5, "subject": "x" * (limits.MAX_TEXT + 1)}),
    ("measures", "series", HOUR | {"step": 5, "series": ["drops", LONG]}),
    ("measures", "series", HOUR | {"step": 5, "series": ["drops"] * 1000}),
    ("measures", "series", HOUR | {"step": 5, "series": [1] * 1000}),
    ("measures", "series", HOUR | {"step": 5, "series": "drops"}),
    ("blame", "sample_seconds", {"guest": "g", "seconds": 301}),
    ("blame", "guest", {"guest": LONG, "seconds": 1}),
    ("run", "run", {"run": LONG}),
    ("entries", "run", {"run": LONG}),
    ("host_events", "after", {"after": HUGE, "timeout": 0}),
    ("host_events", "after", {"after": -1, "timeout": 0}),
    ("host_events", "timeout", {"after": 0, "timeout": 61}),
    ("host_events", "process_names", {"after": 0, "timeout": 0, "process_names": ["x"] * (limits.MAX_NAMES + 1)}),
    ("host_events", "process_names", {"after": 0, "timeout": 0, "process_names": ["x" * (limits.MAX_TEXT + 1)]}),
    ("host_events", "process_names", {"after": 0, "timeout": 0, "process_names": [1] * (limits.MAX_NAMES + 1)}),
    ("has_guest", "guest", {"guest": LONG}),
    ("publish_guest_event", "guest", {"guest": LONG, "detail": ""}),
    ("set_excluded", "guest", {"guest": LONG, "excluded": True}),
    ("apply", "plan.changes", {"plan": {"changes": [{}] * (limits.MAX_CHANGES + 1)}}),
    ("apply", "plan.unplaced", {"plan": {"unplaced": [{}] * (limits.MAX_CHANGES + 1)}}),
    ("explain_drifts", "drifts", {"drifts": [DRIFT] * (limits.MAX_CHANGES + 1)}),
    ("explain_drifts", "drifts", {"drifts": [{}] * (limits.MAX_CHANGES + 1)}),
    ("explain_drifts", "drift actual", {"drifts": [DRIFT | {"actual": [THREAD] * (limits.MAX_THREADS + 1)}]}),
    ("audit_head", "centre.seq", {"centre": {"seq": HUGE, "hash": "0" * 64}}),
    ("audit_records", "after", {"after": HUGE, "limit": 1}),
    ("audit_records", "limit", {"after": 0, "limit": 1001}),
]
"""Call, argument, and a message with the first value beyond its bound, or far beyond."""
ELSEWHERE = {"apply", "rollback", "close_run"}
"""Their arguments are plans and runs: test_forged_runs.py."""
WITHOUT = {"topology", "health", "publish_policy_set"}
"""They have no arguments."""


class Untouched:
    """An agent that no call reaches, but for the trail, which has bounds of its own."""

    def __getattr__(self, name):
        def reached(*_, **__):
            raise AssertionError(f"{name} was called")

        return reached

    audit_head = staticmethod(lambda centre: limits.require_number("centre.seq", centre.seq))

    def audit_records(self, after, limit):
        limits.require_number("after", after)
        raise Invalid("limit", limit, "fewer")


CALLER = calls.SocketCaller(peers.own(), lambda *_: None)


@pytest.mark.parametrize(("call", "argument", "message"), BOUNDS, ids=[f"{row[0]} {row[1]}" for row in BOUNDS])
def test_a_value_beyond_the_bound_of_its_argument_is_refused(call, argument, message):
    with pytest.raises(Invalid) as refused:
        calls.answer(Untouched(), {"call": call} | message, CALLER)
    assert refused.value.details["field"] == argument


def test_every_call_of_the_agent_has_its_bounds():
    assert {row[0] for row in BOUNDS} | ELSEWHERE | WITHOUT == set(calls.HANDLERS)


def test_a_whole_history_is_within_the_bounds():
    for step, rows in ROWS.items():
        limits.require_span(NOON - timedelta(seconds=step * rows), NOON, step)


@pytest.mark.parametrize("text", [b'{"x":[' + b"[]," * 3_000_000 + b"[]]}", b'{"x":' + b'{"":' * 3_000_000])
def test_a_message_of_millions_of_values_costs_no_memory(text):
    tracemalloc.start()
    with pytest.raises(Invalid, match="message"):
        wire.parse(text, wire.MAX_VALUES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 2**20


def test_as_many_values_as_the_bound_are_taken_and_not_one_more():
    text = b'{"x":[1,1,1]}'
    most = codec.most_values(text)
    assert wire.parse(text, most) == {"x": [1, 1, 1]}
    with pytest.raises(Invalid, match=f"message: {most} is not valid: at most {most - 1} values"):
        wire.parse(text, most - 1)


@pytest.mark.parametrize(("part", "is_taken"), [(-1, False), (0, True), (2**63 - 1, True), (2**63, False)])
def test_the_part_of_a_target_is_a_number_that_libvirt_can_have(part, is_taken):
    drift = Drift(Target("vcpu", "g1", part, "g1"), CpuSet(), (), "unknown")
    with nullcontext() if is_taken else pytest.raises(Invalid, match=f"target part: {part} is not valid"):
        limits.require_drifts((drift,))


@pytest.mark.parametrize("value", [b'{"a":1}', b"[1]", b'"a long text that is no key"'])
def test_the_long_messages_of_all_callers_take_less_than_600_mib_together(value):
    """Four of 12 MiB took 1,044 MiB: a caller that waits for events keeps its message there."""
    part = 20
    text = b'{"x":[' + b",".join([value] * (wire.MAX_VALUES // part // 2 - 10)) + b"]}"
    tracemalloc.start()
    parsed = wire.parse(text, wire.MAX_VALUES // part)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parsed and taken * part * server.MAX_LARGE_CALLS < 600 * 2**20


@pytest.mark.parametrize("wrong", [{}, 1, [], None])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (tuple[Drift, ...], lambda many: many),
        (tuple[Drift, ...], lambda many: [DRIFT | {"actual": many}]),
        (tuple[str, ...], lambda many: many),
        (Plan, lambda many: dict.fromkeys(Plan.__dataclass_fields__, many)),
        (Plan, lambda many: {name: dict(zip(NAMES, many, strict=True)) for name in Plan.__dataclass_fields__}),
        (Plan, lambda many: {"changes": [{"kind": "affinity", "before": many}]}),
        (Plan, lambda many: {"request": {"guests": many, "processes": many}}),
        (Run, lambda many: dict.fromkeys(Run.__dataclass_fields__, many)),
    ],
)
def test_many_wrong_items_give_the_errors_of_few(kind, value, wrong):
    """An error takes a kilobyte. A message of 254 KiB took 700 MiB, one of 2.6 MiB 3.4 GiB."""
    with pytest.raises(ValidationError) as error:
        codec.adapter(kind).validate_python(value([wrong] * 1000))
    assert error.value.error_count() < 100


class Kept:
    """The values of many guests; notes which are read."""

    def __init__(self, guests):
        self.guests = guests
        self.seen = []

    def subjects(self, _since):
        return (HOST, *(str(number) for number in range(self.guests)))

    def read(self, subject, begin, _end, step, name="", series=()):
        self.seen.append(subject)
        return History(subject, name, begin, step, {})


def test_the_values_of_all_subjects_are_bounded_as_a_sum():
    kept = Kept(600)
    recorder = Recorder(lambda: (), kept, lambda: NOON)
    begin = NOON - timedelta(hours=1)
    for series in ((), ("delay_vcpu", "use_vcpu", "drops")):
        with pytest.raises(Invalid, match="longer step"):
            recorder.measures(begin, NOON, 5, "", series)
    assert kept.seen == []
    assert len(recorder.measures(begin, NOON, 60)) == 601


def test_one_series_of_many_guests_is_within_the_bound_of_the_sum():
    kept = Kept(600)
    recorder = Recorder(lambda: (), kept, lambda: NOON)
    assert len(recorder.measures(NOON - timedelta(hours=1), NOON, 5, "", ("delay_vcpu",))) == 600
    assert HOST not in kept.seen
    assert len(recorder.measures(NOON - timedelta(hours=1), NOON, 5, "", ("pressure",))) == 1


def test_a_coarser_step_is_taken_where_the_finest_one_has_too_many_values():
    steps = []

    class Hosts:
        def agent(self, _host):
            return self

        def measures(self, begin, end, step, subject, series):
            steps.append(step)
            return Recorder(lambda: (), Kept(600), lambda: NOON).measures(begin, end, step, subject, series)

    reader = MeasureReader(Hosts(), lambda: NOON)

    assert reader.measures("h1", Span()).step == 60
    assert steps == [5, 60]
    assert reader.measures("h1", Span(), None, ("drops",)).step == 5
    with pytest.raises(Invalid, match="longer step"):
        reader.measures("h1", Span(step=5))


def test_reading_ends_when_the_caller_has_left():
    kept = Kept(100)
    recorder = Recorder(lambda: (), kept, lambda: NOON)
    with waits_for(lambda: len(kept.seen) == 3), pytest.raises(CallerLeft):
        recorder.measures(NOON - timedelta(hours=1), NOON, 60)
    assert len(kept.seen) == 3


def test_no_time_is_without_a_zone():
    with pytest.raises(Invalid):
        limits.require_span(datetime(2026, 1, 1), NOON, 5)
