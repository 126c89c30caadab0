"""The hook for clouds older than Nova 22, called as Nova's HookManager calls it."""

import ast
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import stevedore.hook
from support.fakes.in_memory_service import InMemoryService
from support.nova.nova_listener import until
from support.server.access import InMemoryTokens
from support.server.real_service import answering
from support.values import sample_snapshot

from pinner.nova import hooks
from pinner.nova.delivery import handover, plain_http

GUEST = sample_snapshot().guests[0].uuid
MANAGER = SimpleNamespace(host="h1")
CONTEXT = SimpleNamespace(request_id="req-7", user_id="ann")


@pytest.fixture
def pinner():
    return InMemoryService()


@pytest.fixture
def config(tmp_path, monkeypatch):
    file = tmp_path / "hook.conf"

    def write(text):
        file.write_text(text)
        return str(file)

    monkeypatch.setattr(handover.send_started, "__defaults__", ("", str(file)))
    return write


def run_post(manager, result, args, kwargs):
    """Call the hooks as Nova's HookManager does after the wrapped function."""
    for extension in manager.extensions:
        post = getattr(extension.obj, "post", None)
        if post:
            post(result, *args, **kwargs)


@pytest.fixture
def manager():
    """A hook manager with the same arguments as Nova's: one object for each entry point of the name."""
    return stevedore.hook.HookManager("nova.hooks", "build_instance", invoke_on_load=True)


@pytest.mark.parametrize("host", ["h1", None])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_built_instance_is_reported(manager, pinner, config, host, by_name):
    instance = SimpleNamespace(uuid=GUEST, host=host)
    args = (MANAGER, CONTEXT) if by_name else (MANAGER, CONTEXT, instance, "image", "request spec")
    kwargs = {"instance": instance} if by_name else {"node": "n"}
    tokens = InMemoryTokens()
    with answering(pinner, tokens) as url:
        config(f"# pinner\nurl = {url}/\ntoken = {tokens.add('hook')}\n")
        run_post(manager, None, args, kwargs)
        until(lambda: pinner.events, 5)
    (event,) = pinner.events
    assert (event.guest, event.kind, event.event) == (GUEST, "started", "build_instance")
    assert event.source == "nova req-7, user ann"


@pytest.mark.parametrize(
    "text",
    [
        "url = unix:/no/such/socket\n",
        "url = unix:relative\n",
        "url = http://127.0.0.1:1\n",
        "url = file:///etc/passwd\n",
        "url = http://[\n",
        "nonsense\nurl=\n",
    ],
)
def test_errors_are_logged_and_not_raised(config, text, caplog):
    config(text)
    hooks.BuildInstance().post(None, MANAGER, CONTEXT, SimpleNamespace(uuid=GUEST, host="h1"))
    until(lambda: "cannot send the event to pinner" in caplog.text, 5)


def drips(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"a")
        time.sleep(0.01)


def redirects(connection):
    connection.sendall(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (drips, "no complete answer within 0.5 s"),
        (lambda _: time.sleep(60), "no complete answer within 0.5 s"),
        (
            lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 100_000),
            "more than 262144 bytes",
        ),
        (lambda connection: connection.sendall(b"\0\r\n\r\n"), "is not HTTP"),
        (lambda connection: connection.close(), "is not HTTP"),
        (redirects, "HTTP Error 307: Temporary Redirect"),
    ],
    ids=["drips", "silent", "endless", "nonsense", "closes", "redirects"],
)
def test_a_server_that_hangs_or_lies_holds_no_process(config, tmp_path, monkeypatch, kind, answer, why):
    """libvirt's hook script starts a process for each guest. A server that sends its answer slowly kept it for days."""
    monkeypatch.setattr(handover, "TIMEOUT", 0.5)
    path = str(tmp_path / "s")
    with closing(socket.socket(socket.AF_UNIX) if kind == "unix" else socket.socket()) as listening:
        listening.bind(path if kind == "unix" else ("127.0.0.1", 0))
        listening.listen()
        requests = []
        threading.Thread(target=serve, args=(listening, answer, requests), daemon=True).start()
        url = f"unix:{path}" if kind == "unix" else f"http://127.0.0.1:{listening.getsockname()[1]}"
        config(f"url = {url}\n")
        errors = []
        sending = threading.Thread(target=send, args=(errors,), daemon=True)
        sending.start()
        sending.join(60)
        assert not sending.is_alive()
    assert why in str(errors[0])
    assert len(requests) == 1


def serve(listening, answer, requests):
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                requests.append(connection.recv(65536))
                answer(connection)


def send(errors):
    try:
        handover.send_started(GUEST, "started", "test")
    except (OSError, ValueError) as error:
        errors.append(error)


def test_calls_without_an_instance_are_logged(caplog):
    hooks.BuildInstance().post(None)
    hooks.BuildInstance().post(None, MANAGER, CONTEXT, None)
    assert caplog.text.count("without an instance") == 2


def test_a_refused_event_is_one_line_on_stderr(pinner, config, capsys, monkeypatch):
    with answering(pinner, InMemoryTokens()) as url:
        file = config(f"url = {url}\ntoken = wrong\n")
        monkeypatch.setattr(sys, "argv", ["handover", GUEST, "started", file])
        assert handover.main() == 1
    assert (
        capsys.readouterr().err
        == f"guest {GUEST}, started: cannot send the event to pinner: HTTP Error 401: UNAUTHORIZED\n"
    )
    assert pinner.events == []


def test_without_a_settings_file_the_server_is_on_this_machine(tmp_path):
    assert handover.settings(str(tmp_path / "none")) == {"url": "unix:/run/pinner/api.sock", "token": ""}


@pytest.mark.parametrize("module", [plain_http, handover, hooks])
def test_the_modules_need_only_python_3_8_and_the_standard_library(module):
    tree = ast.parse(Path(module.__file__).read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "pinner"}
