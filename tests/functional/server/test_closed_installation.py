"""`pinner serve` as root, installed where the API's user may not read: in root's home, for example."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.server.accounts import QUICK_SAMPLES, api_user
from support.server.pinner_server import PinnerServer

pytestmark = [
    pytest.mark.needs("root", "mounts"),
    pytest.mark.fault(62),
]
REPOSITORY = Path(__file__).parents[3]
MAIN = "import sys; sys.path[0] = {checkout!r}; from pinner.cli.main import main; sys.exit(main())"
PRIVATE = ("unshare", "--mount", "--propagation", "private", "sh", "-ec")
STDLIB = Path(os.__file__).parent


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the API's user may enter, with one that it may not enter."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        Path(name).chmod(0o711)
        Path(name, "closed").mkdir(mode=0o700)
        file = Path(name, "pinner.conf")
        file.write_text(
            f"[agent]\nstate_dir = {name}/state\n[libvirt]\nuri = qemu+unix:///system?socket={name}/no-libvirt\n"
            f"call_timeout = 1\n{QUICK_SAMPLES}{api_user().config}"
        )
        yield Path(name)


def move(source: Path, target: Path) -> str:
    """The shell commands that move a folder in private mounts."""
    return f"mkdir -p {target}; mount --bind {source} {target}; mount -t tmpfs none {source}; "


def checkout_moved(folder: Path) -> tuple[str, ...]:
    """The command of a pinner whose checkout and virtual environment are in the closed folder."""
    inside = folder / "closed" / "here"
    script = move(REPOSITORY, inside) + 'exec "$@"'
    return (*PRIVATE, script, "sh", f"{inside}/.venv/bin/python", "-c", MAIN.format(checkout=str(inside)))


def python_moved(folder: Path) -> tuple[str, ...]:
    """The command of a pinner whose Python is in the closed folder, too, with its standard library."""
    inside, python = folder / "closed" / "here", folder / "closed" / "python"
    (python / "bin").mkdir(parents=True)
    program = shutil.copy(Path(sys.executable).resolve(), python / "bin")
    packages = next((REPOSITORY / ".venv/lib").iterdir()) / "site-packages"
    path = f"{inside}:{inside / packages.relative_to(REPOSITORY)}"
    script = move(STDLIB, python / "lib" / STDLIB.name) + move(REPOSITORY, inside) + f'PYTHONPATH={path} exec "$@"'
    return (*PRIVATE, script, "sh", program, "-c", MAIN.format(checkout=str(inside)))


def without_mounts(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command without the right to mount, as in a container."""
    powerless = 'exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"'
    return tuple(part.replace('exec "$@"', powerless) for part in command)


@pytest.fixture(params=[checkout_moved, pytest.param(python_moved, marks=pytest.mark.slow("one more closed folder"))])
def command(request: pytest.FixtureRequest, folder: Path) -> tuple[str, ...]:
    return request.param(folder)


@pytest.fixture(params=["mounts", "no mounts"])
def server(request: pytest.FixtureRequest, command: tuple[str, ...], folder: Path) -> Iterator[PinnerServer]:
    log = folder / "log"
    command = command if request.param == "mounts" else without_mounts(command)
    command = [*command, "serve", "--config-file", str(folder / "pinner.conf"), "--port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, text=True)
    try:
        yield PinnerServer(process, log)
    finally:
        process.terminate()
        process.wait(60)


def test_requests_of_every_kind_are_answered(server: PinnerServer, folder: Path) -> None:
    (api,) = server.children()
    assert f"Uid:\t{api_user().uid}\t" in Path(f"/proc/{api}/status").read_text()
    with server.http as http:
        host = http.get("/v1/hosts").json()["items"][0]
        assert http.get("/openapi.json").status_code == 200
        assert http.get("/v1/strategies").json()["items"], "the entry points of the strategies are read"
        assert http.get("/v1/audit/verify").json()["ok"] is True, "the migrations have made the database"
        assert http.get("/v1/plans/none").status_code == 404
        assert http.get(f"/v1/hosts/{host}/guests").status_code == 503
        assert http.post(f"/v1/hosts/{host}/plans", json={"strategy": "shared-pool"}).status_code == 503
        assert http.post(f"/v1/hosts/{host}/plans", content=b"{").status_code in (400, 415)
        policy = {"mode": "observe", "request": {"strategy": "shared-pool"}}
        assert http.put(f"/v1/hosts/{host}/policy", json=policy).status_code == 200
        assert http.get(f"/v1/hosts/{host}/policy").json()["mode"] == "observe"
    assert "Traceback" not in server.log.read_text()


LOOK = """
import os, sys
sys.path[0] = {checkout!r}
from pinner.server import installation, privileges
account = privileges.numbered({user}, {user})
installation.keep_readable(account)
privileges.drop(account)
import pinner.api.app
held = [f"/proc/self/fd/{{fd}}" for fd in os.listdir("/proc/self/fd")]
above = [f"{{path}}/.." for path in held if os.path.isdir(path)]
for path in [{closed!r}, *above]:
    for reach in (os.listdir, lambda path: open(path + "/secret")):
        try:
            print(sorted(reach(path)))
        except OSError as error:
            print(type(error).__name__)
"""
"""Prints what a process that has given up root sees in the closed folder, also above the folders that it holds."""


@pytest.mark.parametrize("may_mount", [True, False])
def test_the_api_sees_nothing_else_in_the_closed_folder(command: tuple[str, ...], folder: Path, may_mount) -> None:
    secret = folder / "closed" / "secret"
    secret.touch()
    code = LOOK.format(checkout=str(folder / "closed/here"), user=api_user().uid, closed=str(folder / "closed"))
    words = [*(command if may_mount else without_mounts(command))[:-1], code]
    seen = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert set(seen) <= {"PermissionError", "FileNotFoundError", "NotADirectoryError", "['here']", "['here', 'python']"}
    assert ("PermissionError" in seen) or may_mount


def complaint(command: tuple[str, ...], folder: Path) -> str:
    """The one line on stderr of a server that ends at once with status 2."""
    done = subprocess.run(
        [*command, "serve", "--config-file", str(folder / "pinner.conf"), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if not re.match(r"20\d\d-", line)]  # without the log
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_files_that_only_root_may_read_are_named_with_the_remedy(folder: Path) -> None:
    """An installation that was made with umask 077."""
    copy = folder / "copy"
    copy.mkdir(mode=0o755)
    shutil.copytree(REPOSITORY / "pinner", copy / "pinner")
    (copy / "pinner" / "model").chmod(0o700)
    told = complaint((sys.executable, "-c", MAIN.format(checkout=str(copy))), folder)
    assert f"{copy}/pinner/model" in told
    assert "/opt/pinner" in told
