"""The context of a command: service, caller, consoles, and the question before a change (--yes without a terminal)."""

import os
import pwd
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from pinner.cli.frame.output import Table, console, plain_lines, plain_page, print_json
from pinner.cli.frame.parser import UsageError
from pinner.model.errors import Invalid, NotFound
from pinner.render import visible

if TYPE_CHECKING:  # a command imports only what it uses: see main
    from rich.console import Console

    from pinner.model.page import Page
    from pinner.model.run.audit import Caller
    from pinner.service.protocol import Service


@contextmanager
def open_pinner(context: "CommandContext", root: Path | None) -> "Iterator[Service]":
    """Of the server at ``context.url``, else of the machine captured below ``root``, else of this host."""
    # Imported here, because ``--help`` must not wait until the database and libvirt are imported.
    actor = context.caller.actor if os.geteuid() == 0 else ""
    if context.url:
        from pinner.service.remote.remote import RemoteService

        with closing(RemoteService(context.url, context.token or None, actor=actor)) as remote:
            yield remote
        return
    from pinner import wiring

    if root is not None:
        with wiring.open_captured(context.config_files, root) as captured:
            yield captured
        return
    from pinner.server.opening import open_service

    with open_service(wiring.configuration(context.config_files), actor, context.inform) as service:
        yield service


@dataclass(frozen=True)
class CommandContext:
    config_files: list[Path] | None
    url: str
    token: str
    json: bool

    @cached_property
    def caller(self) -> "Caller":
        return local_caller()

    @cached_property
    def out(self) -> "Console":
        """At its first use: to import rich takes as long as to make a plan."""
        return console()

    @cached_property
    def err(self) -> "Console":
        return console(stderr=True)

    def open(self, root: Path | None = None) -> "AbstractContextManager[Service]":
        """``root`` is the folder of a captured machine. Raises Invalid."""
        if root is not None and self.url:
            raise Invalid("--root", str(root), f"no --root together with a server ({self.url})")
        if root is not None and not any(root.glob("sys/devices/system/cpu/cpu[0-9]*")):
            raise Invalid("--root", str(root), "a directory that contains proc/ and sys/devices/system/cpu/cpu0")
        return open_pinner(self, root)

    def show(self, *parts: Table | str) -> None:
        for part in parts:
            lines = plain_lines(part)
            if lines is None:
                self.out.print(part)
            else:
                sys.stdout.writelines(f"{line}\n" for line in lines)

    def inform(self, text: str) -> None:
        self.say(visible(text))

    def warn(self, text: str) -> None:
        self.say(f"warning: {visible(text)}", style="yellow")

    def say(self, text: str, style: str = "") -> None:
        if sys.stderr.isatty():
            self.err.print(text, style=style, soft_wrap=True)
        else:
            print(text, file=sys.stderr)

    def show_page(self, page: "Page[Any]", drawn: Table) -> None:
        if self.json:
            print_json(plain_page(page))
            return
        self.show(drawn)
        if page.next:
            self.inform(f"next page: --marker {page.next}")

    @contextmanager
    def measuring(self, sample_seconds: float | None) -> Iterator[None]:
        if not sys.stderr.isatty() or sample_seconds == 0:
            yield
            return
        span = "" if sample_seconds is None else f" for {sample_seconds:g} s"
        with self.err.status(f"measuring CPU use{span} ..."):
            yield


def make_context(options: Namespace) -> CommandContext:
    url = os.environ.get("PINNER_URL", "") if options.url is None else options.url
    return CommandContext(
        config_files=options.config_file, url=url, token=_token(options.token_file), json=options.json
    )


def pick_host(pinner: "Service", name: str | None) -> str:
    """Without a name, the only one. Raises NotFound, and Invalid if there are more."""
    hosts = pinner.hosts()
    if name is not None:
        if name not in hosts:
            raise NotFound("host", name, hosts)
        return name
    if len(hosts) != 1:
        raise Invalid("--host", "", f"one of {', '.join(hosts)}" if hosts else "a host, but no host is known")
    return hosts[0]


def _token(file: Path | None) -> str:
    if file is None:
        return os.environ.get("PINNER_TOKEN", "")
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid("--token-file", str(file), f"a file that contains a token ({reason(error)})") from None
    if not token:
        raise Invalid("--token-file", str(file), "a file that contains a token; this one is empty")
    return token


def reason(error: Exception) -> str:
    """The text lacks the file's name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def read_file(option: str, file: Path, most: int) -> bytes:
    """Raises Invalid, also for more than ``most`` bytes."""
    try:
        with file.open("rb") as opened:
            content = opened.read(most + 1)
    except OSError as error:
        raise Invalid(option, str(file), f"a file that can be read ({reason(error)})") from None
    if len(content) > most:
        raise Invalid(option, str(file), f"a file of at most {most} bytes")
    return content


def local_caller() -> "Caller":
    """The person at this terminal: a number in place of a misleading name."""
    import uuid

    from pinner.model.run.audit import Caller
    from pinner.model.run.token import require_actor

    # Any user can set SUDO_USER. It is trusted only for root, because root has no need to forge it.
    user = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    try:
        user = require_actor(user or pwd.getpwuid(os.getuid()).pw_name, "user")
    except (KeyError, Invalid):
        user = f"uid {os.getuid()}"
    terminal = ""
    with suppress(OSError):  # the terminal belongs to another mount namespace, as for `nsenter -m`
        terminal = next((os.ttyname(fd) for fd in (0, 2) if os.isatty(fd)), "")
    origin = f"cli {terminal.removeprefix('/dev/')}".strip()
    return Caller(actor=user, origin=origin, request_id=f"req-{uuid.uuid4()}")


class AnswerNeeded(UsageError):
    code = "answer_needed"

    def __init__(self) -> None:
        super().__init__(
            "the command asks before it changes anything, and there is no terminal to answer at: add --yes"
        )


def require_answer(*, yes: bool) -> None:
    """Raises AnswerNeeded without --yes and a terminal. Call it before any work."""
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
