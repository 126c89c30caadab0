"""The agent of a captured machine: it can be looked at, and planned for, but not changed."""

from collections.abc import Callable
from typing import NoReturn

from pinner.agent.protocol import Progress
from pinner.model.drift import Drift
from pinner.model.errors import Invalid, NotFound
from pinner.model.event import HostEvent
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot


class CapturedAgent:
    """Satisfies Agent for a folder that holds a machine's proc/ and sys/."""

    def __init__(self, take: Callable[[float], Snapshot]) -> None:
        self._take = take

    def snapshot(self, sample_seconds: float) -> Snapshot:  # noqa: ARG002 - nothing runs there that could be measured
        """See Agent."""
        return self._take(0.0)

    def apply(self, plan: Plan, run: Run, progress: Progress) -> NoReturn:  # noqa: ARG002
        """Raises Invalid."""
        raise Invalid("host", plan.host, "a live host: a captured machine cannot be changed")

    def rollback(self, run: Run, progress: Progress) -> NoReturn:  # noqa: ARG002
        """Raises NotFound: nothing was ever done here."""
        raise NotFound("run", run.undoes)

    def run(self, run: str) -> NoReturn:
        """Raises NotFound: nothing was ever done here."""
        raise NotFound("run", run)

    def entries(self, run: str) -> tuple[Entry, ...]:  # noqa: ARG002
        """None."""
        return ()

    def host_events(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[HostEvent, ...]:  # noqa: ARG002
        """None: nothing happens here."""
        return ()

    def knows(self, guest: str) -> bool:
        """See Agent."""
        return any(each.uuid == guest for each in self.snapshot(0.0).guests)

    def publish_guest_event(self, guest: str, words: str) -> None:
        """Nobody waits for news here."""

    def policy_set(self) -> None:
        """Nobody waits for news here."""

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """As they are: nobody is there to be asked."""
        return drifts

    def set_excluded(self, guest: str, *, excluded: bool) -> NoReturn:  # noqa: ARG002
        """Raises Invalid."""
        raise Invalid("guest", guest, "a guest of a live host: a captured machine cannot be changed")
