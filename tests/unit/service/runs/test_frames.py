"""How deep a run is: the frames of pinner from the run's thread to the host's port, which then calls the kernel."""

import os
import traceback
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, process, snapshot

import pinner
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts

ANN = Caller("ann", "cli", "req-1")
HOST = "compute1"
PACKAGE = str(Path(pinner.__file__).parent) + os.sep
MOST = 11
"""LiveHost and affinity.set_affinity add two frames to these of a host in memory. The aim is 12 with these two: lower
it with each wrapper that goes."""


@pytest.fixture
def agent(tmp_path, clock):
    busy = process(500, 50.0, "0-15", name="daemon")
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, cpus("0-15"))], [busy]), clock)
    with closing(made.journal):
        yield made


@pytest.fixture
def parts(store, agent, clock):
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as made:
        yield made


@pytest.mark.parametrize("by_policy", [False, True], ids=["apply", "reconcile"])
def test_a_run_reaches_the_host_in_few_frames(service, reconciler, agent, by_policy):
    stacks = []
    wait = agent.host.before_write

    def write(made):
        stacks.append([frame for frame in traceback.extract_stack() if frame.filename.startswith(PACKAGE)])
        wait(made)

    agent.host.before_write = write
    if by_policy:
        service.set_policy(HOST, Policy(mode="enforce"), ANN)
        reconciler.reconcile(HOST, "started")
    else:
        plan = service.plan(HOST, Request(), None, 0.0, ANN)
        list(service.follow(service.apply(plan.id, ApplyOptions(), ANN).id))
    deepest = max(stacks, key=len)
    assert len(deepest) <= MOST, "\n".join(f"{frame.filename}:{frame.name}" for frame in deepest)
