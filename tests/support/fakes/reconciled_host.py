"""A host with a guest and a busy daemon, its policy and its masks, for the tests of a reconcile."""

from support.hosts import cpus, process

from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller

ANN = Caller("ann", "10.0.0.1", "req-1")

ALL = cpus("0-15")

DAEMON = process(500, 50.0, "0-15", "0-15", name="daemon")

ENFORCE = Policy(Request(), "enforce")

HOST = "compute1"


def kernel(agent):
    """The affinities of the threads of the guest and of the daemon."""
    now = agent.snapshot(0)
    threads = [thread for each in now.guests for thread in (*each.emulator.threads, *(v.thread for v in each.vcpus))]
    return {thread.name: str(thread.affinity) for thread in (*threads, *now.processes[0].threads)}


PLACED = {"qemu": "2-3", "worker": "2-3", "CPU 0/KVM": "4-15", "CPU 1/KVM": "4-15", "daemon": "0-1"}

FREE = dict.fromkeys(PLACED, "0-15")


def trail(service, *actions):
    records = reversed(service.audit(None, None, None, PageRequest(200)).items)
    return [record for record in records if record.action in actions]


def meddle(agent, tid, mask):
    """Another program moves a thread."""
    agent.host.move(tid, mask)


VCPU = 11_010


def vcpu_targets(agent):
    return [target for each in agent.host.taken.guests for target in each.threads_by_target if target.kind == "vcpu"]


def isolated(mode, **parameters):
    return Policy(Request("isolated", weights={"extra_l3": 5}, **parameters), mode)
