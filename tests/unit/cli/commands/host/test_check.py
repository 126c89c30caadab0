"""`pinner check`: what people, programs and monitoring see of the findings."""

from dataclasses import replace

import pytest
from support.hosts import snapshot
from support.machines import EACH, root_of
from support.made_up.checks.check_cases_network import CASES
from support.made_up.readings import host, placed
from support.values import EVIL

from pinner import codec
from pinner.cli.commands.host.check import lines, monitor_line
from pinner.model.errors import HostUnreachable
from pinner.model.outcome.check import CheckReport
from pinner.service.hosts.checker import HostChecker


def report_of(code: str, place: int) -> CheckReport:
    return HostChecker().check(CASES[code][place])


def test_the_json_is_the_report(pinner, cli):
    result = cli("check", "--json", "--sample-seconds", "2")
    assert codec.load(CheckReport, result.out) == pinner.findings("h1", 2.0)


def test_a_finding_shows_its_evidence_its_reason_and_its_remedy():
    text = "\n".join(lines(report_of("nic-small-ring", 0), 200))
    assert "CRITICAL nic-small-ring: ens1 drops packets, and its receive ring holds 512 of at most 4096" in text
    assert "evidence: rx ring 512 packets, rx ring maximum 4096 packets, rx_missed_errors 9 packets" in text
    assert "Documentation/networking/statistics.rst" in text
    assert "  as root: ethtool -G ens1 rx 4096" in text


def test_a_finding_says_how_a_plan_cures_it():
    cured = "\n".join(lines(report_of("softnet-drops", 0), 200))
    assert (
        "  with pinner: pinner plan --fix softnet-drops\n  as root: sysctl -w net.core.netdev_max_backlog=4000" in cured
    )
    assert "--fix" not in "\n".join(lines(report_of("nic-no-room", 0), 200))


@pytest.mark.parametrize(
    ("code", "place", "status", "state"),
    [("nic-small-ring", 0, 2, "CRITICAL"), ("nic-offloads-off", 0, 1, "WARNING"), ("nic-offloads-off", 1, 0, "OK")],
)
def test_the_status_for_monitoring(pinner, cli, monkeypatch, code, place, status, state):
    monkeypatch.setattr(pinner, "findings", lambda *_: report_of(code, place))
    result = cli("check", "--monitor")
    assert result.status == status
    (line,) = result.out.splitlines()
    assert line.startswith(f"PINNER {state} - compute1: ")
    text, _, data = line.partition(" | ")
    assert "|" not in text
    counts = dict(word.split("=") for word in data.split())
    assert counts.keys() == {"critical", "warning", "unknown", "checks"}
    assert int(counts[state.lower()] if state != "OK" else counts["checks"]) >= 1
    assert cli("check").status == 0


def test_names_of_guests_break_no_line(pinner, cli):
    result = cli("check", "--monitor")
    assert (result.status, len(result.out.splitlines())) == (2, 1)
    assert EVIL not in result.out
    assert EVIL not in cli("check").out


def test_a_bar_in_a_name_does_not_end_the_text():
    found = report_of("nic-small-ring", 0)
    odd = replace(found.findings[0], subject=replace(found.findings[0].subject, name="a|b"))
    assert monitor_line(replace(found, findings=(odd,))).count("|") == 1


def test_a_host_that_cannot_be_checked_is_unknown_to_monitoring(pinner, cli, monkeypatch):
    def refuse(*_):
        raise HostUnreachable("h1", "its agent does not answer")

    monkeypatch.setattr(pinner, "findings", refuse)
    result = cli("check", "--monitor")
    assert result.status == 3
    assert result.out.startswith("PINNER UNKNOWN - ")
    assert cli("check").status == 1


def test_a_saved_snapshot_can_be_checked(cli, tmp_path):
    file = tmp_path / "host.json"
    file.write_bytes(codec.dump(snapshot(host(), [placed(vhost_threads=0)])))
    report = codec.load(CheckReport, cli("check", "--snapshot", file, "--json").out)
    assert "tap-without-vhost" in {each.code for each in report.findings}
    assert report.sample_seconds == 0


@EACH
def test_every_captured_machine_can_be_checked(cli, name):
    """No traceback, no finding without evidence, and no check that failed."""
    result = cli("check", "--root", root_of(name), "--json")
    assert (result.status, result.err) == (0, "")
    report = codec.load(CheckReport, result.out)
    assert all(each.evidence for each in report.findings)
    assert not [each for each in report.findings if each.subject.kind == "check"]
    assert report.checks > 20


def test_the_name_of_a_host_has_nothing_that_a_terminal_obeys():
    """A saved snapshot or the folder of a captured machine may come from another person."""
    shown = replace(report_of("tap-drops", 0), host="h\x1b[2J")
    assert all(line.isprintable() for line in (*lines(shown, 80), monitor_line(shown)))
