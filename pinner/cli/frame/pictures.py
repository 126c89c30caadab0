"""Shows the answer of a command, and writes the picture that --output names."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pinner import codec
from pinner.cli.frame.context import CommandContext, reason
from pinner.cli.frame.output import print_json
from pinner.model.errors import Invalid

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


def require_svg(file: Path | None) -> None:
    """Raise Invalid where a file is named, and its name does not end with .svg."""
    if file is not None and file.suffix.lower() != ".svg":
        raise Invalid("--output", os.fspath(file), "a name that ends with .svg")


def show(
    context: CommandContext, found: T, parts: "Callable[[T], Iterable[RenderableType]]", file: Path | None, title: str
) -> None:
    """Print an answer, as its parts or as JSON, and draw the parts where a file is named. Raises Invalid."""
    if context.json:
        print_json(codec.plain(found))
    else:
        for part in parts(found):
            context.out.print(part)
    if file is not None:
        # Imported here because only a picture needs it.
        from pinner.render.picture import picture

        write_picture(file, picture(parts(found), title))


def write_picture(file: Path, picture: bytes) -> None:
    """Raises Invalid where the file cannot be written."""
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise Invalid("--output", str(file), f"a file that can be written ({reason(error)})") from None
