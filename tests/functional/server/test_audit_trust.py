"""The user of the API against the audit trail of a real `pinner serve`: what this user can reach, and what shows."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.server import warm
from support.server.accounts import api_config, api_user
from support.server.pinner_server import PinnerServer

pytestmark = pytest.mark.needs("root")
PYTHON = "/usr/bin/python3"
"""An interpreter that every user may run."""

CALL = """
import json, socket, sys
from multiprocessing.connection import Connection
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
with Connection(peer.detach()) as agent:
    agent.send_bytes(sys.argv[2].encode())
    print(agent.recv_bytes().decode())
"""
SQL = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
    connection.execute(f"DROP TRIGGER {name}")
for statement in sys.argv[2:]:
    connection.execute(statement)
connection.commit()
connection.close()
"""


MORE = pytest.mark.slow("one more change of the trail")


@dataclass
class Server:
    """A running server and the user of its API."""

    running: PinnerServer
    state: Path
    user: int

    def get(self, path: str) -> Any:
        answer = self.running.http.get(f"/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def as_user(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the API's user."""
        return subprocess.run(
            command,
            user=self.user,
            group=self.user,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    def sql(self, *statements: str) -> None:
        done = self.as_user(PYTHON, "-c", SQL, str(self.state / "api" / "pinner.sqlite"), *statements)
        assert done.returncode == 0, done.stderr

    def findings(self) -> dict[str, str]:
        """The messages of the verification by their kind."""
        return {finding["kind"]: finding["message"] for finding in self.get("/audit/verify")["findings"]}


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        config = folder / "pinner.conf"
        config.write_text(
            f"[agent]\nstate_dir = {folder}/state\n[host]\nname = here\n{api_config()}"
            f"[libvirt]\nuri = qemu+unix:///system?socket={folder}/none\ncall_timeout = 1\n"
        )
        process = warm.start("serve", "--config-file", config, output=folder / "log")
        try:
            made = Server(PinnerServer(process, folder / "log"), folder / "state", api_user().uid)
            for strategy in ("shared-pool", "numa-local", "shared-pool"):
                policy = {"mode": "observe", "request": {"strategy": strategy}}
                assert made.running.http.put("/v1/hosts/here/policy", json=policy).status_code == 200
            made.get("/audit/anchor")
            yield made
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DROP TABLE audit", "changed"),
        pytest.param("DELETE FROM audit", "cut", marks=MORE),
        pytest.param("DELETE FROM audit WHERE seq >= 3", "cut", marks=MORE),
        ("UPDATE audit SET actor = 'eve'", "changed"),
    ],
)
def test_the_apis_user_changes_the_trail(server, statement, kind):
    assert server.get("/audit/verify")["result"] == "intact"
    server.sql(statement)
    assert kind in server.findings()


@pytest.mark.fault(46)
def test_the_apis_user_calls_the_agent_alone(server):
    done = server.as_user(
        PYTHON, "-c", CALL, str(server.state / "agent.sock"), json.dumps({"call": "rollback", "run": RUN})
    )
    assert "not_found" in done.stdout, done.stderr
    assert "run.rollback run-66 of run-0: refused: not_found" in server.findings()["unreported"]


RUN = {
    "id": "run-66",
    "kind": "rollback",
    "host": "here",
    "plan": "plan-0",
    "actor": "alice",
    "origin": "cli",
    "state": "running",
    "started_at": "2026-11-22T10:00:00Z",
    "undoes": "run-0",
}


@pytest.mark.fault(46)
def test_the_apis_user_cannot_reach_the_agents_trail(server):
    for name in ("journal.sqlite", "signing.key"):
        file = server.state / "agent" / name
        assert file.exists()
        assert server.as_user("cat", str(file)).returncode != 0
    assert (server.state / "agent" / "signing.key").stat().st_mode & 0o777 == 0o600


def test_export_anchor_and_key_convince_without_the_server(server, tmp_path):
    def pinner(*arguments: str) -> subprocess.CompletedProcess[str]:
        return warm.run(*arguments, code=f"import os; os.chdir({str(tmp_path)!r}); {warm.PINNER}")

    url = ("--url", server.running.url)
    (tmp_path / "anchor.json").write_text(pinner("audit", "anchor", *url).stdout)
    (tmp_path / "agent.pem").write_text(pinner("audit", "key", *url).stdout)
    assert pinner("audit", "export", "trail.jsonl", *url).returncode == 0
    verified = pinner(
        "audit", "verify", "--file", "trail.jsonl", "--public-key", "agent.pem", "--anchor", "anchor.json"
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert verified.stdout.startswith("intact: 3 records")
    openssl = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", "agent.pem", "-noout", "-text"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ED25519" in openssl.stdout.upper()
    lines = (tmp_path / "trail.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "trail.jsonl").write_text("".join(lines[:-1]))
    cut = pinner("audit", "verify", "--file", "trail.jsonl", "--public-key", "agent.pem")
    assert (cut.returncode, cut.stdout.partition(":")[0]) == (1, "cut")
    server.sql("DELETE FROM audit")
    assert pinner("audit", "verify", "--anchor", "anchor.json", *url).returncode == 1
    assert pinner("audit", "export", "trail.jsonl", *url).returncode == 2
