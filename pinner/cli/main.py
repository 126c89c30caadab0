"""The ``pinner`` command. Beside frame/parser.EXIT_STATUS, it exits with 1 if the reader of its output closed the
pipe."""

import atexit
import gc
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import pinner
from pinner.cli.frame.context import make_context
from pinner.cli.frame.guard import guarded, log_to_stderr
from pinner.cli.frame.parser import ASKING, CHANGES, Parser, exit_status, shared_options, wants_json

COMMANDS = {
    "inventory": "host.inventory:register",
    "topology": "host.topology:register",
    "check": "host.check:register",
    "top": "host.measures:register_top",
    "chart": "host.measures:register_chart",
    "blame": "host.measures:register_blame",
    "plan": "plans:register",
    "compare": "plans:register_compare",
    "what-if": "what_if:register_what_if",
    "capacity": "what_if:register_capacity",
    "apply": "runs:register_apply",
    "place": "place:register",
    "rollback": "runs:register_rollback",
    "run": "runs:register_run",
    "outcome": "outcome:register_outcome",
    "probe": "probes:register_probe",
    "tournament": "probes:register_tournament",
    "policy": "policies:register_policy",
    "drift": "policies:register_drift",
    "audit": "audit:register",
    "host": "host.hosts:register",
    "process": "host.processes:register",
    "guest": "host.guests:register",
    "nova": "nova:register",
    "strategy": "plans:register_strategy",
    "capture": "host.inventory:register_capture",
    "serve": "serve:register",
}
"""The function of commands/ that adds each command and noun to the parser. Only the called module is imported."""

OBJECTS_BETWEEN_SEARCHES = 100_000
"""Objects that a command makes before Python searches for unused ones."""

DESCRIPTION = """\
pinner separates the CPUs of libvirt guests, of their emulator threads and of
the host's busy daemons.

It works through the server of this host, if one runs; else alone, and then
changes need root. --url or PINNER_URL selects another server."""

EPILOG = """\
typical steps:
  pinner inventory            show this host
  pinner check                show what hurts the guests
  pinner compare              compare the plans of all strategies
  pinner plan                 make a plan: each change, and the reason for it
  pinner apply PLAN_ID        apply the plan; prints the id of the run
  pinner place GUEST ...      place a guest by hand, as a plan
  pinner rollback RUN_ID      undo the run
  pinner policy set --mode enforce
                              let `pinner serve` maintain the placement
  pinner drift                show what differs from the recorded placement
  pinner audit list           show who did what, and when

Every command takes --help and --json. A command that changes something asks
first; without a terminal it needs --yes.

""" + exit_status({**ASKING, CHANGES: "with --detailed-exitcode: there are changes, or drift"})


def make_parser(argv: Sequence[str] = ()) -> Parser:
    """Of the command that the arguments name; of all commands where they name none, as for --help."""
    parser = Parser(prog="pinner", description=DESCRIPTION, epilog=EPILOG, parents=[shared_options()])
    commands = parser.with_commands()
    names = [COMMANDS[argv[0]]] if argv and argv[0] in COMMANDS else dict.fromkeys(COMMANDS.values())
    for name in names:
        module, _, register = name.partition(":")
        getattr(import_module(f"pinner.cli.commands.{module}"), register)(commands)
    if len(names) > 1:
        parser.add_argument("--version", action="version", version=f"pinner {pinner.__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    # pinner uses no plug-in of pydantic, and a search for them reads the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # The process is about to end: Python must not look through all its objects for unused ones once more.
    atexit.register(gc.freeze)
    return guarded("pinner", lambda: _run(argv), debug="--debug" in argv, as_json=wants_json(argv))


def _run(argv: list[str]) -> int:
    shared, rest = shared_options().parse_known_args(argv)
    if rest[:1] != ["serve"]:
        # A command ends before it has made much garbage, and each search for it looks at all imported objects.
        gc.set_threshold(OBJECTS_BETWEEN_SEARCHES)
    arguments = make_parser(rest).parse_args(rest)
    log_to_stderr(logging.DEBUG if shared.debug else logging.ERROR)
    status: int = arguments.run(make_context(shared), arguments)
    return status
