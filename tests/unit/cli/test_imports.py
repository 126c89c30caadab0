import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.hosts import cpus, guest, interleaved, process, snapshot

from pinner import codec
from pinner.agent.trail.signing import SigningKey, pem
from pinner.cli.main import COMMANDS, make_parser
from pinner.model.run.agent_audit import SignedHead

HEAVY = (
    "alembic",
    "cryptography",
    "flask",
    "highspy",
    "httpx",
    "libvirt",
    "lxml",
    "numpy",
    "oslo_config",
    "oslo_log",
    "oslo_messaging",
    "oslo_policy",
    "oslo_utils",
    "prometheus_client",
    "sqlalchemy",
    "werkzeug",
)
OWN = (
    "agent",
    "api",
    "apply",
    "conf",
    "host",
    "model.run.agent_audit",
    "model.run.audit",
    "model.outcome.blame",
    "model.questions",
    "model.outcome.check",
    "model.run.journal",
    "model.outcome.measures",
    "model.outcome.outcome",
    "model.reading",
    "nova",
    "planning.settings.coalescing",
    "planning.settings.cpu_weights",
    "planning.settings.power",
    "planning.settings.inside",
    "planning.settings.irqbalance",
    "planning.settings.irqs",
    "planning.packing.optimal",
    "planning.packing.program",
    "planning.settings.queues",
    "planning.settings.table",
    "planning.settings.rings",
    "planning.settings.rps",
    "planning.settings.sysctls",
    "server",
    "service.local",
    "service.protocol",
    "store",
    "wiring",
)
"""The rooms of pinner that a plan from a file does not need."""
STAND_IN = "pydantic.plugin._loader"
"""An empty module that main puts in place of pydantic's search for plug-ins."""
RUN = """
import json, sys
from pinner.cli.main import main
try:
    status = main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(json.dumps([status, *sys.modules]), file=sys.stderr)
"""


def imported(*arguments: object) -> list[str]:
    """The modules that a command imports in a process of its own."""
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    status, *modules = json.loads(ended.stderr.splitlines()[-1])
    assert status == 0, ended.stderr
    return [module for module in modules if module != STAND_IN]


@pytest.mark.parametrize("name", [*HEAVY, *(f"pinner.{room}" for room in OWN), STAND_IN.partition(".")[0]])
def test_each_module_that_must_not_be_imported_exists(name):
    assert find_spec(name)


@pytest.mark.parametrize("options", [[], ["--json"], ["--format", "shell"], ["--strategy", "isolated"]])
def test_a_plan_from_a_snapshot_file_imports_only_what_it_uses(tmp_path, options):
    top = interleaved(8)
    busy = process(900_000, 50.0, str(top.online))
    file = tmp_path / "host.json"
    file.write_bytes(codec.dump(snapshot(top, [guest(1, 2, cpus("0-15"))], [busy])))
    modules = imported("plan", "--snapshot", file, *options)
    wanted = (*HEAVY, "rich", *(f"pinner.{room}" for room in OWN))
    assert [module for module in modules if any(f"{module}.".startswith(f"{heavy}.") for heavy in wanted)] == []
    others = {name.rpartition(".")[0] for name in COMMANDS.values()} - {"plans"}
    assert {f"pinner.cli.commands.{module}" for module in others}.isdisjoint(modules)
    packs = any(module.startswith("pinner.planning.packing.") for module in modules)
    assert packs == ("isolated" in options)


@pytest.mark.parametrize(
    "noun", [[], *([noun] for noun in COMMANDS), ["host", "list"], ["plan", "create"]], ids=" ".join
)
def test_help_reads_no_value_draws_no_table_and_opens_nothing(noun):
    modules = imported(*noun, "--help")
    rooms = ("agent", "apply", "host", "nova", "planning", "server", "service", "store", "wiring")
    wanted = (*HEAVY, "pydantic", "rich", *(f"pinner.{room}" for room in rooms))
    assert [module for module in modules if any(f"{module}.".startswith(f"{heavy}.") for heavy in wanted)] == []


@pytest.mark.parametrize("command", [["host", "list"], ["process", "list"], ["run", "list"], ["audit", "list"]])
def test_the_help_of_a_command_that_plans_nothing_imports_no_value_of_a_host(command):
    modules = imported(*command, "--help")
    assert {
        "pinner.model.guest.guest",
        "pinner.model.plan.plan",
        "pinner.model.snapshot",
        "pinner.model.machine.topology",
    }.isdisjoint(modules)


def test_a_verification_of_an_exported_trail_opens_no_database_and_no_server(tmp_path):
    key = SigningKey(tmp_path / "key")
    head = key.sign(SignedHead("h1", 0, "", 0, "", "2026-01-01T00:00:00.000000+00:00", "", ""))
    (tmp_path / "key.pem").write_text(pem(key.public))
    (tmp_path / "trail.jsonl").write_text(json.dumps({"export": 1, "heads": [codec.plain(head)]}))
    modules = imported("audit", "verify", "--file", tmp_path / "trail.jsonl", "--public-key", tmp_path / "key.pem")
    wanted = {"alembic", "flask", "httpx", "libvirt", "oslo_config", "sqlalchemy", "pinner.wiring"}
    assert wanted & set(modules) == set()


def test_a_plan_from_a_snapshot_file_searches_for_no_plug_in_of_pydantic_or_pinner(tmp_path):
    """The search reads the metadata of every installed package, which takes as long as the plan."""
    file = tmp_path / "host.json"
    file.write_bytes(codec.dump(snapshot(interleaved(8), [guest(1, 2, cpus("0-15"))], [])))
    code = f"import importlib.metadata as found; found.entry_points = found.distributions = None{RUN}"
    command = [sys.executable, "-c", code, "plan", "--snapshot", file]
    assert subprocess.run(command, capture_output=True, check=True).stdout


def test_python_does_not_search_all_objects_for_unused_ones_when_a_command_ends():
    code = f"import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0)){RUN}"
    ended = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "True"


@pytest.mark.parametrize(("arguments", "rare"), [(["plan", "--help"], True), (["--json", "serve", "--help"], False)])
def test_python_rarely_searches_for_unused_objects_in_a_command_that_is_no_server(arguments, rare):
    code = f"import atexit, gc; atexit.register(lambda: print(gc.get_threshold()[0] >= 100_000)){RUN}"
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == str(rare)


def test_the_table_of_commands_names_the_module_of_each_command():
    every = make_parser().commands
    assert every is not None
    assert list(every.choices) == list(COMMANDS)
    for command in COMMANDS:
        alone = make_parser([command]).commands
        assert alone is not None
        assert command in alone.choices
