"""The weigher in Nova's own scheduler code: its weight handler, HostState, RequestSpec, Flavor and NUMA objects."""

import json
import logging
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the eventlet that Nova imports
    pytest.importorskip("nova.scheduler.host_manager", reason="needs Nova itself (tox -e nova)")

import nova.conf
from nova import objects
from nova.scheduler import host_manager, weights

from pinner.nova import weigher, weigher_conf

PATH = "pinner.nova.weigher.PinnerWeigher"
CELL = "00000000-0000-4000-8000-00000000000c"
BOUND, OVERHEAD = 0.3, 1.5
objects.register_all()


def room(host: str, free: list[int], strategy: str = "shared-pool", memory_kib: int = 1 << 26) -> dict:
    """The answer of GET /v1/hosts/{host}/capacity with so many free vCPUs on each node."""
    nodes = [{"node": n, "cpus": "0", "free_vcpus": each, "memory_kib": memory_kib} for n, each in enumerate(free)]
    of = {"free_vcpus": sum(free), "nodes": nodes, "why": "", "guests": {}}
    strategies = [
        {"strategy": "numa-local", "within_node": True, **of},
        {"strategy": "shared-pool", "within_node": False, **of},
        {"strategy": "isolated", "within_node": True, "free_vcpus": 0, "nodes": [], "why": "no isolated CPU is free"},
    ]
    return {"host": host, "taken_at": "2026-11-21T12:00:00Z", "mode": "enforce", "strategy": strategy,
            "strategies": strategies}  # fmt: skip


@contextmanager
def serving(rooms: dict[str, dict], delay: float = 0.0):
    """One server that answers for these hosts, at a path for each of them."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(delay)
            found = rooms.get(self.path.split("/")[3])
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def configured(tmp_path, monkeypatch):
    def configure(url: str, **more: object) -> weigher.PinnerWeigher:
        """The weigher as Nova's handler finds it by the path in weight_classes."""
        file = tmp_path / "weigher.conf"
        lines = [f"{name} = {value}" for name, value in {"server": url, "timeout": BOUND, **more}.items()]
        file.write_text("\n".join(["[weigher]", *lines, ""]))
        monkeypatch.setattr(weigher_conf, "CONFIG", str(file))
        (found,) = weights.HostWeightHandler().get_matching_classes([PATH])
        return found()

    return configure


def states(*names: str, used: int = 0) -> list[host_manager.HostState]:
    found = [host_manager.HostState(name, name, CELL) for name in names]
    for state in found:
        state.vcpus_used = used
    return found


def spec(vcpus: int, memory_mb: int = 512, image: dict | None = None, numa=None, **extra_specs: str):
    specs = {name.replace("__", ":"): value for name, value in extra_specs.items()}
    flavor = objects.Flavor(vcpus=vcpus, memory_mb=memory_mb, root_gb=1, ephemeral_gb=0, swap=0, extra_specs=specs)
    properties = objects.ImageMetaProps(**(image or {}))
    return objects.RequestSpec(
        flavor=flavor, image=objects.ImageMeta(properties=properties), numa_topology=numa, num_instances=1
    )


def numa(*cells: int) -> objects.InstanceNUMATopology:
    first, made = 0, []
    for number, size in enumerate(cells):
        made.append(objects.InstanceNUMACell(
            id=number, cpuset=set(range(first, first + size)), pcpuset=set(), memory=512, pagesize=None,
        ))  # fmt: skip
        first += size
    return objects.InstanceNUMATopology(cells=made)


def weigh(found: weigher.PinnerWeigher, hosts: list[host_manager.HostState], request) -> dict[str, float]:
    weighed = weights.HostWeightHandler().get_weighed_objects([found], hosts, request)
    return {each.obj.host: each.weight for each in weighed}


@pytest.mark.parametrize(
    ("request_spec", "fitting"),
    [
        (spec(4), {"even", "large"}),
        (spec(6), {"even", "large"}),
        (spec(8), {"large"}),
        (spec(4, pinner__strategy="numa-local"), {"large"}),
        (spec(4, pinner__strategy="unheard-of"), {"even", "large"}),
        (spec(1, pinner__strategy="isolated"), set()),
        (spec(3, 1 << 20, pinner__strategy="numa-local"), set()),
        (spec(6, hw__numa_nodes="2"), {"even"}),
        (spec(6, numa=numa(3, 3)), {"even"}),
        (spec(6, numa=numa(5, 1)), {"large"}),
        (spec(6, numa=numa(2, 2, 2)), set()),
        (spec(6, hw__numa_nodes="0x2"), {"even", "large"}),
        (spec(2, pinner__excluded="True"), set()),
        (spec(2, hw__cpu_policy="dedicated"), set()),
        (spec(2, hw__cpu_policy="mixed"), set()),
        (spec(2, image={"hw_cpu_policy": "dedicated"}), set()),
        (spec(2, resources__PCPU="2"), set()),
        (spec(2, resources__PCPUS="2"), set()),
        (spec(4, resources__PCPU="0"), {"even", "large"}),
    ],
)
def test_hosts_where_the_flavor_fits_are_preferred(configured, request_spec, fitting):
    rooms = {"even": room("even", [3, 3]), "large": room("large", [7, 1]), "full": room("full", [0, 0])}
    with serving(rooms) as url:
        found = weigh(configured(url, timeout=20), states("full", "even", "large", "unknown"), request_spec)
    assert found == {name: float(name in fitting) for name in ("full", "even", "large", "unknown")}


def test_the_host_manager_of_nova_weighs_with_it_and_all_of_its_own_weighers(configured, monkeypatch):
    conf = nova.conf.CONF
    conf.set_override("weight_classes", ["nova.scheduler.weights.all_weighers", PATH], group="filter_scheduler")
    try:
        with serving({"a": room("a", [0, 0]), "b": room("b", [4, 4])}) as url:
            configured(url, timeout=20)
            # These read Nova's databases. Weighing needs none.
            for reader in ("refresh_cells_caches", "_init_aggregates", "_init_instance_info"):
                monkeypatch.setattr(host_manager.HostManager, reader, lambda *_: None)
            manager = host_manager.HostManager()
            assert any(isinstance(each, weigher.PinnerWeigher) for each in manager.weighers)
            assert len(manager.weighers) > 5
            hosts = states("a", "b")
            for state in hosts:
                state.metrics, state.hypervisor_version = objects.MonitorMetricList(objects=[]), 1
                state.cpu_allocation_ratio = 1.0
            request = spec(4)
            request.instance_group = None
            request.pci_requests = objects.InstancePCIRequests(requests=[])
            request.instance_uuid = CELL
            found = {each.obj.host: each.weight for each in manager.get_weighed_hosts(hosts, request)}
    finally:
        conf.clear_override("weight_classes", group="filter_scheduler")
    assert found["b"] - found["a"] == 1.0


def test_an_aggregate_overrides_the_multiplier(configured):
    with serving({"a": room("a", [4]), "b": room("b", [4])}) as url:
        hosts = states("a", "b")
        hosts[0].aggregates = [objects.Aggregate(metadata={"pinner_weight_multiplier": "5"}, hosts=["a"])]
        assert weigh(configured(url, timeout=20, multiplier=2), hosts, spec(1)) == {"a": 5.0, "b": 2.0}


def test_guests_that_nova_placed_since_the_answer_take_room(configured):
    """One request for several guests weighs the hosts for each of them; Nova counts the earlier ones as used."""
    with serving({"a": room("a", [4]), "b": room("b", [8])}) as url:
        found, hosts = configured(url, timeout=20, refresh=60), states("a", "b", used=10)
        assert weigh(found, hosts, spec(4)) == {"a": 1.0, "b": 1.0}
        hosts[0].vcpus_used += 4
        assert weigh(found, hosts, spec(4)) == {"a": 0.0, "b": 1.0}


def timed(found: weigher.PinnerWeigher, hosts: list[host_manager.HostState]) -> tuple[set[float], float]:
    began = time.monotonic()
    values = set(weigh(found, hosts, spec(4)).values())
    return values, time.monotonic() - began


HOSTS = [f"h{number}" for number in range(200)]


def test_pinner_that_is_down_or_slow_delays_no_scheduling_beyond_the_bound(configured):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = f"http://127.0.0.1:{closed.getsockname()[1]}"
    for url in (down, "http://192.0.2.1:8077"):
        values, seconds = timed(configured(url), states(*HOSTS))
        assert values == {0.0}
        assert seconds < BOUND + OVERHEAD
    with serving({}, delay=3) as url:
        values, seconds = timed(configured(url), states(*HOSTS))
        assert (values, seconds < BOUND + OVERHEAD) == ({0.0}, True)


def test_pinner_that_lies_weighs_nothing(configured):
    lies = {"a": room("b", [8]), "b": {"host": "b", "strategies": [[[]]]}, "c": {"host": "c"}, "d": [1]}
    with serving(lies) as url:
        assert set(weigh(configured(url, timeout=20), states("a", "b", "c", "d"), spec(1)).values()) == {0.0}


def test_answers_of_before_serve_at_once_while_pinner_is_slow(configured):
    rooms = {name: room(name, [8]) for name in HOSTS}
    with serving(rooms) as url:
        found = configured(url, timeout=30, refresh=0)
        assert set(weigh(found, states(*HOSTS), spec(4)).values()) == {1.0}
    values, seconds = timed(found, states(*HOSTS))
    assert values == {1.0}
    assert seconds < OVERHEAD


@pytest.mark.parametrize("text", ["", "[weigher]\nserver = none\n", None])
def test_wrong_settings_weigh_nothing_and_are_logged(tmp_path, monkeypatch, caplog, text):
    file = tmp_path / "weigher.conf"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(weigher_conf, "CONFIG", str(file))
    with caplog.at_level(logging.ERROR):
        made = weigher.PinnerWeigher()
    assert str(file) in caplog.text
    assert set(weigh(made, states("a", "b"), spec(1)).values()) == {0.0}


def test_a_request_without_a_flavor_weighs_nothing(configured):
    with serving({"a": room("a", [4])}) as url:
        found = configured(url)
        assert set(weigh(found, states("a", "b"), objects.RequestSpec()).values()) == {0.0}


def test_the_bound_holds_under_eventlet_too(tmp_path):
    """Nova up to 2025.2 patches the standard library with eventlet; then the threads are green."""
    pytest.importorskip("eventlet")
    with serving({}, delay=3) as url:
        (tmp_path / "weigher.conf").write_text(f"[weigher]\nserver = {url}\ntimeout = {BOUND}\n")
        script = Path(__file__).with_name("weigh_green.py")
        command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "weigher.conf")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["weights"] == [0.0]
    assert answer["seconds"] < BOUND + OVERHEAD
