"""`pinner serve` as a user starts it: a process of its own."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from support.pinner_server import PinnerServer

PINNER = Path(sys.executable).with_name("pinner")
REPOSITORY = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is parted into agent and API")


Start = Callable[..., PinnerServer]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the API's user can pass, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(
        *words: str, config: str = "", own_state: bool = True, command: tuple[str, ...] = (str(PINNER),)
    ) -> PinnerServer:
        file = folder / "pinner.conf"
        state = f"state_dir = {folder}/state\n" if own_state else ""
        file.write_text(f"[agent]\n{state}[libvirt]\nuri = qemu+unix:///system?socket={folder}/no-libvirt\n{config}")
        log = folder / "log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [*command, "serve", "--config-file", str(file), "--port", "0", *words],
                stdout=out,
                stderr=out,
                text=True,
            )
        running.append(process)
        return PinnerServer(process, log)

    yield begin
    for process in running:
        if process.poll() is None:
            process.terminate()
        process.wait(20)


def uids(pid: int) -> set[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return set(re.search(r"^Uid:\s+(.*)$", status, re.MULTILINE)[1].split())  # type: ignore[index]


@needs_root
def test_the_api_is_not_root_and_the_agent_is(start: Start, folder: Path) -> None:
    served = start()
    (api,) = served.children()
    assert uids(api) == {"65534"}
    assert uids(served.process.pid) == {"0"}
    assert httpx.get(f"{served.url}/healthcheck").status_code == 200
    with pytest.raises(PermissionError):
        _as_nobody(folder / "state" / "agent" / "journal.sqlite")


def _as_nobody(path: Path) -> None:
    """Open a file as the API's user would."""
    code = f"import os; os.setuid(65534); open({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "PermissionError" in done.stderr:
        raise PermissionError(done.stderr)


@needs_root
def test_without_a_configured_state_the_api_uses_roots(start: Start) -> None:
    """Not that of the user which it has become. The machine's own is kept out of it."""
    apart = ("unshare", "-m", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /var/lib && exec "$@"', "sh")
    served = start(own_state=False, command=(*apart, str(PINNER)))
    assert httpx.get(f"{served.url}/v1/audit/verify").json()["ok"] is True
    state = Path(f"/proc/{served.process.pid}/root/var/lib/pinner")
    assert (state / "api/pinner.sqlite").stat().st_uid == 65534
    assert (state / "agent/journal.sqlite").stat().st_uid == 0


def test_the_way_to_the_host_is_open(start: Start) -> None:
    """No libvirt runs at that address, and it is the agent that finds out."""
    served = start()
    host = httpx.get(f"{served.url}/v1/hosts").json()["items"][0]
    answer = httpx.get(f"{served.url}/v1/hosts/{host}/topology")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "host_unreachable"
    assert "no-libvirt" in answer.json()["error"]["message"]


@needs_root
@pytest.mark.parametrize("half", ["agent", "API"])
def test_a_signal_that_any_thread_gets_ends_it(start: Start, half: str) -> None:
    """The kernel gives a process's signal to whichever thread it likes."""
    served = start()
    (api,) = served.children()
    pid = served.process.pid if half == "agent" else api
    other = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    assert other != pid
    assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0
    served.process.wait(20)


def test_it_serves_again_after_an_end(start: Start) -> None:
    """The second start finds the first one's files, and its leavings do not disturb it."""
    served = start()
    served.process.terminate()
    assert served.process.wait(20) == 0
    again = start()
    assert httpx.get(f"{again.url}/v1/audit/verify").json()["ok"] is True


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_halves(start: Start, kind: signal.Signals) -> None:
    served = start()
    halves = served.children()
    served.process.send_signal(kind)
    assert served.process.wait(20) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in halves)


@needs_root
def test_the_api_goes_with_a_killed_agent(start: Start) -> None:
    served = start()
    (api,) = served.children()
    served.process.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{api}").exists() and "Z" not in Path(f"/proc/{api}/stat").read_text().rpartition(")")[2]:
        assert time.monotonic() < deadline, "the API outlived its agent"
        time.sleep(0.05)


@needs_root
def test_the_agent_goes_with_a_killed_api(start: Start) -> None:
    served = start()
    (api,) = served.children()
    os.kill(api, signal.SIGKILL)
    assert served.process.wait(20) != 0


@needs_root
def test_an_installation_in_a_closed_folder_serves(start: Start, folder: Path) -> None:
    """A checkout in root's home cannot be read once root is given up."""
    closed = folder / "closed"
    inside = closed / "here"
    inside.mkdir(parents=True)
    closed.chmod(0o700)
    script = f'mount --bind {REPOSITORY} {inside}; mount -t tmpfs none {REPOSITORY}; shift 0; exec "$0" "$@"'
    served = start(
        command=("unshare", "--mount", "--propagation", "private", "sh", "-ec", script, f"{inside}/.venv/bin/python",
                 "-c", f"import sys; sys.path[0] = '{inside}'; from pinner.cli.main import main; sys.exit(main())"),
    )  # fmt: skip
    (api,) = served.children()
    assert uids(api) == {"65534"}
    host = httpx.get(f"{served.url}/v1/hosts").json()["items"][0]
    assert httpx.get(f"{served.url}/openapi.json").status_code == 200
    assert httpx.get(f"{served.url}/v1/hosts/{host}/guests").status_code == 503
    assert httpx.get(f"{served.url}/v1/strategies").status_code == 200
    assert httpx.get(f"{served.url}/v1/plans/none").status_code == 404
    assert httpx.post(f"{served.url}/v1/hosts/{host}/plans", content=b"{").status_code in (400, 415)


@pytest.mark.parametrize(
    ("config", "words", "complaint"),
    [
        ("", ("--bind", "0.0.0.0"), "bind: '0.0.0.0'"),
        ("[api]\nuser = root\n", (), "user: 'root'"),
        ("[api]\nuser = no-such-user\n", (), "user: 'no-such-user'"),
        ("[api]\ntoken_file = /no/such/file\n", (), "token_file: '/no/such/file'"),
        ("[database]\nconnection = nonsense\n", (), "connection"),
    ],
)
@needs_root
def test_what_cannot_be_served_is_one_line(folder: Path, config: str, words: tuple[str, ...], complaint: str) -> None:
    file = folder / "pinner.conf"
    file.write_text(f"[agent]\nstate_dir = {folder}/state\n{config}")
    done = subprocess.run(
        [PINNER, "serve", "--config-file", file, "--port", "0", *words], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
