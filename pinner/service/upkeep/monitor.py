"""Checks in a thread of its own whether the parts of the server work, so that a part that hangs delays no caller."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from pinner import worker
from pinner.model.errors import PinnerError
from pinner.model.health import AgentHealth, Check, Queue, Readiness, readiness
from pinner.repeated import Repeated
from pinner.service.hosts.hosts import Hosts
from pinner.service.metrics import Metrics
from pinner.service.policy.policies import HostPolicies
from pinner.store.database.probe import DatabaseProbe
from pinner.worker import Heartbeat, Worker

LOG = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A check whose result is so old hangs. A silent agent delays a check by ten seconds."""
QUEUE_SECONDS = 10.0
"""If a request waits longer for a thread, all threads hang."""
ROOM_SECONDS = 60.0
OBSERVATIONS = 3
"""A host with a policy is compared with it once in so many resyncs, and OBSERVATION_SECONDS."""
OBSERVATION_SECONDS = 300.0


class Monitor(Worker):
    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        probe: DatabaseProbe,
        metrics: Metrics,
        measure_room: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``measure_room`` updates the metrics of a host's room; it never raises."""
        super().__init__("health", STALE_SECONDS * 5)
        self.metrics = metrics
        self._measure_room = measure_room
        self._room_at: float | None = None
        self._hosts = hosts
        self._policies = policies
        self._probe = probe
        self._clock = clock
        self._threads: tuple[Heartbeat, ...] = ()
        self._observation_seconds: float | None = None
        self._began = clock()
        self._without_policy: dict[str, float] = {}
        self._failures = Repeated(LOG)
        self._latest: tuple[float, tuple[Check, ...]] | None = None

    def watch(self, threads: Iterable[Heartbeat], resync_seconds: float) -> None:
        """``resync_seconds`` are those of the controller, which is checked, too."""
        self._threads = (*threads, self.heartbeat)
        self._observation_seconds = OBSERVATIONS * resync_seconds + OBSERVATION_SECONDS
        self._began = self._clock()

    def readiness(self) -> Readiness:
        """Not ready before the first result."""
        if self._latest is None:
            return readiness((Check("health", ok=False, why="the first check has not ended yet"),))
        at, checks = self._latest
        if (age := self._clock() - at) > STALE_SECONDS:
            hangs = Check("health", ok=False, why=f"the latest result is {age:.0f} s old, because a check hangs")
            return readiness((*checks, hangs))
        return readiness((*checks, self._queue()))

    def check(self) -> None:
        agents: dict[str, AgentHealth] = {}
        checks = [*self._server()]
        for host in self._hosts.names():
            checks += self._agent(host, agents)
            checks += self._controller(host)
        result = tuple(checks)
        self.metrics.checked(agents, result)
        self._report(result)
        self._latest = (self._clock(), result)
        self._rooms(agents)

    def _rooms(self, answering: Iterable[str]) -> None:
        now = self._clock()
        if self._room_at is None or now - self._room_at >= ROOM_SECONDS:
            self._room_at = now
            for host in answering:
                self._measure_room(host)

    def _repeat(self) -> None:
        while not self._stop.is_set():
            self.heartbeat.beat()
            try:
                self.check()
            except Exception as error:
                self._failures.exception("the health of the server cannot be checked")
                why = f"{type(error).__name__}; the log has the reason"
                self._latest = (self._clock(), (Check("health", ok=False, why=why),))
            self._stop.wait(CHECK_SECONDS)

    def _report(self, checks: tuple[Check, ...]) -> None:
        before = {check.name for check in self._latest[1] if not check.ok} if self._latest else set()
        for check in checks:
            if not check.ok and check.name not in before:
                LOG.warning("not ready: %s: %s", check.name, check.why)
        for name in sorted(before - {check.name for check in checks if not check.ok}):
            LOG.warning("%s is ready again", name)

    def _server(self) -> Iterator[Check]:
        yield _checked("database", self._probe.check)
        hanging = "; ".join(worker.wrong(self._threads))
        yield Check("threads", not hanging, hanging)

    def _agent(self, host: str, healths: dict[str, AgentHealth]) -> Iterator[Check]:
        def ask() -> None:
            healths[host] = self._hosts.agent(host).health()

        yield _checked("agent", ask)
        if host in healths:
            yield from healths[host].checks

    def _controller(self, host: str) -> Iterator[Check]:
        if self._observation_seconds is None:
            return
        try:
            if self._policies.find(host) is None:
                self._without_policy[host] = self._clock()
                return
        except PinnerError:
            return  # the check of the database tells it
        age = self.metrics.seconds_since_reconcile(host)
        waited = self._clock() - max(self._began, self._without_policy.get(host, 0.0)) if age is None else age
        late = waited > self._observation_seconds
        yield Check("controller", not late, f"no observation under the policy for {waited:.0f} s" if late else "")

    def _queue(self) -> Check:
        queue: Queue = self.metrics.queue()
        full = queue.seconds > QUEUE_SECONDS
        why = f"{queue.waiting} requests wait for a thread, the first one for {queue.seconds:.0f} s"
        return Check("queue", not full, why if full else "")


def _checked(name: str, work: Callable[[], None]) -> Check:
    try:
        work()
    except PinnerError as error:
        return Check(name, ok=False, why=str(error))
    return Check(name, ok=True)
