"""Nova's own scheduler code weighs hosts by what a real pinner server answers about them."""

import warnings
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot
from support.server.access import InMemoryTokens
from support.server.real_service import answering

from pinner import conf, wiring

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the eventlet that Nova imports
    pytest.importorskip("nova.scheduler.host_manager", reason="needs Nova itself (tox -e nova)")

from nova import objects
from nova.scheduler import host_manager, weights

from pinner.nova import weigher_conf

objects.register_all()
PATH = "pinner.nova.weigher.PinnerWeigher"
EVERY = cpus("0-15")
HOSTS = {
    "free": snapshot(plain(16, 2), []),
    "full": snapshot(plain(16, 2), [guest(number, 4, EVERY) for number in (1, 2, 3)]),
    "half": snapshot(plain(16, 2), [guest(1, 6, EVERY)]),
    "dedicated": snapshot(plain(16, 2), [], shared=cpus("0-3"), dedicated=cpus("4-15")),
}
"""Each node has eight CPUs: one for housekeeping, one for emulators, six for vCPUs. Guests float over both nodes."""


@pytest.fixture(scope="module")
def weigh(tmp_path_factory):
    """The names of the hosts that weigh 1 for a flavor."""
    folder, tokens = tmp_path_factory.mktemp("hosts"), InMemoryTokens()
    agents = {name: HostedAgent(folder / name, replace(host, host=name), wiring.now) for name, host in HOSTS.items()}
    (folder / "token").write_text(tokens.add("reader"))
    with ExitStack() as undo, pytest.MonkeyPatch.context() as patch:
        for agent in agents.values():
            undo.enter_context(closing(agent.journal))
        service = wiring.service_parts(conf.load([]), agents, f"sqlite:///{folder}/pinner.sqlite", undo).service
        url = undo.enter_context(answering(service, tokens))
        settings = folder / "weigher.conf"
        settings.write_text(f"[weigher]\nserver = {url}\ntoken_file = {folder}/token\ntimeout = 20\n")
        patch.setattr(weigher_conf, "CONFIG", str(settings))
        (found,) = weights.HostWeightHandler().get_matching_classes([PATH])

        def weigh(vcpus, memory_mb=512, **extra_specs):
            specs = {name.replace("__", ":"): value for name, value in extra_specs.items()}
            flavor = objects.Flavor(vcpus=vcpus, memory_mb=memory_mb, extra_specs=specs)
            spec = objects.RequestSpec(flavor=flavor, numa_topology=None)
            states = [host_manager.HostState(name, name, "c") for name in agents]
            weighed = weights.HostWeightHandler().get_weighed_objects([found()], states, spec)
            return {each.obj.host for each in weighed if each.weight == 1.0}

        yield weigh


@pytest.mark.parametrize(
    ("vcpus", "specs", "fitting"),
    [
        (2, {}, {"free", "half", "dedicated"}),
        (6, {}, {"free", "half"}),
        (12, {}, {"free"}),
        (13, {}, set()),
        (6, {"pinner__strategy": "numa-local"}, {"free"}),
        (3, {"pinner__strategy": "numa-local"}, {"free", "half"}),
        (7, {"pinner__strategy": "numa-local"}, set()),
        (12, {"hw__numa_nodes": "2"}, {"free"}),
        (2, {"pinner__strategy": "isolated"}, set()),
        (2, {"hw__cpu_policy": "dedicated"}, set()),
    ],
)
def test_hosts_with_room_weigh_more(weigh, vcpus, specs, fitting):
    assert weigh(vcpus, **specs) == fitting
