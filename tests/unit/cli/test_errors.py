"""Bad input and failures: one line on stderr that says which values are valid, and the exit status."""

import shlex

import pytest

from pinner.model.errors import HostUnreachable, NoFit, NotPermitted
from pinner.model.run.verification import FindingKind, TrailFinding, verification

BAD = {
    "": "COMMAND",
    "nonesuch": "'nonesuch'",
    "plan list --nonesuch": "--nonesuch (see: pinner plan list --help)",
    "plan --nonesuch": "--nonesuch (see: pinner plan create --help)",
    "policy show": "host h1 has no policy",
    "policy delete --yes": "host h1 has no policy",
    "plan --snapshot /dev/null": "--snapshot: '/dev/null'",
    "plan --stra isolated": "--stra",
    "plan --strategy nonesuch": "strategy: there is no 'nonesuch'; known: shared-pool",
    "plan --guest nonesuch": "guest: there is no 'nonesuch'",
    "plan --housekeeping 0-": "housekeeping: '0-'",
    "plan --housekeeping 99": "housekeeping: '99'",
    "plan --emulator 3-1": "the range 3-1 runs backwards",
    "plan --busy-threshold many": "--busy-threshold: 'many' is not a number of per cent",
    "plan --busy-threshold -1": "--busy-threshold: '-1' is not a number of per cent",
    "plan --busy-threshold nan": "--busy-threshold: 'nan'",
    "plan --busy-threshold 1e20": "--busy-threshold: '1e20' is not a number of per cent of one CPU from 0 to 819200",
    "plan --sample-seconds inf": "--sample-seconds: 'inf'",
    "plan --sample-seconds \u0663": "--sample-seconds: '\u0663'",
    "plan --sample-seconds 1_0": "--sample-seconds: '1_0'",
    "plan --housekeeping \u0660": "'\u0660' is neither a number nor a range",
    "plan list --limit \u0663": "--limit: '\u0663'",
    "run list --state nonesuch": "--state",
    "plan --sample-seconds 301": "a number of seconds from 0 to 300",
    "plan --smt sometimes": "--smt",
    "plan --format xml": "--format",
    "plan --snapshot a --root b": "not allowed with",
    "plan --snapshot /nonexistent/file": "--snapshot: '/nonexistent/file'",
    "plan --host other": "host: there is no 'other'; known: h1",
    "plan --root ''": "--root: '' is not a path",
    "capture ''": "DIR: '' is not a path",
    "plan --root /nonexistent": "--root: '/nonexistent'",
    "host show --root /etc": "--root: '/etc' is not valid: a directory that contains proc/ and sys/",
    "host show --root /etc/passwd": "--root: '/etc/passwd'",
    "--url http://x:1 inventory --root /": "no --root together with a server",
    "--url http://x:1 serve": "--url: 'http://x:1'",
    "chart drops --last 999999w --output x.svg": "--last: '999999w' is not a time span such as 30m",
    "serve --port 65536": "--port: '65536' is not a port",
    "serve --port -1": "--port: '-1' is not a port",
    "--token-file /nonexistent host list": "--token-file: '/nonexistent'",
    "--token-file /dev/null host list": "--token-file: '/dev/null'",
    "plan show nonesuch": "plan: there is no 'nonesuch'",
    "plan show": "ID",
    "plan list --limit 0": "--limit: '0' is not a number from 1 to 500",
    "plan list --limit 501": "--limit: '501'",
    "plan list --marker nonesuch": "marker: 'nonesuch'",
    "apply nonesuch --yes": "plan: there is no 'nonesuch'",
    "apply nonesuch --strategy isolated": "PLAN_ID: 'nonesuch'",
    "topology --plan nonesuch": "plan: there is no 'nonesuch'",
    "topology --plan nonesuch --strategy isolated": "--plan: 'nonesuch'",
    "run show nonesuch": "run: there is no 'nonesuch'",
    "rollback nonesuch --yes": "run: there is no 'nonesuch'",
    "host show other": "host: there is no 'other'",
    "audit list --since yesterday": "--since: 'yesterday' is not a time such as",
    "process list --threshold -3": "--threshold: '-3'",
    "process list --threshold 3": "--threshold: '3'",
    "process list --busy --threshold 1e20": "--threshold: '1e20' is not a number of per cent of one CPU from 0 to",
    "plan --root / --sample-seconds 2": "--sample-seconds: '2'",
    "compare --snapshot /etc/hostname --sample-seconds 2": "--sample-seconds: '2'",
    "what-if --snapshot /etc/hostname --sample-seconds 2": "--sample-seconds: '2'",
    "check --snapshot /etc/hostname --sample-seconds 2": "--sample-seconds: '2'",
    "check --root / --sample-seconds 2": "--sample-seconds: '2'",
    "inventory --root / --sample-seconds 2": "--sample-seconds: '2'",
    "inventory --save /nonexistent/file": "--save: '/nonexistent/file'",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_one_line_and_status_2(pinner, cli, command):
    before = pinner.state()
    result = cli(*shlex.split(command))
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("pinner: error: ")
    assert BAD[command] in result.err
    assert len(result.err.splitlines()) == 1
    assert pinner.state() == before


def test_a_hostile_argument_is_escaped(pinner, cli):
    for argv in (["plan", "--guest", "a\nb\x1b[31m[red]"], ["\x1b[2Jplan"], ["plan", "list", "x\n\x07"]):
        result = cli(*argv)
        assert result.status == 2
        assert len(result.err.splitlines()) == 1
        assert result.err.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (HostUnreachable("h1", "libvirt does not answer, is libvirtd running?"), "is libvirtd running?"),
        (NotPermitted("sched_setaffinity", "needs root"), "needs root"),
        (ZeroDivisionError("a fault of our own"), "internal: ZeroDivisionError: a fault of our own (--debug shows"),
    ],
)
def test_a_failure_is_one_line_and_status_1(pinner, cli, monkeypatch, error, text):
    def fail():
        raise error

    monkeypatch.setattr(pinner, "hosts", fail)
    result = cli("host", "list")
    assert result.status == 1
    assert text in result.err
    assert len(result.err.splitlines()) == 1
    assert "Traceback" in cli("host", "list", "--debug").err


def test_a_broken_audit_trail_is_status_1(pinner, cli, monkeypatch):
    found = TrailFinding(FindingKind.CHANGED, "centre", "", 4, "", "its hash is wrong")
    monkeypatch.setattr(pinner, "verify_audit", lambda: verification(9, "0", (), [found]))
    for more in ([], ["--json"]):
        result = cli("audit", "verify", *more)
        assert result.status == 1
        assert "its hash is wrong" in result.out


def test_a_server_with_several_hosts_requires_host(pinner, cli, monkeypatch):
    monkeypatch.setattr(pinner, "hosts", lambda: ("h1", "h2"))
    assert "--host: '' is not valid: one of h1, h2" in cli("plan").err
    assert cli("plan", "--host", "h1").status == 0


def test_cpu_sets_without_room_for_vcpus_are_bad_input(pinner, cli, monkeypatch):
    def refuse(*_, **__):
        raise NoFit(1, 0, "no CPU is left for vCPUs of the 4 online (0-3): housekeeping 0-1, emulator 2-3")

    monkeypatch.setattr(pinner, "plan", refuse)
    result = cli("plan", "--housekeeping", "0-1", "--emulator", "2-3")
    assert result.status == 2
    assert "housekeeping 0-1, emulator 2-3" in result.err
