"""--json has one shape for lists, {"items", "next"}, and one for errors, {"error": {"code", "message", "details"}}."""

import json
import shlex

import pytest

from pinner.cli.manage import manage
from pinner.model.errors import HostUnreachable, Invalid

LISTS = [
    "host list",
    "guest list",
    "process list",
    "process list --busy",
    "strategy list",
    "plan list",
    "run list",
    "audit list",
    "compare",
]
ERRORS = {
    "plan show nonesuch": ("not_found", {"kind": "plan", "name": "nonesuch"}),
    "plan --housekeeping 99": ("invalid", {"field": "housekeeping", "value": "99"}),
    "plan list --limit 0": ("usage", {}),
    "nonesuch": ("usage", {}),
    "": ("usage", {}),
    "plan --nonesuch": ("usage", {}),
    "policy delete": ("answer_needed", {}),
    "policy show": ("not_found", {"kind": "policy of host"}),
    "plan --snapshot /dev/null": ("invalid", {"field": "--snapshot", "value": "/dev/null"}),
}


@pytest.mark.parametrize("command", LISTS)
def test_every_list_has_items_and_next(applied, cli, command):
    document = json.loads(cli(*command.split(), "--json").out)
    assert list(document) == ["items", "next"]
    assert document["items"]
    assert document["next"] == ""


def test_next_is_the_marker_of_the_next_page(pinner, cli):
    for _ in range(3):
        cli("plan")
    first = json.loads(cli("plan", "list", "--limit", "2", "--json").out)
    rest = json.loads(cli("plan", "list", "--limit", "2", "--marker", first["next"], "--json").out)
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (2, 1, "")


@pytest.mark.parametrize("command", ERRORS)
def test_an_error_is_one_line_of_json_on_stderr(pinner, cli, command):
    plain = cli(*shlex.split(command))
    result = cli("--json", *shlex.split(command))
    code, details = ERRORS[command]
    assert (result.status, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.isascii()
    document = json.loads(line)
    assert list(document) == ["error"]
    error = document["error"]
    assert list(error) == ["code", "message", "details"]
    assert plain.err == f"pinner: error: {error['message']}\n"
    assert error["code"] == code
    assert error["details"].items() >= details.items()


@pytest.mark.parametrize("option", [["--format", "json"], ["--format=json"]])
def test_the_format_json_has_errors_as_json_too(pinner, cli, option):
    assert json.loads(cli("plan", "show", "nonesuch", *option).err)["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (HostUnreachable("h1", "libvirt does not answer"), "host_unreachable", 1),
        (ZeroDivisionError("a fault of our own"), "internal", 1),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
def test_a_failure_keeps_its_status(pinner, cli, monkeypatch, error, code, status):
    def fail():
        raise error

    monkeypatch.setattr(pinner, "hosts", fail)
    result = cli("host", "list", "--json")
    assert result.status == status
    assert json.loads(result.err)["error"]["code"] == code


@pytest.mark.parametrize(("number", "shown"), [("1e400", "Infinity"), ("-1e400", "-Infinity"), ("NaN", "NaN")])
def test_a_number_that_json_lacks_is_a_text_in_an_error(pinner, cli, monkeypatch, number, shown):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    def fail():
        raise Invalid("samples", float(number), "a finite number")

    monkeypatch.setattr(pinner, "hosts", fail)
    error = json.loads(cli("host", "list", "--json").err, parse_constant=refuse)["error"]
    assert error["details"]["value"] == shown


def test_errors_of_pinner_manage(capsys):
    assert manage.main(["token", "list", "--json", "--config-file", "/does/not/exist"]) == 2
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["code"], error["details"]["value"]) == ("invalid", "/does/not/exist")
