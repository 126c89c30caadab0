"""Shows the answer of a command, and writes the picture that --output names."""

import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pinner import codec
from pinner.cli.frame.context import CommandContext, reason
from pinner.cli.frame.output import print_json
from pinner.model.errors import Invalid
from pinner.render import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

_COLUMNS = 120
_SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Without the fonts of rich's own frame, which a viewer would load from another server."""


def require_svg(file: Path | None) -> None:
    """Raises Invalid."""
    if file is not None and file.suffix.lower() != ".svg":
        raise Invalid("--output", os.fspath(file), "a name that ends with .svg")


def show(
    context: CommandContext,
    answer: T,
    parts: "Callable[[T], Iterable[RenderableType]]",
    file: Path | None = None,
    title: str = "",
) -> None:
    """Print an answer as its parts or as JSON; draw the parts where a file is named. Raises Invalid."""
    if context.json:
        print_json(codec.plain(answer))
    else:
        for part in parts(answer):
            context.out.print(part)
    if file is not None:
        write_picture(file, _picture(parts(answer), title))


def write_picture(file: Path, picture: bytes) -> None:
    """Raises Invalid."""
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise Invalid("--output", str(file), f"a file that can be written ({reason(error)})") from None


def _picture(parts: "Iterable[RenderableType]", title: str) -> bytes:
    # Imported here because only a picture needs it.
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME

    console = Console(
        file=io.StringIO(), record=True, width=_COLUMNS, markup=False, highlight=False, emoji=False, color_system=None
    )
    for part in parts:
        console.print(part)
    return console.export_svg(title=visible(title), theme=DEFAULT_TERMINAL_THEME, code_format=_SVG).encode()
