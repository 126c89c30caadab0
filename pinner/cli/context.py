"""What a command needs besides its own arguments: the use cases, the caller and the consoles."""

import os
import pwd
import uuid
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pinner.cli.output import console, plain_page, print_json
from pinner.model.audit import Caller
from pinner.model.errors import Invalid, NotFound
from pinner.model.page import Page
from pinner.render import visible
from pinner.service.protocol import Service


def open_pinner(
    config_files: list[Path] | None, url: str, token: str, root: Path | None
) -> AbstractContextManager[Service]:
    """The use cases: of this host, or of the server at ``url`` where one is named."""
    # Imported here, because ``--help`` should not wait for the database and libvirt.
    from pinner import wiring

    return wiring.open_pinner(config_files, url, token, root)


@dataclass(frozen=True)
class Context:
    """One call of the command."""

    config_files: list[Path] | None
    url: str
    token: str
    json: bool
    out: Console
    err: Console
    caller: Caller

    def open(self, root: Path | None = None) -> AbstractContextManager[Service]:
        """The use cases; with ``root`` those of the captured machine in that folder."""
        if root is not None and self.url:
            raise Invalid("--root", str(root), f"no folder while a server is asked ({self.url})")
        if root is not None and not root.is_dir():
            raise Invalid("--root", str(root), "a folder that holds proc/ and sys/")
        return open_pinner(self.config_files, self.url, self.token, root)

    def note(self, text: str) -> None:
        """A line for the person at the terminal, on stderr."""
        self.err.print(visible(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """A warning, on stderr."""
        self.err.print(f"warning: {visible(text)}", style="yellow", soft_wrap=True)

    def show_page(self, page: Page[Any], drawn: Table) -> None:
        """Print part of a list, drawn or as JSON, and how to see more of it."""
        if self.json:
            print_json(plain_page(page))
            return
        self.out.print(drawn)
        if page.next:
            self.note(f"more: --marker {page.next}")

    @contextmanager
    def measuring(self, sample_seconds: float | None) -> Iterator[None]:
        """Show that a sample is being taken; nothing where nobody watches."""
        if not self.err.is_terminal or sample_seconds == 0:
            yield
            return
        span = "" if sample_seconds is None else f" for {sample_seconds:g} s"
        with self.err.status(f"measuring CPU use{span} ..."):
            yield


def make_context(options: Namespace) -> Context:
    """The context that the shared options and the environment ask for."""
    url = os.environ.get("PINNER_URL", "") if options.url is None else options.url
    return Context(
        config_files=options.config_file,
        url=url,
        token=_token(options.token_file),
        json=options.json,
        out=console(),
        err=console(stderr=True),
        caller=_caller(),
    )


def pick_host(pinner: Service, name: str | None) -> str:
    """The host that was asked for, or the only one. Raises NotFound, or Invalid where there is a choice."""
    hosts = pinner.hosts()
    if name is not None:
        if name not in hosts:
            raise NotFound("host", name, hosts)
        return name
    if len(hosts) != 1:
        raise Invalid("--host", "", f"one of {', '.join(hosts)}" if hosts else "a host, and none is known")
    return hosts[0]


def _token(file: Path | None) -> str:
    if file is None:
        return os.environ.get("PINNER_TOKEN", "")
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid("--token-file", str(file), f"a file that holds a token ({reason(error)})") from None


def reason(error: Exception) -> str:
    """Why a file could not be read or written, without its name."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _caller() -> Caller:
    # SUDO_USER is believed of root alone: anybody can set it, but only root need not lie.
    user = os.environ.get("SUDO_USER", "") if os.geteuid() == 0 else ""
    try:
        user = user or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    terminal = next((os.ttyname(fd) for fd in (0, 2) if os.isatty(fd)), "")
    origin = f"cli {terminal.removeprefix('/dev/')}".strip()
    return Caller(actor=user, origin=origin, request_id=f"req-{uuid.uuid4()}")
