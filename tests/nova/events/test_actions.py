"""Each of Nova's actions on a guest of two hosts, emitted by Nova's own code through a real broker.

The notifications come in order, twice, a minute late, or in reverse. Each action names its notifications as Nova's
compute manager emits them: the publishing host, and the host in the instance at that moment. The hosts are in memory,
because Nova's compute manager cannot run two of them here.
"""

from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot
from support.nova.nova_listener import listening, until
from support.server.access import make_control
from support.server.unix_http import served

from pinner import conf, wiring
from pinner.api.app import create_app
from pinner.model.event import GuestEvent
from pinner.model.page import PageRequest
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.nova.broker.notification import KIND_OF_ACTION
from pinner.service.reconcile.controller import PolicyController

ANN = Caller("ann", "here", "req-1")
A, B = "compute1", "compute2"
SUBJECT = "00000000-0000-4000-8000-000000000001"
OWN_CPUS = {"12", "13", "0-15"}
"""The vCPUs of the subject with a dedicated flavor, and its emulator, which nobody moves."""
SMALL = {"flavor": "small", "extra_specs": {"pinner:strategy": "numa-local"}}
PINNED = {"flavor": "pinned", "extra_specs": {"hw:cpu_policy": "dedicated"}}
UNKNOWN = {"flavor": "small", "extra_specs": None}


class Cloud:
    """Two hosts, each with a neighbour that floats and one to which Nova dedicates CPUs."""

    def __init__(self, folder):
        self.agents = {}
        for number, host in enumerate((A, B), 1):
            floats = guest(10 * number, 2, cpus("0-15"))
            pinned = guest(10 * number + 1, 2, cpus("0-15"), pins=["14", "15"], dedicated=True)
            taken = snapshot(plain(16), [floats, pinned], dedicated=cpus("12-15"))
            self.agents[host] = HostedAgent(folder / host, replace(taken, host=host), wiring.now)
        self.started = 7

    def put(self, host, *, dedicated=False):
        """Start the subject on a host (None: nowhere), with new threads that may run on all CPUs, as Nova does."""
        self.started += 1
        made = guest(1, 2, cpus("0-15"), pins=["12", "13"] if dedicated else [], dedicated=dedicated)

        def new(thread):
            return replace(thread, started=self.started)

        vcpus = tuple(replace(vcpu, thread=new(vcpu.thread)) for vcpu in made.vcpus)
        threads = tuple(map(new, made.emulator.threads))
        made = replace(made, vcpus=vcpus, emulator=replace(made.emulator, threads=threads))
        for name, agent in self.agents.items():
            others = tuple(each for each in agent.host.taken.guests if each.uuid != SUBJECT)
            agent.host.taken = replace(agent.host.taken, guests=(made, *others) if name == host else others)
            agent.event_queue.publish("guest-started" if name == host else "guest-stopped", SUBJECT)

    def forget(self):
        """Delete the subject, with what earlier events told about it."""
        self.put(None)
        for host in self.agents:
            self.service.guest_event(host, GuestEvent(SUBJECT, "gone", "deleted", "test", wiring.now()), ANN)

    def masks(self, host, uuid=SUBJECT):
        found = next((each for each in self.agents[host].snapshot(0).guests if each.uuid == uuid), None)
        if found is None:
            return None
        return {str(thread.affinity) for thread in (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))}

    def state(self):
        return {host: self.masks(host) for host in self.agents}

    def neighbours(self):
        return {
            each.uuid: self.masks(host, each.uuid)
            for host, agent in self.agents.items()
            for each in agent.host.taken.guests
            if each.uuid != SUBJECT
        }


@pytest.fixture(scope="module")
def cloud(tmp_path_factory, rabbit):
    folder = tmp_path_factory.mktemp("cloud")
    cloud = Cloud(folder)
    config = conf.load([])
    with ExitStack() as undo:
        for agent in cloud.agents.values():
            undo.enter_context(closing(agent.journal))
        parts = wiring.service_parts(config, cloud.agents, f"sqlite:///{folder}/pinner.sqlite", undo)
        cloud.service = parts.service
        for host, agent in cloud.agents.items():
            cloud.service.set_policy(host, Policy(mode="enforce"), ANN)
            controller = PolicyController(parts.reconciler, host, resync_seconds=600, measure_seconds=600)
            undo.callback(agent.event_queue.close)
            undo.callback(controller.stop)
            controller.start()
        url = undo.enter_context(served(create_app(cloud.service, control=make_control(), max_body_bytes=65536))).url
        cloud.listener = undo.enter_context(listening(folder / "l", rabbit.url, url))
        cloud.listener.wait_for("listening")
        yield cloud
        assert cloud.service.verify_audit().ok


AGES = {"late": 60.0, "reversed": 15.0}
"""Seconds before the test at which the first notification was sent, where they do not come in order."""
START, END = ("start",), ("end",)
BOTH = ("start", "end")


def on(action, phases=BOTH, publisher=A, host=A, **flavor):
    return [("emit", action, phase, publisher, host, flavor) for phase in phases]


def at(host, *, dedicated=False):
    return [("put", host, dedicated)]


def resized(to, *, old=SMALL, where=B):
    """A resize of the guest on A, to B or on A itself."""
    return [
        *on("resize_prep", publisher=where, **old),
        *on("resize", START, **old),
        *at(None),
        *on("resize", END, host=where, **old),
        *at(where, dedicated=to is PINNED),
        *on("resize_finish", publisher=where, host=where, **to),
    ]


def reverted(to, *, old=SMALL):
    """A resize of the guest on A to B, and back. The source reports both, the begin while Nova still names B."""
    return [
        *resized(to, old=old),
        *on("resize_revert", START, host=B, **to),
        *at(A, dedicated=old is PINNED),
        *on("resize_revert", END, **old),
    ]


CREATED_PINNED = [*at(A, dedicated=True), *on("create", **PINNED)]


PREPARED = on("live_migration_pre", publisher=B, **SMALL)
ROLLED_BACK = [
    *on("live_migration_rollback", START, **SMALL),
    *on("live_migration_rollback_dest", publisher=B, **SMALL),
    *on("live_migration_rollback", END, **SMALL),
]
ACTIONS = {
    "create": ([*on("create", START, **SMALL), *at(A), *on("create", END, **SMALL)], A),
    "create, extra specs null": ([*at(A), *on("create", **UNKNOWN)], A),
    "create dedicated": (CREATED_PINNED, A),
    "soft reboot": (on("reboot", **SMALL), A),
    "hard reboot": ([*on("reboot", START, **SMALL), *at(A), *on("reboot", END, **SMALL)], A),
    "power": ([*on("power_off", **SMALL), *at(A), *on("power_on", **SMALL)], A),
    "rebuild": ([*on("rebuild", START, **SMALL), *at(A), *on("rebuild", END, **SMALL)], A),
    "rescue": ([*at(A), *on("rescue", **SMALL), *at(A), *on("unrescue", **SMALL)], A),
    "pause": ([*on("pause", **SMALL), *on("unpause", **SMALL)], A),
    "suspend": ([*on("suspend", **SMALL), *at(A), *on("resume", **SMALL)], A),
    "resize": ([*resized(SMALL), *on("resize_confirm", host=B, **SMALL)], B),
    "resize to dedicated": ([*resized(PINNED), *on("resize_confirm", host=B, **PINNED)], B),
    "resize on the same host": ([*resized(SMALL, where=A), *on("resize_confirm", **SMALL)], A),
    "resize to dedicated on the same host": ([*resized(PINNED, where=A), *on("resize_confirm", **PINNED)], A),
    "resize, reverted": (reverted(SMALL), A),
    "resize to dedicated, reverted": (reverted(PINNED), A),
    "resize from dedicated": (
        [*CREATED_PINNED, *resized(SMALL, old=PINNED), *on("resize_confirm", host=B, **SMALL)],
        B,
    ),
    "resize from dedicated on the same host": (
        [*CREATED_PINNED, *resized(SMALL, old=PINNED, where=A), *on("resize_confirm", **SMALL)],
        A,
    ),
    "resize from dedicated, reverted": ([*CREATED_PINNED, *reverted(SMALL, old=PINNED)], A),
    "resize from dedicated to dedicated": (
        [*CREATED_PINNED, *resized(PINNED, old=PINNED), *on("resize_confirm", host=B, **PINNED)],
        B,
    ),
    "hard reboot of a dedicated guest": (
        [*CREATED_PINNED, *on("reboot", START, **PINNED), *at(A, dedicated=True), *on("reboot", END, **PINNED)],
        A,
    ),
    "shelve, unshelve": ([*on("shelve", **SMALL), *at(None), *at(A), *on("unshelve", **SMALL)], A),
    "delete": ([*on("delete", START, **SMALL), *at(None), *on("delete", END, **SMALL)], None),
    "shelve offload, unshelve": (
        [
            *on("shelve", **SMALL),
            *on("shelve_offload", START, **SMALL),
            *at(None),
            *on("shelve_offload", END, host=None, **SMALL),
            *at(B),
            *on("unshelve", publisher=B, host=B, **SMALL),
        ],
        B,
    ),
    "evacuate": ([*at(B), *on("rebuild", publisher=B, host=A, **SMALL)], B),
    "live migration of a dedicated guest": (
        [
            *CREATED_PINNED,
            *on("live_migration_pre", publisher=B, **PINNED),
            *on("live_migration_post", START, **PINNED),
            *at(B, dedicated=True),
            *on("live_migration_post_dest", publisher=B, host=B, **PINNED),
            *on("live_migration_post", END, **PINNED),
        ],
        B,
    ),
    "live migration": (
        [
            *PREPARED,
            *on("live_migration_post", START, **SMALL),
            *at(B),
            *on("live_migration_post_dest", publisher=B, host=B, **SMALL),
            *on("live_migration_post", END, **SMALL),
        ],
        B,
    ),
    "live migration, aborted": ([*PREPARED, *on("live_migration_abort", **SMALL), *ROLLED_BACK], A),
    "live migration, rolled back": ([*PREPARED, *ROLLED_BACK], A),
    "live migration, failed": (
        [*on("live_migration_pre", START, publisher=B, **SMALL), *on("live_migration_rollback", **SMALL)],
        A,
    ),
}


@pytest.mark.parametrize("order", ["in order", "twice", "late", "reversed"])
@pytest.mark.parametrize(("steps", "host"), ACTIONS.values(), ids=ACTIONS)
def test_the_guest_ends_where_the_policy_wants_it_and_nobody_else_moves(cloud, emit, request, steps, host, order):
    operation = f"req-{request.node.nodeid}"
    cloud.forget()
    cloud.put(A)
    floating = {"2-3", "4-11"}
    until(lambda: cloud.masks(A) == floating, 60, lambda: (cloud.masks(A), cloud.neighbours(), cloud.listener.log))
    neighbours, began = cloud.neighbours(), wiring.now()
    sent, happened = [], []
    for number, step in enumerate(steps):
        if step[0] == "put":
            cloud.put(step[1], dedicated=step[2])
            continue
        _, action, phase, publisher, on_host, flavor = step
        what = {"publisher": publisher, "host": on_host, "uuid": SUBJECT, "request": operation, **flavor}
        sent.append((action, phase, what))
        # Half a second lies between two notifications, however busy the machine is.
        happened.append(began - timedelta(seconds=AGES.get(order, 0.0) - number / 2))
        if order in ("in order", "twice"):
            for _ in range(2 if order == "twice" else 1):
                emit(action, phase, **what)
    if order in ("late", "reversed"):
        for number in sorted(range(len(sent)), reverse=order == "reversed"):
            action, phase, what = sent[number]
            emit(action, phase, **what, age=(wiring.now() - happened[number]).total_seconds())
    expected = sum(2 if order == "twice" else 1 for each in sent if is_used(*each))
    until(lambda: len(handled(cloud, began)) == expected, 60, lambda: (handled(cloud, began), expected))
    dedicated = [step[2] for step in steps if step[0] == "put"][-1:] == [True]
    wanted = OWN_CPUS if dedicated else floating
    for each in (A, B):
        want = wanted if each == host else None
        until(
            lambda each=each, want=want: cloud.masks(each) == want, 60, lambda: (cloud.state(), handled(cloud, began))
        )
        assert [guest.leaving for guest in cloud.service.observe(each, 0.0).guests if guest.uuid == SUBJECT] == (
            [False] if each == host else []
        )
    assert cloud.neighbours() == neighbours
    assert {change.target.owner for change in changes(cloud, began)} <= {SUBJECT}
    assert {line["why"].partition(" ")[2] for line in cloud.listener.quarantined()} <= {
        f"is no guest of host {each}" for each in (A, B)
    }


def is_used(action, phase, what):
    """Whether pinner acts on a notification."""
    same = what["publisher"] == what["host"]
    if phase == "start":
        return action == "live_migration_pre" or (action in ("rebuild", "resize_revert") and not same)
    return action in KIND_OF_ACTION and not (action == "resize_confirm" and same)


def handled(cloud, since):
    """The subjects and results of the guest events."""
    pages = [cloud.service.audit(host, None, since, PageRequest(500)).items for host in (A, B)]
    return [(record.subject, record.result) for page in pages for record in page if record.action == "guest.event"]


def changes(cloud, since):
    runs = [run for host in (A, B) for run in cloud.service.runs(host, PageRequest(50)).items]
    return [entry.change for run in runs if run.started_at >= since for entry in cloud.service.entries(run.id)]
