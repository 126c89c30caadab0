"""The caller of a command, and the texts of table cells."""

import errno
import os
import pwd

import pytest
from support.values import cpus

from pinner.cli.frame.context import make_context
from pinner.cli.frame.output import cpu_cell, folded, kib, masks
from pinner.cli.frame.parser import shared_options
from pinner.cli.show.plantable import alike, part
from pinner.model.change import AffinityChange, Target, ThreadMask


def caller():
    return make_context(shared_options().parse_args([])).caller


def test_sudo_user_is_trusted_only_for_root(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert caller().actor == "alice"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert caller().actor != "alice"


@pytest.mark.parametrize("name", ["p\u043elicy", "unauthenticated", "pinner"])
def test_a_user_named_like_a_part_of_pinner_is_a_number(monkeypatch, name):
    monkeypatch.setattr(os, "getuid", lambda: 4242424)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd((name, "x", 4242424, 1, "", "/", "/bin/sh")))
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert caller().actor == "uid 4242424"
    monkeypatch.setenv("SUDO_USER", name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert caller().actor == "uid 4242424"


def test_caller_without_a_name_or_a_terminal(monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4242424)
    monkeypatch.setattr(os, "isatty", lambda _: False)
    assert caller().actor == "uid 4242424"
    assert caller().origin == "cli"
    assert caller().request_id != caller().request_id


def test_origin_names_the_terminal(monkeypatch):
    primary, secondary = os.openpty()
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 0)
    name = os.ttyname(secondary)
    monkeypatch.setattr(os, "ttyname", lambda _: name)
    assert caller().origin.startswith("cli pts/")
    os.close(primary)
    os.close(secondary)


def test_origin_names_no_terminal_of_another_mount_namespace(monkeypatch):
    def ttyname(_):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(os, "ttyname", ttyname)
    assert caller().origin == "cli"


@pytest.mark.parametrize(
    ("sets", "shown"),
    [
        ([], "-"),
        (["0-3", "0-3"], "0-3"),
        ([""], "-"),
        (["1", "0-3", "0-3"], "0-3 (2 threads); 1 (1 thread)"),
        (["0", "1", "2", "3", "3"], "3 (2 threads); 0 (1 thread); 1 (1 thread); 1 more"),
    ],
)
def test_masks(sets, shown):
    assert masks(map(cpus, sets)) == shown


def change(kind, owner, number, after, before="0-7"):
    return AffinityChange(Target(kind, owner, number, "web"), (ThreadMask(1, 1, cpus(before)),), cpus(after), "why")


def test_changes_alike_share_a_line():
    changes = [
        change("emulator", "u", None, "1"),
        *(change("vcpu", "u", number, "2-7") for number in (0, 1, 2)),
        change("vcpu", "u", 3, "2-7", before="5"),
        change("vcpu", "v", 0, "2-7"),
        change("process", "12", 99, "0"),
        change("process", "12", 99, "0"),
    ]
    groups = alike(changes)
    assert [len(group) for group in groups] == [1, 3, 1, 1, 1, 1]
    parts = [part(change.target for change in group) for group in groups]
    assert parts == ["emulator", "vCPU 0-2", "vCPU 3", "vCPU 0", "process 12", "process 12"]
    assert part([change("vhost", "u", 77, "1").target]) == "vhost thread 77"
    assert part([change("iothread", "u", 1, "1").target]) == "iothread 1"


def test_long_lists_break_at_commas_only():
    text = ",".join(str(cpu) for cpu in range(0, 256, 8))
    lines = folded(text)
    assert max(map(len, lines)) <= 18
    assert "".join(lines) == text
    assert folded("") == [""]
    assert cpu_cell("0-3").text == "0-3"


@pytest.mark.parametrize(("amount", "shown"), [(512, "512 KiB"), (65536, "64 MiB"), (67108864, "64.0 GiB")])
def test_memory_for_people(amount, shown):
    assert kib(amount) == shown
