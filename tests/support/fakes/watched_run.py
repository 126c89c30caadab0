"""A run whose host is measured, and the clock and load that a test sets."""

from datetime import timedelta

from support.values import NOON

from pinner.model.plan.objective import Term
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions

ANN = Caller("ann", "10.0.0.1", "req-1")

WEB, DB = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"

TERM = Term("vcpu_vs_host", 6, "CPUs", 1.0, 3.0, 0.0)


class Hand:
    """A clock that a test sets."""

    at = NOON

    def __call__(self):
        return self.at

    def forward(self, seconds):
        self.at += timedelta(seconds=seconds)


class Load:
    """Values of the history: the delay of web1 changes when the agent has moved its thread."""

    def __init__(self, clock):
        self.clock = clock
        self.worse_by = 0.0
        self.since = NOON + timedelta(days=1)
        self.missing = lambda at: False

    def __call__(self, subject, series, at):
        if self.missing(at) or at > self.clock.at:
            return None
        noise = at.timestamp() // 5 * 7 % 5
        if subject == WEB and series == "delay_vcpu":
            return 20.0 + noise + (self.worse_by if at > self.since else 0.0)
        return noise


def applied(parts, plan, **options):
    run = parts.service.apply(plan.id, ApplyOptions(**options), ANN)
    list(parts.service.follow(run.id))
    return parts.service.run(run.id)


def passes(parts, clock, seconds):
    for _ in range(0, seconds, 5):
        clock.forward(5)
        parts.outcomes.make_pass()
