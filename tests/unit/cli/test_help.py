"""The output of --help at every level."""

import re
from pathlib import Path

import pytest

from pinner.cli.main import make_parser
from pinner.cli.manage import manage


def levels(parser):
    yield parser
    for child in parser.commands.choices.values() if parser.commands else ():
        yield from levels(child)


LEVELS = {level.prog: level for level in levels(make_parser())}
LEAVES = [name for name, level in LEVELS.items() if level.commands is None]


@pytest.mark.parametrize("name", LEVELS)
def test_every_level_has_complete_help(cli, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*name.split()[1:], "--help")
    assert result.status == 0
    assert result.err == ""
    for action in LEVELS[name]._actions:
        assert action.help or action.dest == "==SUPPRESS=="
    assert max(len(line) for line in result.out.splitlines()) <= 79


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_examples_that_parse(cli, name):
    text = cli(*name.split()[1:], "--help").out
    assert "--json" in text
    assert "exit status:\n  0    " in text
    examples = text[text.index("examples:\n") :].splitlines()[1:]
    assert examples
    for example in examples:
        for call in example.split("&&"):
            words = call.split(" >")[0].split()
            words = words[words.index("pinner") + 1 :]
            assert make_parser().parse_known_args(words)[0].run


def test_nouns_list_their_commands(cli):
    assert len(LEAVES) == 43
    for name in LEAVES:
        noun, _, command = name.rpartition(" ")
        assert command in cli(*noun.split()[1:], "--help").out


def test_version(cli):
    assert cli("--version").out.startswith("pinner ")


def test_the_exit_statuses_are_in_the_help_and_in_the_documents(cli):
    table = cli("--help").out.partition("exit status:\n")[2]
    statuses = [line.split()[0] for line in table.splitlines() if line.strip()]
    assert statuses == ["0", "1", "2", "3", "130"]
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    rows = page.partition("| exit status | meaning |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [row.split()[1] for row in rows] == statuses


def test_the_commands_that_ask_are_in_the_documents():
    page = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    listed = page.partition("of `pinner`:")[2].partition("`--yes` answers")[0]
    for parser, names in zip((make_parser(), manage.make_parser()), listed.split("of `pinner-manage`:"), strict=True):
        asking = [each.prog for each in levels(parser) if any(action.dest == "yes" for action in each._actions)]
        found = re.findall("`([a-z -]+)`", " ".join(names.split()))
        assert sorted(f"{parser.prog} {name}" for name in found) == sorted(asking)
