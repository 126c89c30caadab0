"""Snapshot files: saved completely and private, and used for plans without a host or a database."""

import json
import stat
from dataclasses import replace

import pytest
from support.hosts import interleaved, process, snapshot

from pinner import codec
from pinner.cli.frame import options
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.model.plan.plan import Plan
from pinner.model.snapshot import Snapshot


@pytest.fixture
def saved(tmp_path):
    """A file with the snapshot of a host with 32 CPUs, two nodes and one busy process."""
    file = tmp_path / "host.json"
    top = interleaved(16)
    file.write_bytes(codec.dump(snapshot(top, [], [process(50, 90.0, str(top.online), name="etcd")])))
    return file


def test_a_saved_snapshot_is_private_and_complete(pinner, cli, tmp_path):
    file = tmp_path / "host.json"
    file.write_text("old")
    result = cli("inventory", "--save", file)
    assert result.status == 0
    assert f"saved to {file}" in result.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    loaded = codec.load(Snapshot, file.read_text())
    assert loaded.host == "h1"
    assert loaded.sample_seconds == 5.0
    assert list(tmp_path.iterdir()) == [file]


def test_save_to_stdout_prints_only_the_snapshot(pinner, cli):
    assert codec.load(Snapshot, cli("inventory", "--save", "-").out).host == "h1"


def test_a_failed_save_leaves_no_temporary_file(pinner, cli, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    result = cli("inventory", "--save", tmp_path / "taken")
    assert result.status == 2
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_warnings_of_a_snapshot_go_to_stderr(pinner, cli, monkeypatch):
    observe = pinner.observe
    monkeypatch.setattr(pinner, "observe", lambda *a: replace(observe(*a), warnings=("libnuma\x1b disagrees",)))
    result = cli("inventory", "--json")
    assert result.err == "warning: libnuma\\x1b disagrees\n"
    json.loads(result.out)


@pytest.mark.parametrize("command", [["plan"], ["plan", "create"]])
def test_plan_from_a_file(without_service, cli, saved, command):
    result = cli(*command, "--snapshot", saved, "--housekeeping", "0-1", "--json")
    assert result.status == 0
    plan = codec.load(Plan, result.out)
    assert plan.host == "compute1"
    assert str(plan.roles.housekeeping) == "0-1"
    assert [change.target.name for change in plan.changes] == ["etcd"]
    assert "cannot be applied" in result.err


def test_compare_and_draw_from_a_file(without_service, cli, saved):
    outcomes = json.loads(cli("compare", "--snapshot", saved, "--json").out)["items"]
    assert {outcome["strategy"] for outcome in outcomes} == {"shared-pool", "numa-local", "isolated"}
    drawn = json.loads(cli("topology", "--snapshot", saved, "--housekeeping", "0-1", "--json").out)
    assert drawn["now"]["5"] == "housekeeping"
    assert drawn["planned"]["0"] == "housekeeping"
    assert json.loads(cli("topology", "--snapshot", saved, "--json").out)["planned"] is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "snapshot: ''"),
        ("{", "snapshot: '{'"),
        ("root:x:0:0\n", r"snapshot: 'root:x:0:0\n'"),
        ("[]", "snapshot"),
        ('{"host": 1}', "snapshot.host"),
    ],
)
def test_a_file_that_is_no_snapshot(without_service, cli, tmp_path, text, place):
    file = tmp_path / "bad.json"
    file.write_text(text)
    result = cli("plan", "--snapshot", file)
    assert result.status == 2
    assert result.err.startswith(f"pinner: error: --snapshot: '{file}' is not valid: ")
    assert f"({place}" in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("place", [(), ("topology",), ("processes", 0)])
def test_a_field_that_no_snapshot_has_is_named(without_service, cli, saved, place):
    """A mistyped field of an edited file was ignored, and the plan was made without its value."""
    document = json.loads(saved.read_text())
    part = document
    for step in place:
        part = part[step]
    part["isolatd"] = "2-3"
    saved.write_text(json.dumps(document))
    result = cli("plan", "--snapshot", saved)
    assert result.status == 2
    where = ".".join(map(str, ("snapshot", *place, "isolatd")))
    assert f"({where}: '2-3' is not valid: there is no field of this name)" in result.err


CONTRADICTIONS = {
    "no CPU is online": lambda topology: [cpu.update(online=False) for cpu in topology["cpus"]],
    "no CPU is online (none)": lambda topology: topology.update(cpus=[], nodes=[]),
    "CPU 0 is listed twice": lambda topology: topology["cpus"].append(topology["cpus"][0]),
    "node 1 is listed twice": lambda topology: topology["nodes"].append(topology["nodes"][1]),
    "CPU 0 is on node 99, which is not listed": lambda topology: topology["cpus"][0].update(node=99),
    "CPU -1 has no number from 0 to 8191": lambda topology: topology["cpus"][0].update(id=-1),
    "CPU 9000 has no number from 0 to 8191": lambda topology: topology["cpus"][0].update(id=9000),
    "CPU 0 is in level-3 domain -1, which is not listed": lambda topology: topology["cpus"][0].update(l3=-1),
    "CPU 0 is in level-3 domain 99, which is not listed": lambda topology: topology["cpus"][0].update(l3=99),
}


@pytest.mark.parametrize("why", CONTRADICTIONS)
@pytest.mark.parametrize("command", ["plan", "topology", "compare", "nova check"])
def test_a_snapshot_of_an_impossible_machine_is_refused(without_service, cli, saved, why, command):
    document = json.loads(saved.read_text())
    CONTRADICTIONS[why](document["topology"])
    saved.write_text(json.dumps(document))
    result = cli(*command.split(), "--snapshot", saved)
    assert result.status == 2
    assert result.err.startswith(f"pinner: error: --snapshot: '{saved}' is not valid: ")
    assert f"(snapshot.topology: {why.partition(' (')[0]})" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_file_without_an_end_is_refused(without_service, cli, monkeypatch):
    monkeypatch.setattr(options, "MAX_BYTES", 1000)
    result = cli("plan", "--snapshot", "/dev/zero")
    assert result.status == 2
    assert "--snapshot: '/dev/zero' is not valid: a file of at most 1000 bytes" in result.err


def test_a_plan_with_interrupts_needs_a_snapshot_that_has_them(without_service, cli, saved):
    result = cli("plan", "--snapshot", saved, "--with", "irqs")
    assert result.status == 2
    assert "this snapshot has none, so take a new one" in result.err
    taken = codec.load(Snapshot, saved.read_bytes())
    irqs = DeviceIrqs((DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", taken.topology.online),))
    saved.write_bytes(codec.dump(replace(taken, irqs=irqs)))
    plan = codec.load(Plan, cli("plan", "--snapshot", saved, "--with", "irqs", "--json").out)
    assert plan.request.remedies == ("irqs",)
    assert [change.target.part for change in plan.changes if change.target.kind == "irq"] == [24]
    drawn = cli("plan", "--snapshot", saved, "--with", "irqs").out
    assert "irq 24" in drawn
    assert "with          irqs" in drawn
    assert "ens1-rx-0 (0000:3b:00.0)" in drawn
    text = cli("plan", "--snapshot", saved, "--with", "irqs", "--format", "text").out
    assert "irq 24 ens1-rx-0 (0000:3b:00.0): 0-31 -> 0 (a setting of the kernel; off the CPUs of guests" in text


def test_a_plan_of_a_saved_snapshot_cures_findings(cli, saved):
    taken = codec.load(Snapshot, saved.read_bytes())
    saved.write_bytes(codec.dump(replace(taken, sysctls={"vm.swappiness": 60})))
    shown = cli("plan", "--snapshot", saved, "--fix", "host-swapping").out
    assert "fix           host-swapping" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("vm.swappiness")]
    assert row.split()[1:5] == ["sysctl", "60", "->", "1"]
