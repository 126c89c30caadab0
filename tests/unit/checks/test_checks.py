"""Every check has a host with its fault and a host without it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import chain
from typing import NamedTuple

import pytest
from support.hosts import GIB
from support.made_up.checks.check_cases_cpus import CASES as CPUS
from support.made_up.checks.check_cases_hosts import CASES as HOSTS
from support.made_up.checks.check_cases_network import CASES as NETWORK
from support.made_up.readings import Seen, codes, counted, findings, nic, placed, reading
from support.nova.nova_listener import until
from tables.check_table import DOCUMENT, expected

from pinner import codec
from pinner.cli.commands.host import check
from pinner.model.guest.guest import Guest
from pinner.model.outcome.check import CheckReport, Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading, HostSample
from pinner.service.hosts import checker
from pinner.service.hosts.checker import HostChecker, installed

CASES = {**NETWORK, **CPUS, **HOSTS}
UNKNOWN = {
    "guest-not-read": (reading(guests=[replace(placed(), unread="it hangs")]), reading(guests=[placed()])),
    "host-not-read": (reading(HostSample(unread={"interrupts": "no such file"})), reading()),
    "irq-count-reset": (
        replace(CASES["irq-on-guest-cpus"][0], samples=CASES["irq-on-guest-cpus"][0].samples[::-1]),
        CASES["irq-on-guest-cpus"][0],
    ),
    "nic-not-read": (
        reading(Seen(nics=(nic(ring=None, refused="Operation not permitted"),))),
        reading(Seen(nics=(nic(ring=None),))),
    ),
    "nic-vanished": (
        reading(Seen(nics=(nic("tap1", ""),)), HostSample()),
        reading(Seen(nics=(nic("tap1", ""),)), Seen(nics=(nic("tap1", ""),))),
    ),
}
"""Hosts with and without the reason of each check that only says what is not known."""


def test_every_check_has_a_host_with_its_fault_and_one_without():
    assert {**CASES, **UNKNOWN}.keys() == {check.code for check in installed()}
    assert UNKNOWN.keys() == {check.code for check in installed() if check.severity == "unknown"}


@pytest.mark.parametrize("code", UNKNOWN)
def test_says_what_is_not_known_and_only_that(code):
    unknown, known = UNKNOWN[code]
    (found,) = [each for each in findings(unknown) if each.code == code]
    assert (found.severity, found.is_fixable) == ("unknown", False)
    assert found.message.startswith("not known, because ")
    assert found.evidence
    assert code not in {each.code for each in findings(known)}


@pytest.mark.parametrize("code", CASES)
def test_finds_the_fault(code):
    faulty, _ = CASES[code]
    found = [each for each in findings(faulty) if each.code == code]
    assert found
    assert all(each.severity in ("warning", "critical") for each in found)
    assert all(each.evidence and each.message and each.why and each.source for each in found)


@pytest.mark.parametrize("code", CASES)
def test_finds_nothing_without_the_fault(code):
    _, healthy = CASES[code]
    assert code not in {each.code for each in findings(healthy)}


@pytest.mark.parametrize("code", CASES)
def test_needs_no_second_sample(code):
    """A captured machine has one sample: growth is not known, and nothing fails."""
    for whole in CASES[code]:
        single = HostReading(whole.snapshot, whole.samples[1:])
        assert not [each for each in findings(single) if each.subject.kind == "check"]


@pytest.mark.parametrize("code", CASES)
def test_needs_no_sample(code):
    for whole in CASES[code]:
        assert not [each for each in findings(HostReading(whole.snapshot)) if each.subject.kind == "check"]


ODD_GUESTS: Mapping[str, Callable[[Guest], Guest]] = {
    "huge pages alone": lambda guest: replace(
        guest, memory_per_node={}, memory_kib=0, numa=replace(guest.numa, huge_kib={0: GIB})
    ),
    "no memory known": lambda guest: replace(guest, memory_per_node={0: 0}, memory_kib=0),
    "no vCPU plugged": lambda guest: replace(guest, vcpus=()),
    "no thread": lambda guest: replace(guest, vcpus=tuple(replace(vcpu, thread=None) for vcpu in guest.vcpus)),
    "not read": lambda guest: replace(guest, vcpus=(), taps=(), memory_per_node={}, unread="it hangs"),
}


@pytest.mark.parametrize("odd", ODD_GUESTS)
def test_no_check_fails_for_an_odd_guest(odd):
    for whole in chain.from_iterable(CASES.values()):
        guests = tuple(ODD_GUESTS[odd](guest) for guest in whole.snapshot.guests)
        seen = replace(whole, snapshot=replace(whole.snapshot, guests=guests))
        assert not [each for each in findings(seen) if each.subject.kind == "check"]


def test_a_counter_that_went_back_is_not_known():
    before, now = counted(nic("tap1", ""), tx_dropped=90), counted(nic("tap1", ""), tx_dropped=3)
    faulty = reading(Seen(nics=(before,)), Seen(nics=(now,)), [placed()])
    (found,) = (each for each in findings(faulty) if each.code == "tap-drops")
    assert found.severity == "unknown"
    assert "went back from 90 to 3" in found.message


def test_an_interface_that_vanished_is_not_known():
    faulty = reading(Seen(nics=(nic("tap1", ""),)), HostSample(softnet=()), [placed()])
    (found,) = (each for each in findings(faulty) if each.code == "nic-vanished")
    assert (found.severity, found.subject.name) == ("unknown", "tap1")


def test_a_driver_that_refuses_is_not_known():
    faulty = reading(Seen(nics=(nic(ring=None, refused="Operation not permitted"),)))
    (found,) = (each for each in findings(faulty) if each.code == "nic-not-read")
    assert "Operation not permitted" in found.message


def test_a_count_of_an_interrupt_that_went_back_is_not_known():
    faulty, _ = CASES["irq-on-guest-cpus"]
    backwards = replace(faulty, samples=faulty.samples[::-1])
    assert "irq-count-reset" in {each.code for each in findings(backwards)}


def made(find, code="plugin"):
    return HostCheck(code, "warning", "a fault", "it hurts", "a page", find)


def test_a_check_that_raises_hides_no_other():
    def broken(_):
        raise KeyError("no such thing")

    report = HostChecker(lambda: (made(broken, "broken"), *installed())).check(CASES["tap-drops"][0])
    assert {"broken", "tap-drops"} <= {each.code for each in report.findings}
    (found,) = (each for each in report.findings if each.code == "broken")
    assert found.message == "not known, because the check failed: KeyError('no such thing')"
    assert found.severity == "unknown"


def test_a_check_that_exits_hides_no_other():
    def leaves(_):
        raise SystemExit(3)

    assert len(HostChecker(lambda: (made(leaves),)).check(reading()).findings) == 1


class Unhashable:
    """A plug-in may name an object that can be called, such as a dataclass, which has no hash."""

    __hash__ = None

    def __init__(self, act):
        self.act = act

    def __call__(self, of):
        return self.act(of)


def test_a_check_without_a_hash_is_made():
    checker = HostChecker(lambda: (made(Unhashable(lambda _: ()), "unhashable"), *installed()))
    assert "tap-drops" in {each.code for each in checker.check(CASES["tap-drops"][0]).findings}


@pytest.mark.parametrize("kind", [Unhashable, lambda act: act], ids=["without a hash", "with a hash"])
def test_a_check_that_hangs_is_not_waited_for_and_not_begun_again(kind):
    end, begun = threading.Event(), []

    def hangs(_):
        begun.append(1)
        end.wait(60)
        return ()

    check = made(kind(hangs), "hangs")
    checker = HostChecker(lambda: (check, *installed()), seconds=0.2)
    for _ in range(3):
        report = checker.check(CASES["tap-drops"][0])
        assert {"hangs", "tap-drops"} <= {each.code for each in report.findings}
    assert len(begun) == 1
    end.set()


def test_a_check_that_ends_late_gives_no_finding_of_an_earlier_reading():
    end = threading.Event()

    def slow(of):
        end.wait(60)
        yield Found(Subject("host", of.snapshot.host), "wrong", (Evidence("number", 1),))

    def seen_on(host):
        of = reading()
        return checker.check(replace(of, snapshot=replace(of.snapshot, host=host))).findings

    checker = HostChecker(lambda: (made(slow),), seconds=0.5)
    seen_on("other")
    threading.Timer(0.1, end.set).start()
    (found,) = seen_on("this")
    assert (found.severity, found.subject) == ("unknown", Subject("check", "plugin"))
    until(lambda: {each.subject for each in seen_on("this")} == {Subject("host", "this")}, 20)


def test_a_check_that_answers_nonsense_hides_no_other():
    for nonsense in (None, 7, ["text"], [None]):
        (found,) = HostChecker(lambda given=nonsense: (made(lambda _: given),)).check(reading()).findings
        assert found.severity == "unknown"


EVIDENCE = (Evidence("number", 1),)
HOST = Subject("host", "h")
UNSOUND = {
    "severity": Found(HOST, "wrong", EVIDENCE, severity="bad"),
    "subject": Found("h", "wrong", EVIDENCE),
    "kind of the subject": Found(Subject("planet", "h"), "wrong", EVIDENCE),
    "message": Found(HOST, 7, EVIDENCE),
    "surrogate": Found(HOST, "\ud800", EVIDENCE),
    "long message": Found(HOST, "x" * 10_000_000, EVIDENCE),
    "evidence": Found(HOST, "wrong", ("number",)),
    "no number": Found(HOST, "wrong", (Evidence("number", float("nan")),)),
    "infinity": Found(HOST, "wrong", (Evidence("number", float("inf")),)),
    "long number": Found(HOST, "wrong", (Evidence("number", 10**5000),)),
    "object": Found(HOST, "wrong", (Evidence("number", object()),)),
    "remedies": Found(HOST, "wrong", EVIDENCE, None),
    "remedy": Found(HOST, "wrong", EVIDENCE, ("do it",)),
    "need of a remedy": Found(HOST, "wrong", EVIDENCE, (Remedy("x", "as root", "magic"),)),
}


@pytest.mark.parametrize("unsound", UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_finding_hides_no_other_and_the_report_can_be_sent_and_shown(unsound):
    sound = Found(Subject("host", "other"), "wrong", EVIDENCE)
    report = HostChecker(lambda: (made(lambda _: (unsound, sound)),)).check(reading())
    assert [(each.severity, str(each.subject)) for each in report.findings] == [
        ("warning", "host other"),
        ("unknown", "check plugin"),
    ]
    assert codec.load(CheckReport, codec.dump(report)) == report
    assert sum(map(len, check.lines(report, 80))) < 2000


class NoWords(Exception):
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [NoWords(), ValueError("x" * 10_000_000)], ids=["none", "many"])
def test_an_error_of_a_check_may_have_any_words(error):
    def broken(_):
        raise error

    (found,) = HostChecker(lambda: (made(broken),)).check(reading()).findings
    assert type(error).__name__ in found.message
    assert len(found.message) < 600


def test_findings_without_end_are_stopped():
    def endless(_):
        while True:
            yield Found(HOST, "wrong", EVIDENCE)

    found = HostChecker(lambda: (made(endless),)).check(reading()).findings
    assert len(found) == 201
    assert "10000 or more further findings are left out" in found[-1].message


def leave(*_):
    raise SystemExit(3)


PLUGINS = {
    "no tuple": 7,
    "no check": ["text"],
    "a class": [HostCheck],
    "a check of nonsense": [HostCheck(None, "warning", "", "", "", leave)],
    "a severity of nonsense": [replace(made(leave), severity="bad")],
    "a function that is none": [replace(made(leave), find=7)],
    "an exit": leave,
}


@pytest.mark.parametrize("given", PLUGINS.values(), ids=PLUGINS)
def test_a_plug_in_that_gives_no_checks_is_a_finding_and_hides_no_other(given, monkeypatch):
    class Point(NamedTuple):
        name: str = "broken"
        value: str = "broken:CHECKS"

        def load(self):
            return given() if given is leave else given

    sound, others = entry_points(group="pinner.checks"), installed()
    monkeypatch.setattr(checker, "entry_points", lambda group: (*sound, Point()))
    found = checker.installed.__wrapped__()
    assert {each.code for each in found} == {"plugin-broken", *(each.code for each in others)}
    refusing = tuple(each for each in found if each.code == "plugin-broken")
    (finding,) = HostChecker(lambda: refusing).check(reading()).findings
    assert (finding.severity, finding.subject) == ("unknown", Subject("check", "broken"))
    assert "the plug-in broken (broken:CHECKS) does not load" in finding.message


def test_a_finding_without_evidence_is_not_passed_on():
    def claims(_):
        yield Found(Subject("host", "h"), "it is slow", ())

    (found,) = HostChecker(lambda: (made(claims),)).check(reading()).findings
    assert found.severity == "unknown"
    assert "no evidence" in found.message


def test_thousands_of_findings_of_one_check_are_counted():
    def many(_):
        for number in range(5000):
            yield Found(Subject("irq", str(number)), "wrong", (Evidence("number", number),))

    found = HostChecker(lambda: (made(many),)).check(reading()).findings
    assert len(found) == 201
    assert "4800 further findings" in found[-1].message


def test_the_worst_finding_comes_first():
    report = HostChecker().check(CASES["softnet-drops"][0])
    assert report.state == report.findings[0].severity == "critical"


def test_the_document_has_the_table_of_all_checks():
    """`make checks` writes it."""
    document = DOCUMENT.read_text("utf-8")
    assert document == expected(document)


def test_a_host_without_faults_is_ok():
    assert codes(reading(guests=[placed()])) == set()
    assert HostChecker().check(reading(guests=[placed()])).state == "ok"
