import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pinner.cli.manage.manage import main
from pinner.store.database.schema import NEWEST

PROGRAM = Path(sys.executable).with_name("pinner-manage")


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "pinner.conf"
    file.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/db/pinner.sqlite\n")
    return str(file)


def tables(tmp_path):
    with closing(sqlite3.connect(tmp_path / "db/pinner.sqlite")) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@pytest.mark.usefixtures("migrations")
def test_an_upgrade_of_an_empty_database(config, tmp_path, capsys):
    shown = []
    for command in ("current", "upgrade", "upgrade"):
        assert main(["db", command, "--config-file", config]) == 0
        shown.append(capsys.readouterr().out.strip().rpartition(": ")[2])
    newest = f"revision {NEWEST}, newest {NEWEST}"
    assert shown == [f"revision base, newest {NEWEST}", newest, newest]
    assert {"snapshots", "plans", "runs", "entries", "audit"} <= tables(tmp_path)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["db"],
        ["nonsense"],
        ["db", "nonsense"],
        ["db", "current", "extra"],
        ["db", "current", "--config-file", "/does/not/exist"],
    ],
)
def test_bad_input_is_one_line_and_status_2(argv, config, capsys):
    assert main([config if word == "CONFIG" else word for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pinner-manage: error: ")
    assert err.count("\n") == 1


def test_an_internal_error_is_one_line_that_names_debug(config, capsys, monkeypatch):
    def fail(_):
        raise ZeroDivisionError("a fault of our own")

    monkeypatch.setattr("pinner.store.database.schema.current", fail)
    command = ["db", "current", "--config-file", config]
    assert main(command) == 1
    line = "pinner-manage: error: internal: ZeroDivisionError: a fault of our own"
    assert capsys.readouterr().err == f"{line} (--debug shows the traceback)\n"
    assert main([*command, "--debug"]) == 1
    traceback = capsys.readouterr().err
    assert "Traceback" in traceback
    assert traceback.endswith(f"{line}\n")


def test_a_file_that_is_no_database_is_status_1(config, tmp_path, capsys):
    (tmp_path / "db").mkdir()
    (tmp_path / "db/pinner.sqlite").write_text("not a database" * 500)
    assert main(["db", "upgrade", "--config-file", config]) == 1
    assert "not a database" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--help"], ["db", "--help"], ["db", "purge", "--help"], ["--version"]])
def test_help(argv, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "pinner" in out
    assert max(len(line) for line in out.splitlines()) <= 79


@pytest.mark.parametrize("command", ["current", "upgrade", "purge"])
def test_every_command_shows_its_exit_status_and_an_example(command, capsys):
    assert main(["db", command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "exit status:\n  0    done" in out
    assert f"examples:\n  pinner-manage db {command}" in out


def test_as_a_program(config):
    code = "import sys; from pinner.cli.manage.manage import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "db", "upgrade", "--config-file", config],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"revision {NEWEST}" in done.stdout


WRITERS = pytest.mark.slow("an output that cannot be written: more commands")


@pytest.mark.parametrize(
    "command",
    [
        "token create t --role reader",
        *(pytest.param(command, marks=WRITERS) for command in ("db current", "token list", "token list --json")),
    ],
)
@pytest.mark.parametrize("end", ["full", "closed", "broken"])
def test_an_output_that_cannot_be_written_is_told_in_one_line(config, command, end):
    how = {"full": ">/dev/full", "closed": ">&-", "broken": "| true"}[end]
    script = f'"{PROGRAM}" {command} --config-file "{config}" {how}'
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in ended.stderr
    if end == "full":
        assert "the output cannot be written: No space left on device" in ended.stderr.splitlines()[-1]
        assert ended.returncode == 1


def test_a_closed_stderr_does_not_keep_a_token_from_stdout(config):
    script = f'"{PROGRAM}" token create t --role reader --config-file "{config}" 2>&-'
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("pinner_")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_configuration_is_accepted_anywhere(config, capsys, place):
    argv = ["db", "current"]
    argv[place:place] = ["--config-file", config]
    assert main(argv) == 0
    assert "pinner.sqlite: revision base" in capsys.readouterr().out


def test_the_configuration_is_accepted_before_a_token(config, capsys):
    assert main(["--config-file", config, "token", "list", "--json"]) == 0
    assert '"items": []' in capsys.readouterr().out


def test_a_command_that_reads_no_configuration_says_so(config, capsys):
    assert main(["--config-file", config, "setup-host", "--dry-run"]) == 2
    assert "call them without --config-file" in capsys.readouterr().err
