"""pinner-manage token: the token is printed once, and only its hash is kept."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from pinner.cli.manage.manage import main
from pinner.model.page import PageRequest
from pinner.model.run.token import ROLES, parse_token
from pinner.store.repositories import open_store


@pytest.fixture
def manage(tmp_path, capsys):
    """Runs the command with a database of its own: manage("token", "list") -> (status, out, err)."""
    file = tmp_path / "pinner.conf"
    file.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/pinner.sqlite\n")

    def run(*argv):
        capsys.readouterr()
        status = main([*argv, "--config-file", str(file)])
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize("role", ROLES)
def test_a_token_is_made_listed_and_revoked(manage, role):
    status, out, err = manage("token", "create", "deploy", "--role", role, "--host", "h1", "--expires", "90d")
    token = parse_token(out.strip()).id
    assert (status, err) == (0, f"token {token}: keep it now, it is not shown again\n")
    status, listed, _ = manage("token", "list", "--json")
    (shown,) = json.loads(listed)["items"]
    assert (shown["id"], shown["name"], shown["role"], shown["host"], shown["state"]) == (
        token,
        "deploy",
        role,
        "h1",
        "active",
    )
    expires = datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=89, hours=23) < expires <= timedelta(days=90)
    assert out.strip().rpartition("_")[2] not in listed
    assert "hash" not in shown
    assert manage("token", "revoke", token, "--yes") == (0, f"token {token} of deploy is revoked\n", "")
    status, listed, _ = manage("token", "list")
    assert status == 0
    assert "revoked" in listed
    assert token in listed


def test_the_database_has_no_secret(manage, tmp_path):
    _, out, _ = manage("token", "create", "deploy", "--role", "admin")
    with closing(sqlite3.connect(tmp_path / "pinner.sqlite")) as connection:
        dump = "\n".join(connection.iterdump())
    assert parse_token(out.strip()).hash in dump
    assert out.strip().rpartition("_")[2] not in dump


def test_making_and_revoking_name_the_person(manage, tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "ann")
    _, out, _ = manage("token", "create", "deploy", "--role", "admin")
    manage("token", "revoke", parse_token(out.strip()).id, "--yes")
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store:
        records = store.audit.list(None, None, None, PageRequest(9)).items
    assert [(each.action, each.actor) for each in records] == [("token.revoke", "ann"), ("token.create", "ann")]


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["create"], "NAME"),
        (["create", "a"], "--role"),
        (["create", "a", "--role", "root"], "'root'"),
        (["create", "policy", "--role", "reader"], "pinner's own actors"),
        (["create", "a b", "--role", "reader"], "'a b'"),
        (["create", "a", "--role", "reader", "--host", ""], "--host"),
        (["create", "a", "--role", "reader", "--host", "a\nb"], "printable"),
        (["create", "a", "--role", "reader", "--expires", "soon"], "90d"),
        (["create", "a", "--role", "reader", "--expires", "0d"], "90d"),
        (["create", "a", "--role", "reader", "--expires", "999999w"], "a time before 9999-12-30"),
        (["create", "a", "--role", "reader", "--expires", "9999-12-31T12:00:00+00:00"], "a time before 9999-12-30"),
        (["create", "a", "--role", "reader", "--expires", "2020-01-01"], "in the future"),
        (["create", "a", "--role", "reader", "--expires", "\u06639d"], "90d"),
        (["revoke"], "ID"),
        (["revoke", "none", "--yes"], "there is no 'none'"),
        (["nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_status_2(manage, argv, named):
    status, out, err = manage("token", *argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert named in err
    assert json.loads(manage("token", "list", "--json")[1]) == {"items": [], "next": ""}


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_every_command_shows_its_exit_status_and_an_example(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["token", command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "exit status:\n  0    done" in out
    assert f"examples:\n  pinner-manage token {command}" in out
    assert max(map(len, out.splitlines())) <= 79
