"""Runs a command, and reports on stderr what ends it, in one line or as JSON, and by the exit status."""

import errno
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinner.cli.frame.parser import UsageError
from pinner.model.errors import Invalid, NoFit, NotFound, PinnerError
from pinner.render import visible

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@dataclass(frozen=True, slots=True)
class _Report:
    program: str
    json: bool
    debug: bool

    def error(self, code: str, message: str, status: int, details: Mapping[str, Any], *, traced: bool = True) -> int:
        if self.debug and traced:
            traceback.print_exc()
        document = {"error": {"code": code, "message": message, "details": dict(details)}}
        print(_as_json(document) if self.json else visible(f"{self.program}: error: {message}"), file=sys.stderr)
        return status

    def interrupted(self, message: str) -> int:
        if self.json:
            return self.error("interrupted", message, 130, {}, traced=False)
        print(visible(f"{self.program}: {message}"), file=sys.stderr)
        return 130

    def internal(self, error: Exception) -> int:
        hint = "" if self.debug else " (--debug shows the traceback)"
        return self.error("internal", f"internal: {type(error).__name__}: {error}{hint}", 1, {})


def _as_json(document: Mapping[str, Any]) -> str:
    """A value that JSON lacks (infinity, an object) becomes text, as in REST."""
    return json.dumps(json.loads(json.dumps(document, default=repr), parse_constant=str))


def guarded(program: str, command: Callable[[], int], *, debug: bool, as_json: bool) -> int:
    """Returns the exit status. ``debug``: with the traceback. ``as_json``: an error is a line of JSON as in REST."""
    _prepare_streams()
    report = _Report(program, as_json, debug)
    try:
        return _finished(command)
    except BrokenPipeError:
        _discard_output()
        return 1
    except KeyboardInterrupt as interrupt:
        return report.interrupted(str(interrupt) or "interrupted")
    except UsageError as error:
        return report.error(error.code, str(error), 2, {}, traced=False)
    except PinnerError as error:
        status = 2 if isinstance(error, Invalid | NotFound | NoFit) else 1
        return report.error(error.code, str(error), status, error.details)
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            return report.internal(error)
        _discard_output()
        return report.error("output", f"the output cannot be written: {error.strerror}", 1, {})
    except Exception as error:
        return report.internal(error)


def log_to_stderr(level: int) -> None:
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


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
    """The rest goes to /dev/null: the flush at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
