"""The ``pinner`` command: parse, call, print.

Exit status: 0 done, 1 failed (also where nobody reads the output), 2 bad input, 130 after Ctrl-C.
"""

import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence

from pinner import __version__
from pinner.cli import (
    apply,
    audit,
    capture,
    compare,
    guests,
    hosts,
    inventory,
    nova,
    plans,
    policies,
    processes,
    runs,
    serve,
    strategies,
    topology,
)
from pinner.cli.context import make_context
from pinner.cli.parser import Parser, UsageError, shared_options
from pinner.model.errors import Invalid, NoFit, NotFound, PinnerError
from pinner.render import visible

COMMANDS = (
    inventory,
    topology,
    plans,
    compare,
    apply,
    runs,
    policies,
    audit,
    hosts,
    processes,
    guests,
    nova,
    strategies,
    capture,
    serve,
)

DESCRIPTION = """\
Keeps libvirt guests, their emulator threads and the host's busy daemons off each other's CPUs.

Works on this host (as root, for changes), or on a pinner server with --url or PINNER_URL."""

EPILOG = """\
the usual way:
  pinner inventory               what is on this host
  pinner compare                 what each strategy would make of it
  pinner plan                    one plan: every change, before -> after, and why
  pinner apply PLAN_ID           make it so; `pinner rollback RUN_ID` takes it back
  pinner policy set --mode M     keep it so: observe, propose or enforce; `pinner drift` tells how it fares
  pinner audit list              who did what, and when

Every command takes --help and --json.
Exit status: 0 done, 1 failed, 2 bad input, 130 after Ctrl-C."""


def make_parser() -> Parser:
    """The whole grammar."""
    parser = Parser(prog="pinner", description=DESCRIPTION, epilog=EPILOG, parents=[shared_options()])
    parser.add_argument("--version", action="version", version=f"pinner {__version__}")
    commands = parser.with_commands()
    for module in COMMANDS:
        module.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character shows its number; the command does not fail for it.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    return _guarded(lambda: _run(argv), debug="--debug" in argv)


def _run(argv: list[str]) -> int:
    shared, rest = shared_options().parse_known_args(argv)
    arguments = make_parser().parse_args(rest)
    _log(shared)
    status: int = arguments.run(make_context(shared), arguments)
    sys.stdout.flush()
    return status


def _log(shared: Namespace) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if shared.debug else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def _guarded(command: Callable[[], int], *, debug: bool) -> int:
    """Run ``command``; an error is one line on stderr, after its traceback with ``debug``."""
    try:
        return command()
    except SystemExit as end:
        return int(end.code or 0)
    except BrokenPipeError:
        # The flush at exit would fail again, so that it gets another place to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as interrupt:
        return _complain(str(interrupt) or "interrupted", 130, prefix="pinner: ")
    except UsageError as error:
        return _complain(str(error), 2)
    except (Invalid, NotFound, NoFit) as error:
        return _complain(str(error), 2, debug=debug)
    except PinnerError as error:
        return _complain(str(error), 1, debug=debug)
    except Exception as error:
        hint = "" if debug else " (--debug shows where)"
        return _complain(f"internal: {type(error).__name__}: {error}{hint}", 1, debug=debug)


def _complain(message: str, status: int, *, prefix: str = "pinner: error: ", debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    print(prefix + visible(message), file=sys.stderr)
    return status
