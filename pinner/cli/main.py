"""The ``pinner`` command: parse the arguments, call the service, print the result.

Exit status: 0 done, 1 failed (also if the reader of the output has closed the pipe), 2 bad input, 130 after Ctrl-C.
"""

import logging
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

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
from pinner.cli.parser import Parser, UsageError, exit_status, shared_options
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
pinner separates the CPUs of libvirt guests, of their emulator threads and of
the host's busy daemons.

It works through the server of this host, if one runs; else alone, and then
changes need root. --url or PINNER_URL selects another server."""

EPILOG = """\
typical steps:
  pinner inventory            show this host
  pinner compare              compare the plans of all strategies
  pinner plan                 make a plan: each change, and the reason for it
  pinner apply PLAN_ID        apply the plan; prints the id of the run
  pinner rollback RUN_ID      undo the run
  pinner policy set --mode enforce
                              let `pinner serve` maintain the placement
  pinner drift                show what differs from the recorded placement
  pinner audit list           show who did what, and when

Every command takes --help and --json.

""" + exit_status({})


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(prog="pinner", description=DESCRIPTION, epilog=EPILOG, parents=[shared_options()])
    parser.add_argument("--version", action="version", version=f"pinner {__version__}")
    commands = parser.with_commands()
    for module in COMMANDS:
        module.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Execute one command, and return the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        # If the terminal cannot show a character, its number is printed, and the command does not fail.
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
    """Run ``command``. An error is printed as one line on stderr; with ``debug``, its traceback comes first."""
    try:
        return command()
    except SystemExit as end:
        return int(end.code or 0)
    except BrokenPipeError:
        # The flush at exit would fail again, so stdout is redirected to /dev/null.
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
        hint = "" if debug else " (--debug shows the traceback)"
        return _complain(f"internal: {type(error).__name__}: {error}{hint}", 1, debug=debug)


def _complain(message: str, status: int, *, prefix: str = "pinner: error: ", debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    print(prefix + visible(message), file=sys.stderr)
    return status
