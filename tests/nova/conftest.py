"""A real broker, and Nova's own code that emits notifications through it."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import private_rabbit
import pytest

REQUEST = "req-00000000-0000-4000-8000-{:012d}"


@pytest.fixture(scope="session")
def rabbit(tmp_path_factory):
    # "nova" alone would import this folder, which has the same name.
    pytest.importorskip("nova.conf", reason="needs Nova itself (tox -e nova)")
    if why := private_rabbit.missing():
        pytest.skip(why)
    with private_rabbit.private_rabbit(tmp_path_factory.mktemp("rabbit") / "r") as rabbit:
        yield rabbit


@pytest.fixture(scope="session")
def emit(tmp_path_factory, rabbit):
    """Emits one notification about a guest, as the publishing host does."""
    folder = tmp_path_factory.mktemp("nova")
    config = folder / "nova.conf"
    config.write_text(
        f"[DEFAULT]\ntransport_url = {rabbit.url}\n[notifications]\nnotification_format = versioned\n"
        "[oslo_messaging_notifications]\ndriver = messagingv2\n"
    )
    emitter = Path(__file__).parent / "events/emit.py"
    command = [sys.executable, "-W", "ignore", str(emitter), str(config)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout.readline() == "ready\n", (folder / "log").read_text()

        numbers = itertools.count(7)

        def emit(action, phase, *, publisher, host, uuid, **more):
            """``more``: the request (each notification has its own by default), the flavor's name and extra specs, and
            how many seconds ago the notification was sent."""
            notification = {"action": action, "phase": phase, "publisher": publisher, "host": host, "uuid": uuid}
            notification |= {"request": REQUEST.format(next(numbers))} | more
            print(json.dumps(notification), file=process.stdin, flush=True)
            assert process.stdout.readline() == "ok\n", (folder / "log").read_text()

        yield emit
        process.stdin.close()


@pytest.fixture(scope="session")
def defined(tmp_path_factory):
    """Asks Nova's own code for the definition of a guest, on a host of nodes 0-7 and 8-15 with so many threads a
    core: see define.py."""
    pytest.importorskip("nova.conf", reason="needs Nova itself (tox -e nova)")
    log = tmp_path_factory.mktemp("define") / "log"
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "definitions/define.py")]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):

        def defined(vcpus, extra_specs, properties, shared, dedicated, threads=1):
            host = {"shared": shared, "dedicated": dedicated, "threads": threads}
            asked = {"vcpus": vcpus, "extra_specs": extra_specs, "properties": properties}
            print(json.dumps({**asked, **host}), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline() or pytest.fail(log.read_text()))

        yield defined
        process.stdin.close()
