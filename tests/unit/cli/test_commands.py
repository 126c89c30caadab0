"""Every command prints tables for people, one JSON document for programs, and no control characters."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from support.roots import two_nodes
from support.values import NOON, make_run

from pinner import codec
from pinner.model.errors import Busy, HostUnreachable, NotPermitted
from pinner.model.outcome.measures import GUEST_SERIES, HOST_SERIES, History, Measures
from pinner.model.page import Page
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import AuditRecord
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot

PLAN = "<a plan's id>"

COMMANDS = {
    "host list": "HOST",
    "host show": "command line  quiet",
    "host show h1": "NODE  CPUS",
    "inventory": "2 processes, 1 above 2 % of one CPU over 1 s",
    "topology": "* housekeeping + emulator + vCPU    4  0-3",
    f"topology --plan {PLAN}": "V vCPU            2  2-3",
    "topology --strategy isolated": "as planned by isolated",
    "process list": "idle.service",
    "process list --busy": "60.0",
    "guest list": "64 MiB",
    "nova check": "nothing is misconfigured",
    "strategy list": "the strategy numa-local",
    "plan": "housekeeping  0 (asked for: auto)",
    "plan create": "process 90    0-3     ->  0      it is busy",
    "plan list": "shared-pool",
    f"plan show {PLAN}": "OBJECTIVE (0 is best)",
    "compare": "overcommit",
    f"apply {PLAN} --yes": "state       applied",
    "apply --strategy numa-local --yes": "numa-local",
    "run list": "run-1",
    "run show run-1": "process busy (110)",
    "outcome run-1": "observed, not tested",
    f"probe {PLAN} --windows 6 --yes": "better",
    "tournament --strategy shared-pool,numa-local --yes": "shared-pool wins",
    "rollback run-1 --yes": "rollback of run run-1",
    "rollback --all --delete-policy --yes": "rollback of all runs",
    "policy set --mode propose --yes": "mode                propose",
    "policy show": "mode                enforce",
    "policy delete --yes": "the policy of host h1 is deleted",
    "run list --state applied": "run-1",
    "check": "CRITICAL vcpu-run-delay",
    "top --sort name": "80.0",
    "blame 6a5b7a0e-0000-4000-8000-000000000001 --seconds 0.1": "80 %",
    "host interrupts": "housekeeping",
    "host capacity": "shared-pool  all",
    "capacity --vcpus 1 --memory 16M": "shared-pool",
    "what-if --add 1:1M --sample-seconds 0": "guests placed",
    "plan --explain 6a5b7a0e-0000-4000-8000-000000000001": "as now",
    "drift": "policy enforce, as plan plan-1 placed it: 1 target drifted",
    "plan --policy --rebalance": "shared-pool",
    "guest pin-off 6a5b7a0e-0000-4000-8000-000000000001 --yes": "excluded, pinner does not change its CPUs",
    "guest pin-on 6a5b7a0e-0000-4000-8000-000000000001 --yes": "included, pinner places it",
    "audit list": "plan.create",
    "audit verify": "intact: ",
}


def words(command, pinner):
    return command.replace(PLAN, next(iter(pinner.stored))).split()


def control_characters(text):
    return {char for char in text if not char.isprintable() and char != "\n"}


@pytest.mark.parametrize("command", COMMANDS)
def test_prints_tables_without_control_characters(applied, cli, command):
    result = cli(*words(command, applied))
    assert result.status == 0
    assert COMMANDS[command] in result.out
    assert not control_characters(result.out + result.err)


@pytest.mark.parametrize("command", COMMANDS)
def test_prints_one_json_document(applied, cli, command):
    result = cli(*words(command, applied), "--json")
    assert result.status == 0
    json.loads(result.out)
    assert not control_characters(result.out + result.err)


# The head of the audit trail stays on one line, so that it can be copied.
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"audit verify"}))
def test_fits_the_width_of_the_terminal(applied, cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*words(command, applied))
    assert max(len(line) for line in result.out.splitlines()) <= 80
    assert "\u2026" not in result.out or "COMMAND" in result.out  # only a command line may be shortened


def test_a_chart_is_written_to_the_file(pinner, cli, tmp_path):
    result = cli("chart", "delay_vcpu", "--output", tmp_path / "delay.svg")
    assert result.out == f"{tmp_path}/delay.svg: 1 line of delay_vcpu\n"
    assert (tmp_path / "delay.svg").read_text().startswith("<?xml")
    assert json.loads(cli("chart", "drops", "-o", tmp_path / "drops.png", "--json").out)["lines"]
    refused = cli("chart", "drops", "--output", tmp_path / "drops.gif")
    assert (refused.status, "ends with .svg or .png" in refused.err) == (2, True)


def test_the_guests_of_an_outcome_are_drawn_with_a_mark_for_the_run(applied, cli, tmp_path):
    plain = cli("outcome", "run-1").out
    assert cli("outcome", "run-1", "--output", tmp_path / "run.svg").out == plain
    drawn = (tmp_path / "run.svg").read_text()
    assert drawn.startswith("<?xml")
    cli("outcome", "run-1", "--series", "pressure", "-o", tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    refused = cli("outcome", "run-1", "-o", tmp_path / "run.gif")
    assert (refused.status, "ends with .svg or .png" in refused.err) == (2, True)


def test_the_threads_that_delay_a_guest_are_drawn(applied, cli, tmp_path):
    guest, file = "6a5b7a0e-0000-4000-8000-000000000001", tmp_path / "blame.svg"
    plain = cli("blame", guest, "--seconds", "0.1").out
    assert cli("blame", guest, "--seconds", "0.1", "--output", file).out == plain
    texts = [each.text for each in ElementTree.fromstring(file.read_bytes()).iter("{http://www.w3.org/2000/svg}text")]
    assert "\xa0\xa0████████████████" in [text.rstrip("\xa0") for text in texts]
    assert all(text.replace("\xa0", " ").isprintable() for text in texts if text != "\n")


@pytest.mark.parametrize(
    "command", ["chart drops", "outcome run-1", "blame 6a5b7a0e-0000-4000-8000-000000000001 --seconds 0.1"]
)
def test_a_picture_that_cannot_be_written_is_refused_after_the_output(applied, cli, tmp_path, command):
    """It was reported as a defect of pinner, and a trace was lost."""
    plain = "" if command.startswith("chart") else cli(*command.split()).out
    result = cli(*command.split(), "--output", tmp_path / "none" / "drawn.svg")
    assert (result.status, result.out) == (2, plain)
    assert result.err.startswith(f"pinner: error: --output: '{tmp_path}/none/drawn.svg' is not valid: a file that can")


def test_a_picture_in_another_format_is_refused_before_the_trace(applied, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(applied, "blame", lambda *_: pytest.fail("traced"))
    refused = cli("blame", "web1", "--output", tmp_path / "blame.png")
    assert (refused.status, refused.err.count("\n"), "a name that ends with .svg" in refused.err) == (2, 1, True)


def test_json_is_the_model(applied, cli):
    assert codec.load(Snapshot, cli("inventory", "--json").out).host == "h1"
    plan = codec.load(Plan, cli("plan", "--json").out)
    assert plan == applied.stored[plan.id]
    shown = json.loads(cli("run", "show", "run-1", "--json").out)
    assert codec.load(Run, json.dumps(shown["run"])) == applied.run("run-1")
    assert [entry["seq"] for entry in shown["entries"]] == [1, 2, 3]


@pytest.mark.parametrize("form", ["shell", "text"])
def test_plan_formats(pinner, cli, form):
    result = cli("plan", "--format", form)
    assert result.status == 0
    assert "busy" in result.out
    assert not control_characters(result.out)


def test_shared_options_are_accepted_before_and_after_the_command(pinner, cli, tmp_path):
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    before = cli("--json", "--config-file", first, "--url", "http://one:1", "host", "list")
    after = cli("host", "list", "--url", "http://one:1", "--config-file", second, "--json")
    both = cli("--config-file", first, "host", "list", "--config-file", second)
    assert before.out == after.out == '{\n  "items": [\n    "h1"\n  ],\n  "next": ""\n}\n'
    assert both.out == "HOST\nh1\n"
    assert pinner.opened == [
        ([first], "http://one:1", "", None),
        ([second], "http://one:1", "", None),
        ([first, second], "", "", None),
    ]


def test_the_environment_names_the_server(pinner, cli, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("from-a-file\n")
    monkeypatch.setenv("PINNER_URL", "http://two:2")
    monkeypatch.setenv("PINNER_TOKEN", "from-the-environment")
    cli("host", "list")
    cli("host", "list", "--token-file", token)
    cli("host", "list", "--url", "")
    assert pinner.opened == [
        (None, "http://two:2", "from-the-environment", None),
        (None, "http://two:2", "from-a-file", None),
        (None, "", "from-the-environment", None),
    ]


def test_pin_off_of_an_unknown_guest(pinner, cli):
    result = cli("guest", "pin-off", "nonesuch", "--yes")
    assert (result.status, pinner.excluded) == (2, {})


def test_a_list_continues_at_a_marker(pinner, cli):
    for _ in range(3):
        cli("plan")
    first = cli("plan", "list", "--limit", "2")
    marker = first.err.strip().removeprefix("next page: --marker ")
    assert len(first.out.splitlines()) == 3
    rest = cli("plan", "list", "--limit", "2", "--marker", marker)
    assert len(rest.out.splitlines()) == 2
    assert rest.err == ""


def test_compare_uses_one_snapshot(pinner, cli):
    outcomes = json.loads(cli("compare", "--json").out)["items"]
    assert [outcome["strategy"] for outcome in outcomes] == ["shared-pool", "numa-local", "isolated"]
    assert len({outcome["plan"]["basis"]["snapshot"] for outcome in outcomes}) == 1
    assert [record.action for record in pinner.records].count("snapshot.take") == 1


def test_compare_names_the_strategy_that_was_refused(pinner, cli):
    result = cli("compare", "--strategy", "shared-pool", "--strategy", "nonesuch")
    assert result.status == 0
    assert "refused" in result.out
    assert "there is no 'nonesuch'" in result.out
    assert cli("compare", "--strategy", "nonesuch").status == 2


def test_a_long_result_leaves_room_for_the_other_columns(pinner, cli, monkeypatch):
    long = "; ".join(f"guest web{n} vcpu 0: arrived" for n in range(9))
    at = datetime(2026, 11, 22, tzinfo=UTC)
    record = AuditRecord(1, at, "policy", "agent", "drift.found", "h1", "h1", "", "", long, "", "", "0")
    monkeypatch.setattr(pinner, "audit", lambda *_: Page((record,), ""))
    out = cli("audit", "list").out
    assert "drift.found" in out
    assert "guest web8 vcpu 0:" in out


def test_the_audit_trail_is_read_in_a_terminal_of_80_columns(pinner, cli, monkeypatch):
    """A column with room for two letters breaks names into syllables."""
    at = datetime(2026, 11, 22, tzinfo=UTC)
    subject, change = "run-35bb7621276b: guest web1 iothread 1", "0-1 -> 1 (1 thread)"
    record = AuditRecord(
        123456,
        at,
        "alice",
        "process 31849",
        "run.change",
        "compute1",
        subject,
        *change.split(" -> "),
        "undone",
        "",
        "",
        "0",
    )
    monkeypatch.setattr(pinner, "audit", lambda *_: Page((record,), ""))
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("audit", "list").out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [" ".join(line.split()) for line in lines] == [
        "# WHEN WHAT",
        f"123456 {at.astimezone():%Y-%m-%d %H:%M:%S} run.change on compute1 by alice, process 31849",
        subject,
        change,
        "undone",
    ]


def test_a_terminal_without_a_size_gets_tables(pinner, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "64 MiB" in cli("guest", "list").out


def test_a_closed_stdout_is_no_error(tmp_path):
    file = tmp_path / "pinner.conf"
    file.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n")
    code = "import sys; from pinner.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", code, "strategy", "list", "--config-file", file]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_a_pipe_ends_with_a_blank(applied, cli, command):
    result = cli(*words(command, applied))
    assert not [line for line in (result.out + result.err).splitlines() if line != line.rstrip()]


def test_plan_with_a_detailed_exit_status(pinner, cli, monkeypatch):
    assert cli("plan").status == 0
    assert cli("plan", "--detailed-exitcode").status == 3
    assert cli("plan", "--detailed-exitcode", "--json").status == 3
    plan = pinner.plan
    for changes, status in (({"changes": ()}, 0), ({"changes": (), "blocked": "a reboot is needed"}, 3)):
        monkeypatch.setattr(pinner, "plan", lambda *given, with_=changes: replace(plan(*given), **with_))
        assert cli("plan", "--detailed-exitcode").status == status
    assert cli("plan", "--detailed-exitcode", "--strategy", "nonesuch").status == 2


def test_drift_with_a_detailed_exit_status(applied, cli):
    assert cli("drift").status == 0
    assert cli("drift", "--detailed-exitcode").status == 3
    assert cli("drift", "--detailed-exitcode", "--json").status == 3
    applied.policies.clear()
    applied.run_list.clear()
    assert cli("drift", "--detailed-exitcode").status == 0


def test_a_captured_host_is_shown(cli, tmp_path):
    root = two_nodes(tmp_path / "captured")
    shown = cli("host", "show", "--root", root)
    assert (shown.status, shown.err) == (0, "")
    assert "captured" in shown.out
    assert "0:21 2:10" in shown.out
    assert cli("host", "show", "other", "--root", root).status == 2


@pytest.mark.parametrize(
    "error", [HostUnreachable("h1", "libvirt"), NotPermitted("libvirt", "x"), Busy("x", "y", overdue=True)]
)
@pytest.mark.parametrize("command", ["inventory", "host show", "topology"])
def test_without_libvirt_the_hardware_is_shown(pinner, cli, monkeypatch, command, error):
    topology = pinner.observe("h1", 0).topology

    def refuse(*_):
        raise error

    monkeypatch.setattr(pinner, "observe", refuse)
    monkeypatch.setattr(pinner, "topology", lambda _: topology, raising=False)
    result = cli(*command.split())
    assert result.status == 0
    assert result.err == f"warning: {error}; guests and processes are not shown\n"
    assert "0-3" in result.out
    document = json.loads(cli(*command.split(), "--json").out)
    assert document["topology"] == codec.plain(topology)
    assert "guests" not in document
    assert document.get("now") is None
    monkeypatch.setattr(pinner, "topology", refuse)
    assert cli(*command.split()).status == 1


def test_a_snapshot_without_guests_is_not_saved(pinner, cli, monkeypatch, tmp_path):
    def refuse(*_):
        raise HostUnreachable("h1", "libvirt does not answer")

    monkeypatch.setattr(pinner, "observe", refuse)
    assert cli("inventory", "--save", tmp_path / "host.json").status == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", [80, 100, 130])
@pytest.mark.parametrize("has_pings", [True, False])
def test_top_shows_the_names_of_guests_at_any_width(pinner, cli, monkeypatch, width, has_pings):
    """At 80 columns the numbers once took the whole line."""
    values = {series.name: (1000.0,) for series in GUEST_SERIES if has_pings or "ping" not in series.name}
    histories = tuple(History(name, name, NOON, 5, values) for name in ("db", "instance-0000a1b2"))
    monkeypatch.setattr(pinner, "measures", lambda *_: Measures("h1", 5, GUEST_SERIES, HOST_SERIES, histories))
    monkeypatch.setenv("COLUMNS", str(width))
    head, *lines = cli("top").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["db", "instance-0000a1b2"]
    assert max(map(len, (head, *lines))) <= width
    assert "LAST HOUR" in head
    assert "IN/S" in head
    assert ("PING" in head) == has_pings


def test_top_asks_for_an_hour_of_one_series_and_a_minute_of_all(pinner, cli, monkeypatch):
    """All values of an hour are too many on a host with hundreds of guests."""
    asked = []
    whole = pinner.measures

    def measures(host, span, guest=None, series=()):
        asked.append((span.begin, series))
        return whole(host, span, guest, series)

    monkeypatch.setattr(pinner, "measures", measures)
    assert "80.0" in cli("top").out
    assert asked == [(None, ("delay_vcpu", "use_host")), (NOON + timedelta(seconds=15 - 60), ())]


@pytest.mark.parametrize("width", [80, 119, 120, 200])
def test_runs_are_listed_with_whole_ids_at_any_width(pinner, cli, monkeypatch, width):
    """At 80 columns the ids of plans took several lines."""
    apply = make_run("run-0123456789ab", plan="plan-0123456789abcdef", host="compute-17", state="rolled_back_partly")
    undo = replace(apply, id="run-ba9876543210", kind="rollback", plan="", undoes="run-0123456789ab")
    pinner.run_list |= {apply.id: apply, undo.id: undo}
    monkeypatch.setenv("COLUMNS", str(width))
    lines = cli("run", "list").out.splitlines()
    assert max(map(len, lines)) <= width
    for whole in ("run-0123456789ab", "run-ba9876543210", "plan plan-0123456789abcdef", "run run-0123456789ab"):
        assert any(whole in line for line in lines), whole


@pytest.mark.parametrize(("width", "has_line"), [(80, False), (100, True)])
def test_guests_have_their_last_hour_where_a_terminal_has_room_for_it(pinner, cli, monkeypatch, width, has_line):
    """At 80 columns it left six columns for the names."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert ("LAST HOUR" in cli("guest", "list").out) == has_line
