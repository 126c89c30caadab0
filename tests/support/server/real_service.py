"""The real service with a real database and an in-memory host (support.fakes.hosted_agent)."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, process, snapshot
from support.server.access import InMemoryTokens, make_control
from support.values import EVIL

from pinner import conf, wiring
from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.server.sockets import listen_tcp
from pinner.service.local import LocalService
from pinner.service.protocol import Service
from pinner.store.repositories import open_store


@contextmanager
def real_service(folder: Path, url: str = "") -> Iterator[tuple[LocalService, HostedAgent]]:
    """The service and agent of compute1: CPUs 0-7 on two nodes, 7 offline; a guest, process and IRQ are named EVIL.

    The database is the one at ``url``; empty: a file in ``folder``.
    """
    online = cpus("0-6")
    host = snapshot(
        plain(8, 2, offline="7"),
        [replace(guest(1, 2, online, iothreads=1), name=EVIL)],
        [process(90, 60.0, "0-6", "0-6", name=EVIL), process(1000, 0.5, "0-6", name="idle")],
        irqs=DeviceIrqs((DeviceIrq(24, EVIL, "0000:3b:00.0", online),)),
        rps=(),
        rings=(),
        governors=(),
        epp=(),
        resume_latency=(),
        coalescing=(),
        irqbalance=(),
        queues=(),
        guest_rps=(),
        guest_rfs=(),
        guest_irqs=(),
        guest_sysctls=(),
        cpu_weights={},
        sysctls={"vm.swappiness": 60},
    )
    agent = HostedAgent(folder / "agent", host, wiring.now)
    # A request that only the host can refuse ("persist" of a transient guest) would be wrong for schemathesis.
    agent.host.definitions[host.guests[0].uuid] = "<cputune/>"
    with closing(agent.journal), ExitStack() as undo:
        url = url or f"sqlite:///{folder}/pinner.sqlite"
        yield wiring.service_parts(conf.load([]), {"compute1": agent}, url, undo).service, agent


@contextmanager
def answering(pinner: Service, tokens: InMemoryTokens, port: int = 0) -> Iterator[str]:
    """The URL of a REST server over TCP for the service ``pinner``."""
    with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/keys.sqlite") as store:
        keys = store.idempotency_keys
        app = create_app(pinner, control=make_control(tokens), max_body_bytes=65536, idempotency_keys=keys)
        server = serve(app, [listen_tcp("127.0.0.1", port)])
        try:
            yield server.url
        finally:
            server.stop()
