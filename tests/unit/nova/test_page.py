"""docs/nova.md says what the code does: its figures, its lists of notifications, options and paths, its example."""

import ast
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.hosts import cpus, plain, snapshot

from pinner.host.nova import nova_conf, nova_options, nova_process
from pinner.model.cpuset import MAX_CPUS, MAX_LENGTH
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.guest.nova import cpus as nova_cpus
from pinner.model.plan.request import Request
from pinner.nova.broker import bounds, notification
from pinner.nova.delivery import delivery, handover, sender
from pinner.nova.weigher_conf import Settings
from pinner.planning import planner
from pinner.planning.policy import event_order
from pinner.planning.questions import nova_check
from pinner.service.reconcile import controller
from pinner.service.upkeep import retention

ROOT = Path(__file__).parents[3]
PAGE = " ".join((ROOT / "docs/nova.md").read_text().split())
SCRIPT, FILTER = ((ROOT / "etc/pinner" / name).read_text() for name in ("libvirt-qemu-hook", "libvirt-strip-pins"))
WEIGHER = Settings(server="http://{host}:8077")


def constants(file):
    """The figures that a module defines; the broker's module imports oslo.messaging, which takes a while."""
    found = {}
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, ast.Assign):
            with suppress(ValueError):
                target, value = ast.unparse(node.targets[0]).strip("()"), ast.literal_eval(node.value)
                found |= dict(zip(target.split(", "), value if "," in target else (value,), strict=True))
    return SimpleNamespace(**found)


BROKER = constants("pinner/nova/broker/broker.py")
RETRIES = [min(delivery.FIRST_RETRY * 2**number, delivery.LAST_RETRY) for number in range(delivery.MAX_ATTEMPTS - 1)]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
FIGURES = [
    # a text of the page, the figures of the code, the figures of the text
    ("numbers of 8192 and more, and lists of more than 40,960 characters", (MAX_CPUS, MAX_LENGTH), (8192, 40960)),
    (
        "at most 200 files, each a regular file of at most 1 MiB, 4 MiB in all",
        (nova_options.MAX_FILES, nova_process.MAX_FILE, nova_options.MAX_BYTES),
        (200, 1 << 20, 4 << 20),
    ),
    ("events with more than 48 KiB of names and extra specs", notification.MAX_SIZE, 48 << 10),
    ("more than 16 MiB, also after its decompression", bounds.MAX_BYTES, 16 << 20),
    ("Every 30 seconds the listener declares its queue", BROKER.DECLARE_SECONDS, 30),
    ("the listener notices that within two minutes", BROKER.HANGS_SECONDS, 120),
    ("tries again after 1, 2, 4, 8 and 16 seconds", (BROKER.FIRST_DELAY, BROKER.MAX_REFUSALS), (1, 5)),
    ("more than ten times within five minutes", (BROKER.MAX_OUTAGES, BROKER.WINDOW_SECONDS), (10, 300)),
    ("15 attempts in nine minutes or more", (delivery.MAX_ATTEMPTS, int(sum(RETRIES) / 60)), (15, 9)),
    ("if the destination's pinner answers within 0.3 seconds", sender.WAIT_SECONDS, 0.3),
    ("that there is none, for a minute", sender.KEEP_SECONDS, 60),
    ("The policy checks the host every two seconds", controller.MIGRATING_SECONDS, 2),
    ("A report to pinner ends after five seconds", handover.TIMEOUT, 5),
    ("script ends it after 60 seconds", re.findall(r'timeout -k 1 (\d+) "\$python" -I -m', SCRIPT), ["60"]),
    ("ignored after 30 seconds", event_order.MAX_LEAVING_AGE, MINUTE / 2),
    (
        "older than a day, or more than a minute ahead",
        (event_order.MAX_AGE, event_order.MAX_AHEAD),
        (24 * HOUR, MINUTE),
    ),
    (
        "Once a day, and a minute after its start, the server",
        (retention.DAY_SECONDS, retention.FIRST_SECONDS),
        (86400, 60),
    ),
    ("what events of more than an hour ago told", retention.HINTS, HOUR),
    ("needs more than 3 seconds of CPU time", re.findall(r"ulimit -t (.*)", SCRIPT), ["3"]),
    (
        "8 seconds in all or 512 MiB",
        re.findall(r'ulimit -v (.*)|timeout -k 1 (\d+) "\$python" -IS', SCRIPT),
        [("524288", ""), ("", "8")],
    ),
    ("XML is longer than 16 MiB", re.findall(r"LONGEST = (.*)", FILTER), ["16 << 20"]),
    ("in the first 16 KiB of the XML", re.findall(r"head -c (\d+)", SCRIPT), ["16384"]),
    ("and reads for at most 8 seconds", re.findall(r"timeout -k 1 (\d+) head", SCRIPT), ["8"]),
    ("count for `max_age` (60 s)", WEIGHER.max_age, 60),
    ("waits at most `timeout` (0.5 s)", WEIGHER.timeout, 0.5),
    ("asked again after `retry` (30 s)", WEIGHER.retry, 30),
]


@pytest.mark.parametrize(("text", "found", "wanted"), FIGURES, ids=[text[:40] for text, _, _ in FIGURES])
def test_a_figure_of_the_page_is_that_of_the_code(text, found, wanted):
    assert text in PAGE
    assert found == wanted


def test_the_longest_list_of_cpus_is_read_and_a_longer_one_is_refused():
    assert str(nova_cpus("8191", "x")) == "8191"
    text = "1," * (MAX_LENGTH // 2)
    assert str(nova_cpus(text, "x")) == "1"
    for wrong in ("8192", "0-8192", text + "1"):
        with pytest.raises(Invalid):
            nova_cpus(wrong, "x")


def test_the_page_names_every_notification_that_pinner_uses():
    rows = re.findall(r"\| the end of ([a-z_, ]+?)(?: \(on the source\))? \| it (checks|deletes)", PAGE)
    named = {action: verb for actions, verb in rows for action in actions.split(", ")}
    verbs = {"started": "checks", "gone": "deletes"}
    assert named == {action: verbs[kind] for action, kind in notification.KIND_OF_ACTION.items()}
    (started,) = re.findall(r"\| the start of (rebuild.*?) \|", PAGE)
    assert [action in started for action in notification.LEFT_AT_START] == [True, True]
    assert f"| the start of {notification.LEAVING} |" in PAGE


def test_the_page_names_every_option_that_the_check_reports():
    tree = ast.parse(Path(nova_check.__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding"]
    named = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    assert len(named) >= 8
    table = PAGE[PAGE.index("| subject | correct value |") : PAGE.index("## What pinner promises")]
    # These are about the configuration as a whole, and about pinner's own options.
    elsewhere = {"nova.conf", "nova_conf", "pool", "ovsdb"}
    assert {name for name in named - elsewhere if name not in table} == set()
    assert [name for name in nova_check._SERVICES if name not in table] == []


@pytest.mark.parametrize(
    "path",
    [
        nova_conf._DEBIAN,
        nova_conf._CONF,
        nova_conf._COMPUTE_CONF,
        nova_conf._KOLLA,
        *nova_conf._RHOSO,
        *(pattern for _, pattern in nova_conf._OF_RHOSO),
        f"{nova_conf._SNAP}/etc/nova",
    ],
)
def test_the_page_names_every_path_of_a_preset(path):
    table = PAGE[PAGE.index("| deployment | files |") : PAGE.index("**What blocks a plan.**")]
    assert f"`{path}`" in table


def test_the_example_of_a_conflict_is_the_real_message():
    host = snapshot(plain(16), dedicated=cpus("4-15"))
    with pytest.raises(NovaConflict) as refused:
        planner.plan(host, "s", Request(housekeeping="0-4"))
    assert f"pinner: error: {refused.value}" in PAGE
