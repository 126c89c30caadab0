"""pinner nova check: a table for people, one document for programs, and an exit status for scripts."""

import json
from dataclasses import replace

import pytest
from support.hosts import cpus, guest, plain, process, snapshot

from pinner import codec
from pinner.model.guest.nova import NovaConf, NovaReport

GOOD = NovaConf(
    ("/etc/nova/nova.conf",),
    "8-15",
    "2-7",
    "",
    "both",
    ("versioned_notifications",),
    ("messagingv2",),
    power_management=True,
    source="nova-compute, process 4711",
)


@pytest.fixture
def saved(tmp_path):
    def save(conf, *running):
        found = snapshot(
            plain(16, offline="15"),
            [guest(1, 2, cpus("0-14"), pins=["8", "9"], dedicated=True)],
            [process(300 + n, 0.0, "0-14", name=name) for n, name in enumerate(running)],
            dedicated=cpus("8-15"),
            shared=cpus("2-7"),
            nova=conf,
        )
        file = tmp_path / "host.json"
        file.write_bytes(codec.dump(found))
        return file

    return save


def test_a_host_where_nothing_is_misconfigured(cli, saved):
    result = cli("nova", "check", "--snapshot", saved(GOOD))
    assert (result.status, result.err) == (0, "")
    lines = [line.strip().split(maxsplit=2) for line in result.out.splitlines()]
    assert lines[1:6] == [
        ["Nova", "8-15", "cpu_dedicated_set (/etc/nova/nova.conf; nova-compute, process 4711)"],
        ["Nova", "8-9", "dedicated to guest g1"],
        ["Nova", "15", "offline: Nova may have powered them down; pinner does not use them"],
        ["pinner", "2-7", "for vCPUs (in cpu_shared_set)"],
        ["pinner", "0-7", "for busy processes and emulator threads"],
    ]
    assert result.out.endswith("nothing is misconfigured\n")


def test_each_finding_has_the_line_to_change(cli, saved):
    file = saved(replace(GOOD, format="unversioned"), "irqbalance")
    result = cli("nova", "check", "--snapshot", file)
    assert result.status == 1
    assert result.out.splitlines()[-3:] == [
        "to change:",
        "  nova.conf [notifications]: notification_format = both",
        "  as root: systemctl disable --now irqbalance.service",
    ]
    assert "it is unversioned" in result.out
    as_json = cli("nova", "check", "--snapshot", file, "--json")
    assert as_json.status == 1
    report = codec.read(NovaReport, json.loads(as_json.out))
    assert [one.what for one in report.findings] == ["notification_format", "irqbalance"]


def test_check_of_this_host(pinner, cli):
    result = cli("nova", "check", "--json")
    assert result.status == 0
    assert json.loads(result.out)["host"] == "h1"
