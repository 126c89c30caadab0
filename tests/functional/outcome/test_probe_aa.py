"""A/A probes: real probes beside a real guest and changing work, of plans that make no difference for the guest.

Each plan moves a process that only sleeps. So ``better`` and ``worse`` are false, and come in at most 5 % of all
probes. Ten probes run at a time, each of a service of its own: they see the same noise, but each draws its own order.
"""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.guests.measured_host import measured_service, wait_until
from support.guests.real_guests import ONLINE
from support.made_up.series import upper_bound
from support.server.policy_host import NEVER_BUSY

from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.guest.guest import Guest
from pinner.model.outcome.measures import HOST, Span
from pinner.model.outcome.outcome import MIN_SECONDS, Judgement, Probe, ProbeOptions
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts

ANN = Caller("ann", "test", "")
TURNS, AT_ONCE = 2, 10
WINDOWS = 5
"""Of each placement: the fewest that can tell four measures apart."""
MOST_FALSE = 4
"""At a level of 5 %, more of 20 have a probability of 3 in 1,000."""
WORK = "while :; do timeout $((RANDOM % 20 + 1)) sh -c 'while :; do :; done'; sleep $((RANDOM % 30)); done"
"""Work that comes and goes, for up to half a minute."""

pytestmark = [
    pytest.mark.needs("root", "two_cpus", "realtime"),
    pytest.mark.skipif(os.environ.get("PINNER_PROBES") != "all", reason="takes minutes: make test-probes"),
]


@contextmanager
def changing_work() -> Iterator[None]:
    """Two processes that work now and then."""
    with ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen(["bash", "-c", WORK], start_new_session=True))
            stack.callback(os.killpg, process.pid, 9)
        yield


@contextmanager
def sleeper() -> Iterator[int]:
    """The id of a process that does nothing."""
    with subprocess.Popen(["sleep", "infinity"], user="nobody") as process:
        try:
            yield process.pid
        finally:
            process.kill()


def begun(parts: ServiceParts, guest: Guest, pid: int) -> str:
    """The id of the probe of a plan that moves only this process."""
    request = Request(
        guests=(), processes=(str(pid),), excluded_guests=(guest.name,), housekeeping=str(ONLINE[0]),
        busy_threshold=NEVER_BUSY,
    )  # fmt: skip
    plan = parts.service.plan("h1", request, None, 0.0, ANN)
    assert {change.target.owner for change in plan.changes} == {str(pid)}
    return parts.service.probe(plan.id, ProbeOptions(WINDOWS, MIN_SECONDS), ANN).id


def is_measured(parts: ServiceParts) -> bool:
    found = parts.service.measures("h1", Span()).histories
    known = [each for each in found if any(value is not None for values in each.values.values() for value in values)]
    return len({each.subject for each in known} - {HOST}) == 1


def probed(folder: Path, host: LiveHost, libvirt: Libvirt, guest: Guest) -> list[Probe]:
    """Ten probes that ran at the same time."""
    with ExitStack() as stack:
        services = []
        for number in range(AT_ONCE):
            (own := folder / str(number)).mkdir(parents=True)
            services.append(stack.enter_context(measured_service(own, host, libvirt)))
        pids = [stack.enter_context(sleeper()) for _ in services]
        for parts in services:
            wait_until(lambda parts=parts: is_measured(parts), 120)
        names = [begun(parts, guest, pid) for parts, pid in zip(services, pids, strict=True)]
        for parts, name in zip(services, names, strict=True):
            parts.probes.wait(name)
        return [parts.service.probe_by_id(name) for parts, name in zip(services, names, strict=True)]


@pytest.fixture(scope="module")
def verdicts() -> Iterator[list[Judgement]]:
    """The verdicts of all probes of this module; it prints how many are false."""
    found: list[Judgement] = []
    yield found
    wrong, each = len(false(found)), ", ".join(f"{found.count(each)} {each}" for each in sorted(set(found)))
    if found:
        bound = 100 * upper_bound(wrong, len(found))
        print(f"{wrong} of {len(found)} live A/A probes are false; at most {bound:.1f} % (95 % interval). All: {each}.")


def false(found: Iterable[Judgement]) -> list[Judgement]:
    return [each for each in found if each in ("better", "worse")]


@pytest.mark.parametrize("turn", range(TURNS))
def test_a_plan_without_effect_is_hardly_ever_better_or_worse(
    start_guest: Callable[..., Guest],
    tmp_path: Path,
    host: LiveHost,
    libvirt: Libvirt,
    verdicts: list[Judgement],
    turn: int,
) -> None:
    guest = start_guest(paused=False, vcpus=1, iothreads=0)
    with changing_work():
        found = probed(tmp_path, host, libvirt, guest)
    outcomes = [each.outcome for each in found if each.outcome is not None]
    assert len(outcomes) == AT_ONCE, [(each.state, each.why) for each in found]
    assert [each.left for each in found] == [""] * AT_ONCE
    print(f"windows that count, of {2 * WINDOWS}: {[each.windows for each in outcomes]}")
    print({why for each in outcomes for why in each.void})
    verdicts += [each.judgement for each in outcomes]
    assert len(false(verdicts)) <= MOST_FALSE
    assert all(each.measures for each in outcomes)
