"""Runs a command so that whatever ends it is told in one line on stderr, and by the exit status."""

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pinner.cli.parser import UsageError
from pinner.model.errors import Invalid, NoFit, NotFound, PinnerError
from pinner.render import visible

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def guarded(program: str, command: Callable[[], int], *, debug: bool | None = None) -> int:
    """Run ``command``, and return the exit status.

    With ``debug``, the traceback of an error is printed first. None: the program has no such option, so that the
    traceback of a defect is always printed.
    """
    _prepare_streams()
    try:
        return _finished(command)
    except BrokenPipeError:
        _discard_output()
        return 1
    except KeyboardInterrupt as interrupt:
        return _complain(f"{program}: {str(interrupt) or 'interrupted'}", 130)
    except (UsageError, Invalid, NotFound, NoFit) as error:
        return _complain(f"{program}: error: {error}", 2, debug=bool(debug) and not isinstance(error, UsageError))
    except PinnerError as error:
        return _complain(f"{program}: error: {error}", 1, debug=bool(debug))
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            return _internal(program, error, debug=debug)
        _discard_output()
        return _complain(f"{program}: error: the output cannot be written: {error.strerror}", 1, debug=bool(debug))
    except Exception as error:
        return _internal(program, error, debug=debug)


def _finished(command: Callable[[], int]) -> int:
    try:
        status = command()
    except SystemExit as end:
        status = int(end.code or 0)
    sys.stdout.flush()
    return status


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        # If the terminal cannot show a character, its number is printed, and the command does not fail.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")


def _discard_output() -> None:
    """Send what was not written to /dev/null: the flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(program: str, error: Exception, *, debug: bool | None) -> int:
    hint = " (--debug shows the traceback)" if debug is False else ""
    return _complain(f"{program}: error: internal: {type(error).__name__}: {error}{hint}", 1, debug=debug is not False)


def _complain(message: str, status: int, *, debug: bool = False) -> int:
    if debug:
        traceback.print_exc()
    print(visible(message), file=sys.stderr)
    return status
