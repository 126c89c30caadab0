"""Settings inside a real Linux guest, through the real QEMU guest agent and each interface of pinner."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import private_libvirt
import pytest
from demo import environment as demo_environment
from support.guests.agent_guest import BOOT_SECONDS, NEEDS_AGENT, AgentGuest, AgentRuns, agent_guest, agent_runs
from support.guests.measured_host import wait_until
from support.server import warm
from support.server.policy_host import NEVER_BUSY, PolicyServer, fresh_policy_server

from pinner.host.inventory import LIVE
from pinner.host.virt import libvirt as libvirt_module
from pinner.host.virt.libvirt import Libvirt
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import INSIDE, SettingName
from pinner.model.states import GuestCpus

STRICT = f"import warnings; warnings.simplefilter('error'); {warm.PINNER}"
WITH = ("--with", "guest-rps", "--sample-seconds", "0")
ALL, NONE = {3}, {0}
"""The masks of both cards: both vCPUs, or RPS is off."""

pytestmark = [
    NEEDS_AGENT,
    pytest.mark.needs("root", "exactly_two_cpus", "taps"),
]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with demo_environment.scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def booted(module_room_for_libvirtd: None, scratch: Path) -> Iterator[AgentGuest]:
    with private_libvirt.private_libvirtd(scratch / "libvirt") as uri, agent_guest(uri, scratch) as made:
        yield made


@pytest.fixture
def libvirt(booted: AgentGuest) -> Libvirt:
    return Libvirt(booted.uri)


@pytest.fixture
def guest(booted: AgentGuest, libvirt: Libvirt) -> AgentGuest:
    """The guest, once its agent answers; its RPS is off."""
    wait_until(lambda: not booted.rps(libvirt).unread, BOOT_SECONDS)
    wait_until(lambda: booted.masks() == NONE, BOOT_SECONDS)
    return booted


@pytest.fixture
def runs(guest: AgentGuest, libvirt: Libvirt, tmp_path: Path) -> Iterator[AgentRuns]:
    with agent_runs(libvirt, tmp_path) as made:
        yield made


def set_rps(runs: AgentRuns, name: str) -> None:
    """Of both cards."""
    plan = runs.plan("guest-rps")
    assert {(each.before, each.after) for each in plan.changes} == {(GuestCpus(CpuSet()), GuestCpus(AgentGuest.vcpus))}
    assert len(plan.changes) == 2
    runs.apply(plan, name)


def shows(guest: AgentGuest, masks: set[int]) -> None:
    wait_until(lambda: guest.masks() == masks, BOOT_SECONDS)


def test_rps_is_set_and_undone(guest: AgentGuest, runs: AgentRuns) -> None:
    set_rps(runs, "run-1")
    shows(guest, ALL)
    assert runs.plan("guest-rps").changes == ()
    assert (runs.rollback("run-2", "run-1").state, runs.states("run-1")) == ("rolled_back", {"undone"})
    shows(guest, NONE)


def test_all_settings_are_set_and_undone(guest: AgentGuest, runs: AgentRuns) -> None:
    wait_until(guest.settings, BOOT_SECONDS)
    before = guest.settings()
    assert before[:4] == ["0", "0", "0", "212992"]
    remedies: tuple[SettingName, ...] = ("guest-rps", "guest-rfs", "guest-irqs", "guest-sysctls")
    plan = runs.plan(*remedies)
    assert {change.target.kind for change in plan.changes} == {*INSIDE}
    runs.apply(plan, "run-1")
    wait_until(lambda: guest.settings()[:4] == ["4096", "4096", "4096", "26214400"], BOOT_SECONDS)
    # Both interrupts of each card's queue have one of the two vCPUs.
    assert sorted(set(zip(before[4:], guest.settings()[4:], strict=True)) - {(each, each) for each in before}) == [
        ("0-1", "0"),
        ("0-1", "1"),
    ]
    assert runs.plan(*remedies).changes == ()
    assert (runs.rollback("run-2", "run-1").state, runs.states("run-1")) == ("rolled_back", {"undone"})
    wait_until(lambda: guest.settings() == before, BOOT_SECONDS)
    shows(guest, NONE)


@pytest.mark.slow("a Linux guest that boots once more")
def test_rps_is_lost_with_a_restart(guest: AgentGuest, libvirt: Libvirt, runs: AgentRuns) -> None:
    set_rps(runs, "run-1")
    guest.restart()
    wait_until(lambda: not guest.rps(libvirt).unread, BOOT_SECONDS)
    runs.rollback("run-2", "run-1")
    assert runs.states("run-1") == {"gone"}
    assert guest.masks() == NONE


@contextmanager
def stopped(guest: AgentGuest, libvirt: Libvirt) -> Iterator[None]:
    """QEMU does not run, so the agent does not answer."""
    pid = next(each.pid for each in libvirt.guests(LIVE) if each.name == guest.name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_rollback_whose_guest_hangs_can_be_repeated(
    guest: AgentGuest, libvirt: Libvirt, runs: AgentRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rps(runs, "run-1")
    monkeypatch.setattr(libvirt_module, "AGENT_TIMEOUT", 1)
    with stopped(guest, libvirt):
        assert runs.rollback("run-2", "run-1").state == "rolled_back_partly"
    errors = runs.errors("run-1")
    assert len([each for each in errors if "libvirt: guest agent" in each.lower()]) == 2, errors
    wait_until(lambda: not guest.rps(libvirt).unread, BOOT_SECONDS)
    runs.begin_anew()
    assert runs.rollback("run-3", "run-1").state == "rolled_back", runs.errors("run-1")
    shows(guest, NONE)


def test_a_saved_guest_is_not_gone(guest: AgentGuest, libvirt: Libvirt, runs: AgentRuns) -> None:
    """Its masks are in the saved image, so they come back with the guest."""
    set_rps(runs, "run-1")
    private_libvirt.virsh(guest.uri, "managedsave", guest.name)
    try:
        assert (runs.rollback("run-2", "run-1").state, runs.states("run-1")) == ("rolled_back_partly", {"stuck"})
    finally:
        private_libvirt.virsh(guest.uri, "start", guest.name)
    wait_until(lambda: not guest.rps(libvirt).unread, BOOT_SECONDS)
    assert runs.rollback("run-3", "run-1").state == "rolled_back", runs.errors("run-1")
    shows(guest, NONE)


def test_a_paused_guest_is_not_gone(guest: AgentGuest, runs: AgentRuns) -> None:
    set_rps(runs, "run-1")
    private_libvirt.virsh(guest.uri, "suspend", guest.name)
    try:
        assert (runs.rollback("run-2", "run-1").state, runs.states("run-1")) == ("rolled_back_partly", {"stuck"})
    finally:
        private_libvirt.virsh(guest.uri, "resume", guest.name)
    assert runs.rollback("run-3", "run-1").state == "rolled_back"
    shows(guest, NONE)


def command(*arguments: object, status: int = 0) -> str:
    """The output of the command pinner, or its error if ``status`` is not 0."""
    done = warm.run(*arguments, code=STRICT)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def cli(guest: AgentGuest, tmp_path: Path) -> Callable[..., str]:
    """Runs a command in a process without a server."""
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {guest.uri}\nguest_agents = true\n")
    return lambda *arguments, status=0: command("--config-file", config, *arguments, status=status)


@pytest.mark.slow("a Linux guest that boots once more")
def test_the_commands_set_and_undo_it(guest: AgentGuest, cli: Callable[..., str]) -> None:
    options = ("--guest", guest.name, *WITH)
    assert f"{guest.name} eth0" in cli("plan", *options)
    assert "# inside the guest: echo 00000003 > /sys/class/net/eth1/queues/rx-0/rps_cpus" in cli(
        "plan", *options, "--format", "shell"
    )
    run = json.loads(cli("apply", "--yes", "--json", *options))["run"]["id"]
    shows(guest, ALL)
    assert f"guest {guest.name} eth0 rps rx-0" in cli("run", "show", run)
    assert "rps rx-0" not in cli("plan", *options)
    cli("rollback", "--yes", run)
    shows(guest, NONE)
    cli("apply", "--yes", *options)
    shows(guest, ALL)
    cli("rollback", "--all", "--yes")
    shows(guest, NONE)


def test_without_the_permission_the_command_says_what_to_set(guest: AgentGuest, tmp_path: Path) -> None:
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}/state\n[libvirt]\nuri = {guest.uri}\n")
    error = command("--config-file", config, "plan", "--guest", guest.name, *WITH, status=2)
    assert "guest_agents = true" in error
    assert "Traceback" not in error


@pytest.fixture(scope="module")
def server(booted: AgentGuest) -> Iterator[PolicyServer]:
    config = "guest_agents = true\n[policy]\nresync_seconds = 2\n[host]\nsample_seconds = 0.1\n"
    with fresh_policy_server(booted.uri, f"[libvirt]\n{config}") as server:
        yield server


def test_rest_sets_and_undoes_it(guest: AgentGuest, server: PolicyServer) -> None:
    body = {"guests": [guest.name], "with": ["guest-rps"], "busy_threshold": NEVER_BUSY, "sample_seconds": 0}
    plan = server.http.post(f"/hosts/{server.host}/plans", json=body).json()
    inside = [each for each in plan["changes"] if each["target"]["kind"] == "guest_rps"]
    assert [(each["before"], each["after"]) for each in inside] == [({"vcpus": ""}, {"vcpus": "0-1"})] * 2
    assert (
        "# inside the guest: echo 00000003" in server.http.get(f"/plans/{plan['id']}", params={"format": "shell"}).text
    )
    run = ended(server, server.http.post(f"/plans/{plan['id']}/apply", json={}).json())
    assert run["run"]["state"] == "applied", run
    shows(guest, ALL)
    undone = ended(server, server.http.post(f"/runs/{run['run']['id']}/rollback", json={}).json())
    assert undone["run"]["state"] == "rolled_back", undone
    shows(guest, NONE)


def ended(server: PolicyServer, run: dict[str, Any]) -> dict[str, Any]:
    """The run with its entries, once it has ended."""
    found: dict[str, Any] = {}

    def has_ended() -> bool:
        found.update(server.http.get(f"/runs/{run['id']}").json())
        return bool(found["run"]["state"] != "running")

    wait_until(has_ended, 60)
    return found


def shows_restart(guest: AgentGuest, server: PolicyServer) -> bool:
    shown = command("--url", server.url, "drift")
    return f"{guest.name} eth0" in shown and "restarted" in shown


@pytest.mark.slow("a Linux guest that boots once more")
def test_a_policy_sets_it_again_after_the_guest_has_restarted(guest: AgentGuest, server: PolicyServer) -> None:
    remedies = {"with": ["guest-rps"]}
    server.policy("enforce", [guest.name], **remedies)
    shows(guest, ALL)
    server.wait_reconciled()
    runs = len(server.runs())

    guest.restart()
    shows(guest, ALL)
    server.wait_reconciled()
    (again,) = server.runs()[: len(server.runs()) - runs]
    entries = server.http.get(f"/runs/{again['id']}").json()["entries"]
    assert (again["actor"], {each["change"]["target"]["kind"] for each in entries}) == ("policy", {"guest_rps"})
    reasons = {each["change"]["reason"].partition("; ")[0] for each in entries}
    assert reasons == {"restarted"}, entries

    server.policy("observe", [guest.name], **remedies)
    guest.restart()
    wait_until(lambda: server.drift()["drifts"], BOOT_SECONDS)
    assert {(each["target"]["kind"], each["cause"]) for each in server.drift()["drifts"]} == {
        ("guest_rps", "restarted")
    }
    # The guest's agent is read now and then; while the guest boots, nothing is known.
    wait_until(lambda: shows_restart(guest, server), BOOT_SECONDS)
    assert guest.masks() == NONE
    server.policy("enforce", [guest.name], **remedies)
    shows(guest, ALL)
    server.policy("observe", [])
