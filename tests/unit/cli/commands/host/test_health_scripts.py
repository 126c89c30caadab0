"""The samples that hand the line of ``pinner check --monitor`` to Slurm, Nagios and Nova, run with stand-ins for the
programs that they call."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.made_up.checks.check_cases_network import CASES
from support.values import EVIL

from pinner.cli.commands.host.check import monitor_line
from pinner.model.outcome.check import Subject
from pinner.service.hosts.checker import HostChecker

HEALTH = Path(__file__).parents[5] / "etc/pinner/health"
NODE, HOST = "node-7", "compute1.example"
HOSTILE = f"$(touch made) `touch made` ; touch made & '\" | {EVIL} State=RESUME --enable é" + 300 * "x"
"""A guest's name."""
DRAIN = ["update", f"NodeName={NODE}", "State=DRAIN"]
DISABLE = ["compute", "service", "set", "--disable", "--disable-reason"]


def line_of(code: str, name: str | None = None) -> str:
    report = HostChecker().check(CASES[code][0])
    if name is not None:
        subject = Subject("guest", name)
        report = replace(report, findings=tuple(replace(each, subject=subject) for each in report.findings))
    return monitor_line(report)


CRITICAL, WARNING = line_of("nic-small-ring"), line_of("nic-offloads-off")


class Machine:
    """A folder with stand-ins on the PATH: each answers, and writes down its arguments."""

    def __init__(self, folder: Path):
        self.folder = folder
        for command in ("timeout", "cut", "tr", "cat"):
            (folder / command).symlink_to(f"/usr/bin/{command}")

    def stand_in(self, name: str, answer: str, status: int = 0) -> None:
        (self.folder / f"{name}.answer").write_text(f"{answer}\n")
        script = self.folder / name
        script.write_text(
            f'#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done >>{name}.calls\nprintf "\\n\\0" >>{name}.calls\n'
            f"cat {name}.answer\nexit {status}\n"
        )
        script.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        file = self.folder / f"{name}.calls"
        text = file.read_text() if file.exists() else ""
        return [call.split("\0")[:-1] for call in text.split("\n\0")[:-1]]

    def run(self, script: str, *words: str) -> tuple[int, str]:
        env = {"PATH": str(self.folder), "SLURMD_NODENAME": NODE, "NOVA_HOST": HOST}
        command = ["/bin/sh", HEALTH / script, *words]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert not (self.folder / "made").exists()
        return done.returncode, done.stdout


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    made.stand_in("scontrol", f"NodeName={NODE} Arch=x86_64 State=IDLE ThreadsPerCore=2 Comment=x State=DRAIN")
    made.stand_in("openstack", "enabled")
    return made


SCHEDULERS = {
    "slurm-health-check": ("scontrol", DRAIN, "Reason="),
    "nova-compute-disable": ("openstack", DISABLE, ""),
}
each_scheduler = pytest.mark.parametrize("script", SCHEDULERS)


def changes(machine, script):
    """The calls after that which asks for the state."""
    return machine.calls(SCHEDULERS[script][0])[1:]


@each_scheduler
def test_a_critical_host_gets_no_more_work_and_the_reason_is_said(machine, script):
    machine.stand_in("pinner", CRITICAL, 2)
    assert machine.run(script)[0] == 0
    assert machine.calls("pinner") == [["check", "--monitor"]]
    _, begin, prefix = SCHEDULERS[script]
    ((*words, reason), *rest) = [call[: len(begin) + 1] for call in changes(machine, script)]
    assert (words, rest) == (begin, [])
    assert reason == f"{prefix}pinner: compute1: nic-small-ring (nic ens1)"
    if script == "nova-compute-disable":
        assert machine.calls("openstack") == [
            ["compute", "service", "list", "--service", "nova-compute", "--host", HOST, "-f", "value", "-c", "Status"],
            [*DISABLE, reason, HOST, "nova-compute"],
        ]


@each_scheduler
def test_a_name_is_never_run_or_an_option(machine, script):
    machine.stand_in("pinner", line_of("nic-small-ring", HOSTILE), 2)
    assert machine.run(script)[0] == 0
    _, begin, prefix = SCHEDULERS[script]
    (call,) = changes(machine, script)
    reason = call[len(begin)]
    assert reason.startswith(f"{prefix}pinner: compute1: nic-small-ring (guest $(touch made) `touch made` ; touch made")
    assert reason.isascii()
    assert reason.isprintable()
    assert len(reason.removeprefix(prefix)) <= 255
    assert call == [*begin, reason, *([HOST, "nova-compute"] if script == "nova-compute-disable" else [])]


@each_scheduler
@pytest.mark.parametrize(
    ("line", "status", "ended"),
    [
        (WARNING, 1, 0),
        ("PINNER OK - compute1: 87 checks found nothing | critical=0", 0, 0),
        ("PINNER UNKNOWN - its agent does not answer", 3, 0),
        ("", 1, 1),
        ("", 2, 1),
        ("usage: pinner check [--monitor]", 2, 1),
        ("PINNER CRITICAL - compute1: cut off", 124, 1),
        ("", 127, 1),
    ],
)
def test_another_answer_changes_nothing(machine, script, line, status, ended):
    """Bad input has the status 2, too."""
    machine.stand_in("pinner", line, status)
    assert machine.run(script)[0] == ended
    assert machine.calls(SCHEDULERS[script][0]) == []


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN*", "MIXED+DRAIN", "FAIL"])
def test_a_node_that_is_drained_or_down_keeps_its_reason(machine, state):
    machine.stand_in("pinner", CRITICAL, 2)
    machine.stand_in("scontrol", f"NodeName={NODE} State={state} Reason=disk [root@2026-01-01]")
    assert machine.run("slurm-health-check")[0] == 0
    assert changes(machine, "slurm-health-check") == []


@pytest.mark.parametrize(("status", "ended"), [("disabled", 0), ("", 1), ("enabled\nenabled", 1)])
def test_a_service_that_is_disabled_or_unknown_stays_so(machine, status, ended):
    machine.stand_in("pinner", CRITICAL, 2)
    machine.stand_in("openstack", status)
    assert machine.run("nova-compute-disable")[0] == ended
    assert changes(machine, "nova-compute-disable") == []


@pytest.mark.parametrize("answer", [f"Node {NODE} not found", f"NodeName={NODE} Arch=x86_64"])
def test_a_node_whose_state_is_not_told_is_not_drained(machine, answer):
    machine.stand_in("pinner", CRITICAL, 2)
    machine.stand_in("scontrol", answer)
    assert machine.run("slurm-health-check")[0] == 1
    assert changes(machine, "slurm-health-check") == []


@each_scheduler
def test_a_short_path_still_has_the_usual_folders(machine, script):
    """Such as cron's."""
    found = f"PATH=/bin; {(HEALTH / script).read_text().partition('export ')[2].partition(chr(10))[0]}; echo $PATH"
    path = subprocess.run(["/bin/sh", "-c", found], capture_output=True, text=True, check=True).stdout
    assert {"/bin", "/opt/pinner/bin", "/usr/local/bin"} <= set(path.strip().split(":"))


@each_scheduler
def test_a_scheduler_that_does_not_answer_is_an_error(machine, script):
    machine.stand_in("pinner", CRITICAL, 2)
    machine.stand_in(SCHEDULERS[script][0], "", 1)
    assert machine.run(script)[0] == 1
    assert changes(machine, script) == []


@pytest.mark.parametrize(("line", "status"), [(CRITICAL, 2), (WARNING, 1), (line_of("nic-small-ring", HOSTILE), 2)])
def test_the_plug_in_has_pinners_line_and_status(machine, line, status):
    machine.stand_in("pinner", line, status)
    assert machine.run("check_pinner", "--sample-seconds", "5") == (status, f"{line}\n")
    assert machine.calls("pinner") == [["check", "--monitor", "--sample-seconds", "5"]]


@pytest.mark.parametrize(("line", "status"), [("", 1), ("", 2), ("PINNER CRITICAL - x", 0), ("PINNER OK - x", 124)])
def test_the_plug_in_is_unknown_where_pinner_did_not_check(machine, line, status):
    machine.stand_in("pinner", line, status)
    assert machine.run("check_pinner") == (3, f"PINNER UNKNOWN - pinner check ended with status {status}\n")


def test_each_sample_can_be_run():
    assert {file.name for file in HEALTH.iterdir()} == {"check_pinner", *SCHEDULERS}
    assert all(file.stat().st_mode & 0o111 == 0o111 for file in HEALTH.iterdir())
