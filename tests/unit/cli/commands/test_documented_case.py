"""The worked example of docs/strategies.md: each command runs on the documented hosts, and prints what it shows."""

import re
import shlex
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from data.field.documented import ONE_GUEST, documented_host, host_of_32
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.fakes.local_service import compose_service

from pinner import codec
from pinner.cli.frame import context

PAGE = (Path(__file__).parents[4] / "docs/strategies.md").read_text()
SECTION = PAGE.partition("\n## The documented case\n")[2].partition("\n## ")[0]
EXAMPLES = re.findall(r"^    \$ pinner (.*)\n((?:    .*\n|\n(?=    (?!\$)))*)", SECTION, re.M)
HOSTS = {
    "host.json": documented_host(),
    "one-guest.json": ONE_GUEST,
    "schemes.json": host_of_32(nodes=2, vcpus=8),
    "isolated.json": host_of_32(nodes=2, vcpus=8, isolated="5-31"),
}
"""By the file that a command of the page reads; the others run on the first."""


@pytest.fixture
def in_the_case(tmp_path, store, monkeypatch):
    """A folder with the saved snapshots; a command without one opens the service of the first host."""
    for name, host in HOSTS.items():
        (tmp_path / name).write_bytes(codec.dump(host))
    monkeypatch.chdir(tmp_path)
    clock = Clock(timedelta(seconds=1))
    agent = HostedAgent(tmp_path / "agent", replace(documented_host(), host="h1"), clock)
    agent.host.has_metadata = True
    with closing(agent.journal), closing(compose_service(agent, store, clock)) as parts:
        monkeypatch.setattr(context, "open_pinner", lambda *_: nullcontext(parts.service))
        yield


def words(text):
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def test_the_page_has_a_command_for_each_stage():
    assert len(EXAMPLES) == 7


@pytest.mark.usefixtures("in_the_case")
@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_a_command_of_the_page_prints_what_the_page_shows(cli, command, shown):
    """Three dots stand for lines that the page leaves out."""
    result = cli(*shlex.split(command))
    assert result.status == (2 if "pinner: error: " in shown else 0)
    printed, here = words(result.out + result.err), 0
    for line in words(shown):
        if line != "...":
            assert line in printed[here:]
            here = printed.index(line, here) + 1
