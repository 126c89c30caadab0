"""Commands that change something: they ask at a terminal, and without one they refuse unless --yes is given."""

import io

import pytest

from pinner.cli.manage import manage
from pinner.model.policy import Policy

GUEST = "6a5b7a0e-0000-4000-8000-000000000001"

CHANGING = [
    "apply",
    "apply plan-1",
    "rollback run-1",
    "policy set --mode enforce",
    "policy delete",
    f"guest pin-off {GUEST}",
    f"guest pin-on {GUEST}",
]
MANAGING = [
    "db purge",
    "db set-aside",
    "token revoke 0f3a5c7e9b1d",
    "remove-host --root ROOT",
]
REFUSED = "the command asks before it changes anything, and there is no terminal to answer at: add --yes"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def answering(monkeypatch):
    """Makes standard input and error a terminal, with a user who answers; returns what the terminal shows."""

    def answer(word):
        shown = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(word))
        monkeypatch.setattr("sys.stderr", shown)
        return shown

    return answer


@pytest.mark.parametrize("command", CHANGING)
def test_without_a_terminal_and_yes_a_change_is_refused(applied, cli, command):
    before = applied.state()
    result = cli(*command.split())
    assert (result.status, result.out) == (2, "")
    assert result.err == f"pinner: error: {REFUSED}\n"
    assert applied.state() == before


def test_a_refused_apply_makes_no_plan(pinner, cli):
    cli("apply")
    assert not pinner.stored


@pytest.mark.parametrize("closed", ["stdin", "stderr"])
def test_half_a_terminal_is_no_terminal(applied, cli, answering, monkeypatch, closed):
    answering("y\n")
    monkeypatch.setattr(f"sys.{closed}", None if closed == "stdin" else io.StringIO())
    assert cli("policy", "delete").status == 2
    assert applied.policies


@pytest.mark.parametrize("command", CHANGING)
@pytest.mark.parametrize("word", ["n\n", "\n", "", "nonsense\n"])
def test_no_changes_nothing_and_is_status_0(applied, cli, answering, command, word):
    applied.policies["h1"] = Policy(mode="observe")
    runs, before = dict(applied.run_list), (dict(applied.policies), dict(applied.excluded))
    plan = next(iter(applied.stored))
    shown = answering(word)
    assert cli(*command.replace("plan-1", plan).split()).status == 0
    assert shown.getvalue().endswith("[y/N] nothing was changed\n")
    assert (applied.run_list, (applied.policies, applied.excluded)) == (runs, before)


@pytest.mark.parametrize("command", CHANGING[3:])
def test_yes_at_the_terminal_makes_the_change(applied, cli, answering, command):
    before = applied.state()
    answering("y\n")
    assert cli(*command.split()).status == 0
    assert applied.state() != before


@pytest.mark.parametrize("command", MANAGING)
@pytest.mark.parametrize("word", [None, "n\n"])
def test_pinner_manage_asks_before_it_deletes(tmp_path, capsys, answering, monkeypatch, command, word):
    config, database = tmp_path / "pinner.conf", tmp_path / "pinner.sqlite"
    config.write_text(f"[database]\nconnection = sqlite:///{database}\n")
    assert manage.main(["db", "upgrade", "--config-file", str(config)]) == 0
    before, files = database.read_bytes(), {path.name for path in tmp_path.iterdir()}
    capsys.readouterr()
    argv = command.replace("ROOT", str(tmp_path)).split()
    if not command.startswith("remove-host"):
        argv += ["--config-file", str(config)]
    shown = answering(word) if word else None
    assert manage.main(argv) == (0 if word else 2)
    if shown:
        assert shown.getvalue().endswith("[y/N] nothing was changed\n")
    else:
        assert capsys.readouterr() == ("", f"pinner-manage: error: {REFUSED}\n")
    assert database.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == files


def test_a_dry_run_needs_no_answer(tmp_path, capsys):
    config = tmp_path / "pinner.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/pinner.sqlite\n")
    assert manage.main(["db", "purge", "--dry-run", "--config-file", str(config)]) == 0
    assert manage.main(["remove-host", "--dry-run", "--root", str(tmp_path)]) == 0


def test_a_hostile_name_in_the_question_is_escaped(pinner, cli, answering):
    shown = answering("n\n")
    assert cli("guest", "pin-off", "a\n\x1b[2J").status == 0
    assert "\x1b" not in shown.getvalue()
    assert shown.getvalue().count("\n") == 1
