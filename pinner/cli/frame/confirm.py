"""The question of a command that changes a host, or that deletes data.

Without a terminal it refuses, unless --yes is given: a script must say that it wants the change.
"""

import sys
from typing import TextIO

from pinner.cli.frame.parser import UsageError
from pinner.render import visible


class AnswerNeeded(UsageError):
    code = "answer_needed"

    def __init__(self) -> None:
        super().__init__(
            "the command asks before it changes anything, and there is no terminal to answer at: add --yes"
        )


def require_answer(*, yes: bool) -> None:
    """Raises AnswerNeeded where the user can neither be asked nor has given --yes. Call it before any work."""
    if not (yes or (_is_terminal(sys.stdin) and _is_terminal(sys.stderr))):
        raise AnswerNeeded


def agreed(question: str, *, yes: bool) -> bool:
    """Raises AnswerNeeded."""
    require_answer(yes=yes)
    if yes:
        return True
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("nothing was changed", file=sys.stderr)
    return False


def _is_terminal(stream: TextIO | None) -> bool:
    """Python has None for a stream that the caller has closed."""
    return stream is not None and not stream.closed and stream.isatty()
