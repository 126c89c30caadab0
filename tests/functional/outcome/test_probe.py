"""Probes with real guests: a plan that is better, one that is worse, and a server that is killed in a window.

A verdict takes six minutes. One test waits so long; the others pass a quick clock to the service.
"""

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from support.guests.measured_host import (
    QuickClock,
    busy_processes,
    machine_now,
    measured_service,
    start_busy_guest,
    steps,
    wait_until,
)
from support.guests.real_guests import ONLINE, only
from support.server import warm
from support.server.policy_host import NEVER_BUSY
from support.server.restartable_server import RestartableServer, restartable_server
from support.system.kernel import masks

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.outcome.outcome import DEFAULT_SECONDS, MIN_SECONDS, Probe, ProbeOptions
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request, RequestedPin
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts

ANN = Caller("ann", "test", "")
WINDOWS = 6
"""Of each placement. Three measures are known here, and need five."""
START_SECONDS = 120
"""The longest time until the recorder has measured something."""
QUICK = f"""
from pinner.service.outcome.probe_execution import ProbeExecution
kept = ProbeExecution._pause
ProbeExecution._pause = lambda self, seconds: kept(self, seconds / 10)
{warm.PINNER}"""
"""A server whose windows are ten times as short."""

LOAD = pytest.mark.slow("real load for a minute")
MEASURES = pytest.mark.machine("measures its CPUs")
KILL = pytest.mark.slow("a kill of one more part of a server")

pytestmark = pytest.mark.needs("root", "two_cpus", "realtime")


@pytest.fixture
def guest(start_guest: Callable[..., Guest], tmp_path: Path) -> Guest:
    """A guest whose only vCPU works all the time."""
    return start_busy_guest(start_guest, tmp_path)


@pytest.fixture
def real(tmp_path: Path, host: LiveHost, libvirt: Libvirt, guest: Guest) -> Iterator[ServiceParts]:
    """The service of this machine."""
    with measured_service(tmp_path, host, libvirt) as made:
        yield made


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def quick(tmp_path: Path, host: LiveHost, libvirt: Libvirt, guest: Guest, clock: QuickClock) -> Iterator[ServiceParts]:
    """The same by a quick clock."""
    with measured_service(tmp_path, host, libvirt, clock) as made:
        yield made


def probed(parts: ServiceParts, guest: Guest, plan: Plan, now: Callable[[], datetime] = machine_now) -> Probe:
    """The probe of the plan, at its end. The guest has the masks from before it then."""
    before = masks(guest.pid)
    wait_until(lambda: steps(parts, guest, now) >= 1, START_SECONDS)
    begun = parts.service.probe(plan.id, ProbeOptions(WINDOWS, MIN_SECONDS), ANN)
    parts.probes.wait(begun.id)
    found = parts.service.probe_by_id(begun.id)
    assert (found.state, found.why, found.left) == ("ended", "", "")
    after = masks(guest.pid)
    assert only(after, before) == only(before, after)
    return found


def planned_vcpus(plan: Plan) -> set[str]:
    return {str(want.cpus) for want in plan.wanted if want.target.kind == "vcpu"}


def beside(guest: Guest, busy: Collection[int]) -> Request:
    """Moves the guest and the busy processes, and nothing else: the first CPU is for the processes."""
    return Request(
        guests=(guest.name,),
        processes=tuple(map(str, busy)),
        housekeeping=str(ONLINE[0]),
        busy_threshold=NEVER_BUSY,
    )


@pytest.mark.slow("a whole real probe")
@MEASURES
def test_a_plan_that_moves_busy_processes_away_from_a_guest_is_better(real: ServiceParts, guest: Guest) -> None:
    """16 busy processes share all CPUs with the guest. The plan gives the first CPU to them, and the rest to the guest.

    The guest has a higher priority than they have: else a snapshot would take as long as a window.
    """
    parts = real
    with busy_processes(16, ONLINE, priority=0) as busy:
        request = beside(guest, busy)
        plan = parts.service.plan("h1", request, None, 0.0, ANN)
        assert {change.target.owner for change in plan.changes if change.target.kind == "process"} == set(
            map(str, busy)
        )
        assert all(str(ONLINE[0]) not in cpus.split(",") for cpus in planned_vcpus(plan))
        before = [masks(pid) for pid in busy]
        found = probed(parts, guest, plan)
        assert [masks(pid) for pid in busy] == before
    assert found.outcome is not None
    by_name = {each.measure.name: each for each in found.outcome.measures}
    assert by_name["run_delay"].judgement == "better", found
    assert by_name["run_delay"].effect < 0
    assert found.outcome.judgement == "better", found


@pytest.mark.skipif(
    os.environ.get("PINNER_PROBES") != "all", reason="short windows tell too little now and then: make test-probes"
)
@LOAD
@MEASURES
def test_a_plan_that_puts_a_guest_on_the_busiest_cpu_is_worse(
    quick: ServiceParts, guest: Guest, clock: QuickClock
) -> None:
    parts = quick
    with busy_processes(3, ONLINE[:1]):
        request = Request(guests=(guest.name,), housekeeping=str(ONLINE[1]), busy_threshold=NEVER_BUSY)
        plan = parts.service.plan("h1", request, None, 0.0, ANN)
        assert planned_vcpus(plan) == {str(ONLINE[0])}
        found = probed(parts, guest, plan, clock.now)
    assert found.outcome is not None
    by_name = {each.measure.name: each for each in found.outcome.measures}
    assert by_name["run_delay"].judgement == "worse", found
    assert found.outcome.judgement == "worse", found


@pytest.mark.skipif(
    os.environ.get("PINNER_PROBES") != "all", reason="short windows tell too little now and then: make test-probes"
)
@LOAD
@MEASURES
def test_a_tournament_ranks_the_busiest_cpu_last_and_keeps_the_winner(
    quick: ServiceParts, guest: Guest, clock: QuickClock
) -> None:
    """The guest is on the busiest CPU first. One plan puts it on another CPU, the other plan on both."""
    parts, before = quick, masks(guest.pid)

    def by_hand(cpus: list[int]) -> str:
        pin = RequestedPin(guest.uuid, "vcpu", CpuSet.of(cpus), 0)
        return parts.service.plan("h1", Request(placement=(pin,)), None, 0.0, ANN).id

    with busy_processes(3, ONLINE[:1]):
        first = parts.service.apply(by_hand(ONLINE[:1]), ApplyOptions(allow_worse=True), ANN)
        list(parts.service.follow(first.id))
        free, both = by_hand(ONLINE[1:2]), by_hand(ONLINE[:2])
        wait_until(lambda: steps(parts, guest, clock.now) >= 1, START_SECONDS)
        begun = parts.service.probe(free, ProbeOptions(10, MIN_SECONDS, (both,), keep=True), ANN)
        parts.probes.wait(begun.id)
    found = parts.service.probe_by_id(begun.id)
    assert (found.state, found.why, found.left) == ("ended", "", ""), found
    assert found.ranking is not None
    assert (found.ranking.places[-1].arm, found.winner in (free, both)) == ("current", True), found
    assert os.sched_getaffinity(guest.vcpus[0].thread.tid) == set(ONLINE[1:2] if found.winner == free else ONLINE[:2])
    for run in (found.kept, first.id):
        list(parts.service.follow(parts.service.rollback(run, ANN).id))
    after = masks(guest.pid)
    assert only(after, before) == only(before, after)


# -- killed --


@pytest.fixture
def server(libvirtd: str) -> Iterator[RestartableServer]:
    with restartable_server(libvirtd, QUICK, "[policy]\nresync_seconds = 2\n") as running:
        yield running


def begun(server: RestartableServer, plan: str, **options: object) -> str:
    """The id of a probe. It is refused until the agent has measured something."""
    deadline, request = time.monotonic() + START_SECONDS, {"windows": 2, "seconds": DEFAULT_SECONDS} | options
    while (answer := server.post(f"/plans/{plan}/probe", **request)).status_code == 404:
        assert time.monotonic() < deadline, answer.text
        time.sleep(1)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def wait_gone(pid: int) -> None:
    """A process that is no child of this one, or a zombie of it, ends within a while."""

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_until(is_gone, 60)


def kill_in_a_window(server: RestartableServer, is_placed: Callable[[], bool], killed: str) -> None:
    """Kill one part of the server or both while the guest is placed, and wait for the end of both."""
    agent, (api,) = server.current.process.pid, server.current.children()

    def stops_in_a_window() -> bool:
        if is_placed():
            os.kill(api, signal.SIGSTOP)  # so the window does not end meanwhile
            if is_placed():
                return True
            os.kill(api, signal.SIGCONT)
        return False

    wait_until(stops_in_a_window, 120, 0.1)
    for name, pid in (("agent", agent), ("api", api)):
        if name in killed:
            os.kill(pid, signal.SIGKILL)
    if "api" not in killed:
        os.kill(api, signal.SIGCONT)
    # One does not go on without the other.
    server.current.process.wait(60)
    wait_gone(api)
    if "agent" in killed and "api" in killed:
        assert is_placed(), "nobody was left who could have put the placement back"


@pytest.mark.parametrize(
    "killed", [pytest.param("agent", marks=KILL), pytest.param("api", marks=KILL), "agent and api"]
)
def test_after_a_kill_in_a_window_the_next_server_puts_the_placement_back(
    server: RestartableServer, start_guest: Callable[..., Guest], killed: str
) -> None:
    guest = start_guest(vcpus=1)
    before = masks(guest.pid)
    probe = begun(server, server.plan(guest))

    def is_placed() -> bool:
        now = masks(guest.pid)
        return only(now, before) != only(before, now)

    kill_in_a_window(server, is_placed, killed)
    require_put_back(server, probe, guest, before)


@pytest.mark.slow("a kill in a window of each plan of a tournament")
@pytest.mark.parametrize("place", [0, 1], ids=["first plan", "second plan"])
def test_after_a_kill_in_a_window_of_a_tournament_the_placement_is_put_back(
    server: RestartableServer, start_guest: Callable[..., Guest], place: int
) -> None:
    guest = start_guest(vcpus=1)
    before = masks(guest.pid)
    plan, rival = (by_hand(server, guest, cpu) for cpu in ONLINE[:2])
    probe = begun(server, plan, rivals=[rival], keep=True)
    vcpu = guest.vcpus[0].thread.tid

    def is_placed() -> bool:
        return os.sched_getaffinity(vcpu) == {ONLINE[place]}

    kill_in_a_window(server, is_placed, "agent and api")
    require_put_back(server, probe, guest, before)


def by_hand(server: RestartableServer, guest: Guest, cpu: int) -> str:
    pin = {"owner": guest.uuid, "kind": "vcpu", "part": 0, "cpus": str(cpu)}
    answer = server.post("/hosts/here/plans", placement=[pin], sample_seconds=0)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def require_put_back(server: RestartableServer, probe: str, guest: Guest, before: dict[int, str]) -> None:
    """After a restart of the server."""
    server.restart()
    wait_until(lambda: server.get(f"/probes/{probe}")["state"] != "running", 60)
    found = server.get(f"/probes/{probe}")
    results = (found["outcome"], found["ranking"], found["kept"])
    assert (found["state"], found["left"], *results) == ("interrupted", "", None, None, ""), found
    after = masks(guest.pid)
    assert only(after, before) == only(before, after)
    records = [(each["action"], each["subject"]) for each in server.get("/audit", limit=200)["items"]]
    assert ("probe.begin", probe) in records
    assert ("probe.end", probe) in records
    assert server.get("/audit/verify")["ok"] is True
