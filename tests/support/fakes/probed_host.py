"""A host whose load follows its placement, with clocks that only the waiting of a probe moves."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b

from support.fakes.hosted_agent import HostedAgent
from support.fakes.ring import Ring
from support.values import NOON, busy_plan, cpus, make_snapshot, sample_snapshot

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.guest.guest import Emulator, Vcpu
from pinner.model.machine.process import Thread
from pinner.model.outcome.outcome import CURRENT, PLANNED, Arm, Probe, ProbeOptions, Window
from pinner.model.page import MAX_LIMIT, PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import Caller
from pinner.outcome.ranking import with_result
from pinner.outcome.verdict import schedule
from pinner.service.local import ServiceParts
from pinner.service.outcome.probe_execution import Timing

WEB, DB = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
THREAD = 101
"""The vCPU thread of web1 that the plan moves to CPU 1."""

ORDER = schedule(6, 7)

BEFORE_A_SWITCH = 2 * next(n for n in range(1, 12) if ORDER[n - 1 : n + 1] == ("current", "planned"))
"""The number of the wait after which the probe applies its plan. Each window has two waits."""
ANN = Caller("ann", "10.0.0.1", "req-1")


def guest(name, owner):
    """A guest with one vCPU on all CPUs; web1's has the thread THREAD."""
    every, first = cpus("0-3"), {WEB: THREAD - 1, DB: 200}.get(owner, 300)
    qemu, vcpu = (Thread(tid, 7, name, every) for tid in (first, first + 1))
    return replace(
        sample_snapshot().guests[0], uuid=owner, name=name, pid=first, vcpus=(Vcpu(0, vcpu, every),),
        emulator=Emulator(every, (qemu,)),
    )  # fmt: skip


class ProbedHost:
    """A host with two guests, web1 and db1, and plans for web1. Each CPU of web1 adds its ``effects`` to the delay."""

    def __init__(self, folder):
        self.at = NOON
        self.passed = 0.0
        self.effects = {}
        """What a CPU of web1 adds to its delay."""
        self.waits = 0
        self.at_wait = {}
        """What happens at the end of a wait, by its number from 1; 0: at each wait."""
        self.unknown = frozenset()
        """Series that nobody knows."""
        self._placed = []
        both = (guest("web1", WEB), guest("db1", DB))
        self.agent = HostedAgent(folder, replace(make_snapshot(), guests=both), lambda: self.at)
        self.agent.histories = Ring({WEB: "web1", DB: "db1"}, self._value)

    @property
    def is_placed(self):
        """Whether web1 is placed as a plan wants it."""
        return self.mask != "0-3"

    @property
    def mask(self):
        """Where web1 may run."""
        return self.agent.host.mask(THREAD)

    @property
    def effect(self):
        """That of the plan of a probe."""
        return self.effects["1"]

    @effect.setter
    def effect(self, effect):
        self.effects["1"] = effect

    def wait(self, event, seconds):
        """Let the time pass."""
        begin = self.at
        self.at += timedelta(seconds=seconds)
        self.passed += seconds
        if self.is_placed:
            self._placed.append((begin, self.at, self.mask))
        self.waits += 1
        for number in (0, self.waits):
            self.at_wait.get(number, lambda: None)()
        return event.is_set()

    def compose(self, store):
        timing = Timing(lambda: self.at, lambda: self.passed, self.wait, lambda: 7)
        agents = {self.agent.host.taken.host: self.agent}
        return closing(ServiceParts(agents, store, lambda: self.at, lambda: uuid.uuid4().hex[:12], 0.0, timing=timing))

    def _value(self, subject, series, at):
        if series in self.unknown or at > self.at:
            return None
        noise = 5 * int.from_bytes(blake2b(f"{subject} {series} {at}".encode(), digest_size=4).digest()) / 2**32
        if subject == WEB and series == "delay_vcpu":
            return 100.0 + noise + self.effects.get(self._mask_at(at), 0.0)
        return noise if series.startswith("delay_") else 0.0

    def is_placed_at(self, at):
        return bool(self._mask_at(at))

    def _mask_at(self, at):
        return next((mask for begin, end, mask in self._placed if begin < at <= end), "")

    def end(self, kind):
        """The processes, or the parts of guests, of this kind end."""
        for target in [each for each in self.agent.host.threads if each.kind == kind]:
            self.agent.host.threads[target] = []

    def plan(self, store, tid=THREAD, also=(), name="plan-3", cpu="1", strategy="shared-pool"):
        basis = store.snapshots.add(make_snapshot())
        change = AffinityChange(Target("vcpu", WEB, 0, "web1"), (ThreadMask(tid, 7, cpus("0-3")),), cpus(cpu), "so")
        made = busy_plan(name, basis, (change, *also))
        made = replace(made, request=replace(made.request, strategy=strategy))
        store.plans.add(made, NOON)
        return made


def probed(parts, plan, windows=6, seconds=30, rivals=(), *, keep=False):
    options = ProbeOptions(windows, seconds, tuple(rival.id for rival in rivals), keep)
    begun = parts.service.probe(plan.id, options, ANN)
    parts.probes.wait(begun.id)
    return parts.service.probe_by_id(begun.id)


def records(parts, noun):
    found = parts.service.audit(None, None, None, PageRequest(MAX_LIMIT, direction="asc")).items
    return [each for each in found if each.action.startswith(noun)]


def ended_probe(name: str, plans: list[Plan], options: ProbeOptions, caller: Caller, guest: str) -> Probe:
    """The drops are lower with the first plan, and one window does not count."""
    best, *others = [plan.request.strategy for plan in plans] if len(plans) > 1 else [PLANNED]
    order: tuple[Arm, ...] = (best, CURRENT, *others) * options.windows
    counted = [Window(arm, {"drops": 50.0 * (arm != best) + n % 3}) for n, arm in enumerate(order)]
    probe = Probe(
        id=name,
        host=plans[0].host,
        plans=tuple(plan.id for plan in plans),
        arms=(CURRENT, best, *others),
        actor=caller.actor,
        origin=caller.origin,
        state="ended",
        started_at=NOON,
        order=order,
        seconds=options.seconds,
        guests=(guest,),
        keep=options.keep,
        windows=(*counted, Window(best, {}, {}, f"guest {guest} migrates")),
        ended_at=NOON,
        kept="run-9" if options.keep else "",
    )
    return with_result(probe)
